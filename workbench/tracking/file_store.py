"""Runs in a file, a line of JSON each: for machines without MLflow; `workbench import` logs them later."""

import json
import os
import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from workbench.core.errors import CorruptFileError
from workbench.tracking.artifacts import write_artifact
from workbench.tracking.locks import locked
from workbench.tracking.mirror import plain_rows
from workbench.tracking.record import FAILED, FINISHED, KILLED, RUNNING, DatasetInfo, Point, Row, Run
from workbench.tracking.store import NOTHING, Artifacts, StoreError

_SCHEMA = 1


class FileStore:
    """One line for every run that ended, in the order they ended; what a killed process was running leaves nothing.

    A line that was cut off by a kill is no run: readers pass over it, and the next writer removes it.

    Args:
        file: the lines; locks and artifacts lie beside it.
    """

    def __init__(self, file: str | Path) -> None:
        self._file = Path(file).absolute()
        self.location = str(self._file)
        self._started: dict[str, Run] = {}

    def check(self) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.open("a").close()
        except OSError as error:
            raise StoreError(f"{self.location} can't be written ({error.strerror}); name another .jsonl file") from None
        self._read()

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

    def sweeps(self) -> list[str]:
        return sorted({run.point.sweep for run in self._read()})

    def claim(self, key: str, *, wait: bool = False) -> AbstractContextManager[bool]:
        return locked(self._beside("locks") / key, wait=wait)

    def start(self, point: Point) -> str:
        run_id = uuid.uuid4().hex
        self._started[run_id] = Run(point, run_id, RUNNING, started_at=time.time())
        return run_id

    def finish(self, run_id: str, rows: Iterable[Row], artifacts: Artifacts = NOTHING) -> None:
        self._end(run_id, artifacts, status=FINISHED, rows=tuple(plain_rows(rows)))

    def fail(self, run_id: str, error: str, status: str = FAILED, artifacts: Artifacts = NOTHING) -> None:
        self._end(run_id, artifacts, status=status, error=error)

    def close_orphans(self) -> int:
        return 0

    def add(self, run: Run) -> bool:
        if run.status == RUNNING:
            raise ValueError(f"run {run.run_id} is {RUNNING}; only runs that ended can be added")
        with self.claim(run.point.key, wait=True):
            present = self.runs(run.point.sweep, keys={run.point.key}, statuses=(FINISHED, FAILED, KILLED))
            if any((r.started_at, r.status) == (run.started_at, run.status) for r in present):
                return False
            self._append(replace(run, rows=tuple(plain_rows(run.rows))))
            return True

    def log_summary(
        self, figure: str, sweep: str, size: str, key: str, artifacts: Artifacts, tags: Mapping[str, str] = NOTHING
    ) -> str:
        name = f"{figure}/{size}/{key}"
        about = json.dumps({"figure": figure, "sweep": sweep, "size": size, "key": key, "tags": dict(tags)}, indent=1)
        self._keep(name, {**artifacts, "summary.json": about})
        return name

    def _end(self, run_id: str, artifacts: Artifacts, **outcome: Any) -> None:
        if run_id not in self._started:
            raise ValueError(f"run {run_id!r} was not started by this store, or has ended; start it first")
        run = self._started[run_id]
        self._keep(run_id, artifacts)
        self._append(replace(run, seconds=time.time() - run.started_at, **outcome))
        del self._started[run_id]

    def _append(self, run: Run) -> None:
        line = json.dumps(_record(run), ensure_ascii=False).encode() + b"\n"
        with locked(self._beside("locks") / "append"), self._file.open("a+b") as file:
            tail = _tail(file)
            if tail and _is_whole(tail):
                line = b"\n" + line
            elif tail:
                file.truncate(file.seek(-len(tail), os.SEEK_END))
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> list[Run]:
        lines = self._file.read_bytes().split(b"\n") if self._file.exists() else [b""]
        if not _is_whole(lines[-1]):
            lines.pop()
        return [self._run(number, line) for number, line in enumerate(lines, 1) if line.strip()]

    def _run(self, number: int, line: bytes) -> Run:
        try:
            return _run(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptFileError(
                f"{self.location}, line {number} holds no run ({error}); remove the line or restore the file"
            ) from None

    def _keep(self, folder: str, artifacts: Artifacts) -> None:
        for name, content in artifacts.items():
            write_artifact(self._beside("artifacts") / folder, name, content)

    def _beside(self, what: str) -> Path:
        return self._file.with_name(f"{self._file.name}.{what}")


def _record(run: Run) -> dict[str, Any]:
    return {"schema": _SCHEMA, **asdict(run)}


def _run(record: Any) -> Run:
    if record.pop("schema") != _SCHEMA:
        raise ValueError(f"its schema is not {_SCHEMA}")
    point = record.pop("point")
    dataset = point.pop("dataset")
    info = None if dataset is None else DatasetInfo(**dataset)
    figures = tuple(point.pop("figures"))
    return Run(Point(**point, figures=figures, dataset=info), rows=tuple(record.pop("rows")), **record)


def _is_whole(line: bytes) -> bool:
    """Of a line without an end: a part of an object is no object."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _tail(file: Any) -> bytes:
    """What follows the last end of a line."""
    file.seek(0)
    return file.read().rpartition(b"\n")[2]
