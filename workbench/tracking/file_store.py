"""A store in a JSON Lines file, one run per line, for machines without MLflow; `workbench import` logs it later."""

import json
import os
import shlex
import tempfile
import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from workbench.error_text import text_of
from workbench.files import digest
from workbench.tracking.mlflow_fields import plain_rows
from workbench.tracking.preflight import reporting
from workbench.tracking.record import (
    FAILED,
    FINISHED,
    KILLED,
    RUNNING,
    Point,
    Row,
    Run,
    check_point,
    check_summary,
    parse_run,
)
from workbench.tracking.store import (
    NOTHING,
    Artifacts,
    Store,
    StoreError,
    lock_with_timeout,
    point_lock,
    shown_uri,
    write_artifacts,
)

_SCHEMA = 1
_SUMMARY = "summary.json"  # written last: without it a summary is incomplete


def _unusable(location: str, error: OSError) -> StoreError:
    remedy = "free space or give permission there, or use another .jsonl file"
    return StoreError(f"{location} can't be used ({error.strerror or error}); {remedy}")


_reports = reporting((OSError,), _unusable)


class FileStore:
    """Stores one line per run that ended, in the order of their ends; runs of a killed process leave no line.

    Readers skip an incomplete line left by a kill, and the next writer removes it.

    Args:
        file: file of the lines; locks and artifacts are stored in folders next to it.
    """

    def __init__(self, file: str | Path) -> None:
        self._file = Path(file).absolute()
        self.location = str(self._file)
        self.unsent = self._file.with_name(f"{self._file.stem}.unsent.jsonl")
        self._artifacts = self._file.with_name(f"{self._file.name}.artifacts")
        self._started: dict[str, tuple[Run, float]] = {}

    @_reports
    def check(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.open("a").close()
        self._read()

    @_reports
    def runs(
        self,
        sweep: str | None = None,
        *,
        size: str | None = None,
        keys: Collection[str] | None = None,
        statuses: Collection[str] = (FINISHED,),
    ) -> list[Run]:
        return [
            run
            for run in sorted(self._read(), key=lambda run: run.started_at)
            if (sweep is None or run.point.sweep == sweep)
            and (size is None or run.point.size == size)
            and (keys is None or run.point.key in keys)
            and run.status in statuses
        ]

    @_reports
    def sweeps(self) -> list[str]:
        return sorted({run.point.sweep for run in self._read()})

    def lock(self, key: str, *, wait: bool = False) -> AbstractContextManager[bool]:
        return point_lock(self._locks / digest(key), wait, partial(_unusable, self.location))

    def start(self, point: Point) -> str:
        check_point(point)
        run_id = uuid.uuid4().hex
        self._started[run_id] = Run(point, run_id, RUNNING, started_at=time.time()), time.monotonic()
        return run_id

    @_reports
    def finish(self, run_id: str, rows: Iterable[Row], artifacts: Artifacts = NOTHING) -> None:
        self._end(run_id, artifacts, status=FINISHED, rows=tuple(plain_rows(rows)))

    @_reports
    def fail(self, run_id: str, error: str, status: str = FAILED, artifacts: Artifacts = NOTHING) -> None:
        self._end(run_id, artifacts, status=status, error=error)

    def close_orphans(self) -> int:
        return 0

    @_reports
    def add(self, run: Run) -> bool:
        if run.status == RUNNING:
            raise ValueError(f"run {run.run_id} is {RUNNING}; only runs that have ended can be added")
        check_point(run.point)
        with lock_with_timeout(self._locks / "add"):
            present = self.runs(run.point.sweep, keys={run.point.key}, statuses=(FINISHED, FAILED, KILLED))
            if any((r.started_at, r.status) == (run.started_at, run.status) for r in present):
                return False
            self._append(replace(run, rows=tuple(plain_rows(run.rows))))
            return True

    @_reports
    def log_summary(
        self, figure: str, sweep: str, size: str, key: str, artifacts: Artifacts, tags: Mapping[str, str] = NOTHING
    ) -> str:
        check_summary(figure, sweep, size, key)
        name = _summary(figure, size, key)
        about = json.dumps({"figure": figure, "sweep": sweep, "size": size, "key": key, "tags": dict(tags)}, indent=1)
        write_artifacts(self._artifacts / name, {**artifacts, _SUMMARY: about})
        return name

    @_reports
    def has_summary(self, figure: str, sweep: str, size: str, key: str) -> bool:
        return (self._artifacts / _summary(figure, size, key) / _SUMMARY).is_file()

    def _end(self, run_id: str, artifacts: Artifacts, **outcome: Any) -> None:
        if run_id not in self._started:
            raise ValueError(f"run {run_id!r} was not started by this store, or has ended; start it first")
        run, started = self._started[run_id]
        write_artifacts(self._artifacts / run_id, artifacts)
        self._append(replace(run, seconds=time.monotonic() - started, **outcome))
        del self._started[run_id]

    def _append(self, run: Run) -> None:
        """Append a line atomically, after removing an incomplete line left by a killed writer."""
        line = json.dumps({"schema": _SCHEMA, **asdict(run)}, ensure_ascii=False).encode(errors="replace") + b"\n"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with lock_with_timeout(self._locks / "append"), self._file.open("a+b", buffering=0) as file:
            tail = _tail(file)
            if tail and _is_complete(tail):
                line = b"\n" + line
            elif tail:
                file.truncate(file.seek(-len(tail), os.SEEK_END))
            end = file.seek(0, os.SEEK_END)
            try:
                _write(file, line)
            except BaseException:
                with suppress(OSError):
                    file.truncate(end)
                raise

    def _read(self) -> list[Run]:
        lines = self._file.read_bytes().split(b"\n") if self._file.exists() else [b""]
        if not _is_complete(lines[-1]):
            lines.pop()
        return [parse_run(line, f"{self.location}, line {n}") for n, line in enumerate(lines, 1) if line.strip()]

    @property
    def _locks(self) -> Path:
        """Next to the file itself, so that all links to it share its locks."""
        real = self._file.resolve()
        return real.with_name(f"{real.name}.locks")


def _summary(figure: str, size: str, key: str) -> str:
    return f"{figure}/{size}/{key}"


def _is_complete(line: bytes) -> bool:
    """Return whether a line without newline is complete: a truncated JSON object does not parse."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _tail(file: Any) -> bytes:
    """Return the contents after the last newline."""
    file.seek(0)
    return file.read().rpartition(b"\n")[2]


def _write(file: Any, line: bytes) -> None:
    """Write the whole line and sync it to disk."""
    remaining = memoryview(line)
    while remaining:
        remaining = remaining[file.write(remaining) :]
    os.fsync(file.fileno())


def keep_unsent(run: Run, store: Store, problem: Exception) -> StoreError:
    """Write a run to a file next to its store, and return the error to raise, which says how to import the file.

    Args:
        run: a run that has ended.
        store: store that failed to accept the run.
        problem: the store's error.

    Returns:
        The problem with the name of the file, or with the run's rows if no file can be written.
    """
    for choose_file in (_next_to, _temporary):
        with suppress(OSError, ValueError):  # no space, no permission, or the file is damaged
            file = choose_file(store)
            FileStore(file).add(run)
            return StoreError(f"{text_of(problem)}; the computed point is saved: {_remedy(file, store)}")
    return StoreError(
        f"{text_of(problem)}; the computed point could not be written to a file either, its rows are: {list(run.rows)}"
    )


def _next_to(store: Store) -> Path:
    return store.unsent


def _temporary(store: Store) -> Path:
    return Path(tempfile.mkdtemp(prefix="workbench-")) / store.unsent.name


def _remedy(file: Path, store: Store) -> str:
    command = f"workbench import {shlex.quote(str(file))} --store {shlex.quote(shown_uri(store.location))}"
    return f"once the store works, run `{command}`"
