"""The work of `workbench run` and `workbench reproduce`: sweeps, described on the terminal; a closing box."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.cli.command_group import write_error, write_lines
from workbench.error_text import text_of
from workbench.experiment.attempt import finished_runs
from workbench.experiment.experiment import Experiment
from workbench.experiment.finding import Finding
from workbench.experiment.recorded import (
    TIMINGS,
    confirm,
    kept_runs,
    read_recorded,
    record,
    table_of_points,
    to_confirm,
)
from workbench.experiment.summary import log_summary
from workbench.experiment.sweep import Progress, WorkBar, slowest
from workbench.experiment.table import labels, table_of, to_read
from workbench.files import write_file
from workbench.paths import shown_path
from workbench.report.expected_time import announcement, expected_seconds
from workbench.report.sections import SYMBOLS, Section, section_of_findings
from workbench.report.terminal import fitted_table, wrapped
from workbench.tracking.record import FINISHED, Run
from workbench.tracking.store import NOTHING, Store, StoreError

_SHOWN = 20  # differences from a recorded table


@dataclass(frozen=True, eq=False)
class Described:
    """A sweep that was run.

    Args:
        lines: to print.
        sections: the figures' verdicts; empty if the whole grid was not run.
        failures: number of failed points, and 1 if the figures could not be logged.
    """

    lines: list[str]
    sections: list[Section]
    failures: int


def run_and_describe(
    figures: Sequence[Experiment],
    store: Store,
    *,
    size: str,
    overrides: Mapping[str, Any] = NOTHING,
    record_table: bool = False,
    width: int | None = None,
    progress: Progress = True,
    **how: Any,
) -> Described:
    """Runs the points of a sweep that are not finished; checks and logs figures and, on request, records the table.

    Args:
        figures: one or more that show the rows of the sweep.
        store: contains the runs.
        size: "smoke", "real" or "paper".
        overrides: configuration key to value; if given, nothing is logged.
        record_table: write the table to experiments/results/ unless a point failed.
        width: columns of the terminal; None: unlimited.
        progress: as `Experiment.runs` takes it.
        **how: other options of `Experiment.runs`.
    """
    sweep = figures[0].sweep
    kept = _recorded_runs(sweep, store, size, how.get("device")) if record_table else []
    runs = sweep.runs(size=size, overrides=overrides, store=store, progress=progress, kept=kept, **how)
    failed = [run for run in runs if run.status != FINISHED]
    names = dict(zip((run.run_id for run in runs), labels(runs), strict=True))
    complete = not (overrides or failed)
    lines, sections = [*fitted_table(to_read(runs, sweep.spec.columns), width, more="workbench compare --all"), ""], []
    for figure in figures if len(failed) < len(runs) else []:
        note = _without_verdict(overrides, len(failed), len(runs))
        found = check(figure, runs, complete)
        lines += [f"{figure.name}: {figure.spec.claim}{note}", *_findings(figure, size, found), ""]
        if not overrides and isinstance(found, list):
            sections.append(section_of_findings(figure, size, found, problems=[run.error or "" for run in failed]))
    not_logged = _log(figures, size, runs, store) if complete else []
    lines += ["slowest points:", *(f"  {run.seconds:8.2f} s: {names[run.run_id]}" for run in slowest(runs))]
    lines += [f"FAILED {names[run.run_id]}: {run.error}" for run in failed]
    if record_table:
        lines.append("not recorded: some points failed" if failed else f"recorded: {record(runs)}")
    return Described(lines + not_logged, sections, len(failed) + len(not_logged))


def _recorded_runs(sweep: Experiment, store: Store, size: str, device: str | None) -> list[Run]:
    """Points that are recorded as the present code makes them, and not in the store: of a grid that grew, the rest."""
    tasks = sweep.tasks(size=size, device=device)
    stored = finished_runs(tasks, store)
    return kept_runs([task for task in tasks if task.point.key not in stored])


def confirm_table(sweep: Experiment, store: Store, *, seconds: float, **how: Any) -> list[str]:
    """Runs points of a recorded table again by the present code, and notes there that their rows are the recorded ones.

    Args:
        sweep: with points of its own.
        store: keeps the runs.
        seconds: that the points may take together, as the table tells.
        **how: options of `Experiment.runs`.

    Returns:
        Lines to print.

    Raises:
        ValueError: no such table, one that can't be confirmed, or rows that differ.
    """
    tasks = sweep.tasks(size=how["size"], device=how["device"])
    table = table_of_points(tasks)
    if not table.changed_since():
        return [f"{shown_path(table.file)}: {table.provenance()}"]
    chosen = to_confirm(table, tasks, seconds)
    runs = sweep.runs(store=store, progress=True, only={task.point.key for task in chosen}, **how)
    failed = [f"{run.point.label}: {run.error}" for run in runs if run.status != FINISHED]
    if found := failed or confirm(table, chosen, runs):
        shown = "\n".join(f"  {line}" for line in found[:_SHOWN])
        raise ValueError(f"{shown_path(table.file)} is not confirmed; use --record:\n{shown}")
    return [f"{shown_path(table.file)}: {read_recorded(table.file).provenance()}"]


def pending(
    sweep: Experiment, store: Store, *, size: str, device: str | None, record_table: bool = False
) -> tuple[int, int]:
    """Counts the points of a sweep that have no finished run, and all of them.

    Args:
        sweep: with points of its own.
        store: contains the runs.
        size: "smoke", "real" or "paper".
        device: None: the size's.
        record_table: points that the recorded table keeps count as finished.
    """
    tasks = sweep.tasks(size=size, device=device)
    done = {*finished_runs(tasks, store)}
    if record_table:
        done |= {run.point.key for run in kept_runs(tasks)}
    return len(tasks) - len(done), len(tasks)


def check(figure: Experiment, runs: Sequence[Run], complete: bool) -> list[Finding] | str:
    """The findings of a figure; or why there are none: an incomplete grid may lack the rows that a check compares.

    Args:
        figure: to check.
        runs: of its sweep; failed ones are skipped.
        complete: the whole grid has finished, so that an error is one.
    """
    try:
        return figure.check(table_of(run for run in runs if run.status == FINISHED))
    except (ValueError, KeyError, AttributeError) as error:
        if complete:
            raise
        return f"not checked on this part of the grid: {text_of(error)}"


def _without_verdict(overrides: Mapping[str, Any], failed: int, points: int) -> str:
    """Why findings are no verdict on the figure; "" if they are."""
    if overrides:
        return " (on the points you chose: no verdict on the figure)"
    return f" ({failed} of {points} points failed: no verdict on the figure)" if failed else ""


def _findings(figure: Experiment, size: str, found: list[Finding] | str) -> list[str]:
    """One line per part of the claim."""
    if isinstance(found, str):
        return [f"  {found}"]
    known, lines = figure.deviations(size), []
    for finding in found:
        timed = f" ({finding.verdict})" if finding.timed else ""
        lines.append(f"  {finding.symbol} {finding.statement}{timed} — {finding.evidence}")
        if not finding.held and finding.name in known:
            lines.append(f"    known: {known[finding.name]}")
    return lines


def _log(figures: Sequence[Experiment], size: str, runs: list[Run], store: Store) -> list[str]:
    """The points are stored already, so their table is shown even if the store fails now."""
    try:
        for figure in figures:
            log_summary(figure, size, runs, store)
    except StoreError as error:
        return [f"FAILED to log the figures: {error}"]
    return []


_MINUTE = 60.0


@dataclass
class Reproduction:
    """What was reproduced so far.

    Args:
        store: contains the runs.
        size: "smoke", "real" or "paper".
        device: None: the size's.
        tables: folder of the tables that a reader may want and the terminal does not show.
        first_page: writes the report's page with the first figures that were drawn, and returns a line on it.
        width: columns of the terminal; None: unlimited.
        sections: verdicts of all figures.
        unchanged: names of the figures that were left as they were.
        failures: number of failed points and of figures that could not be logged.
        seconds: time that the sweeps took.
    """

    store: Store
    size: str
    device: str | None
    tables: Path
    first_page: Callable[[Sequence[Experiment]], str]
    width: int | None
    sections: list[Section] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    failures: int = 0
    seconds: float = 0.0

    def run(self, views: Sequence[Sequence[Experiment]], *, run_all: bool, **how: Any) -> None:
        """Reproduces the figures of sweeps that changed, and says so in a line per sweep.

        Args:
            views: per sweep, the figures that show its rows.
            run_all: reproduce those that did not change too.
            **how: options of `run_and_describe`.
        """
        sweeps = [figures[0].sweep for figures in views]
        points = [len(sweep.configs(size=self.size, device=self.device)) for sweep in sweeps]
        if line := self._announcement(sweeps, points):
            write_error(line)
        seconds = [expected_seconds(sweep, self.size) or count for sweep, count in zip(sweeps, points, strict=True)]
        first = min(range(len(views)), key=lambda place: (sweeps[place].name.startswith(TIMINGS), seconds[place]))
        with WorkBar(sum(seconds), self.size) as bar:
            for number, place in enumerate([first, *(p for p in range(len(views)) if p != first)], 1):
                figures, bar.seconds_per_point = views[place], seconds[place] / points[place]
                changed = figures if run_all else [figure for figure in figures if not self._is_current(figure)]
                if changed:
                    self._run(changed, f"{number:>{len(str(len(views)))}}/{len(views)}", bar, **how)
                else:
                    bar.total -= seconds[place]
                    bar.refresh()

    def _announcement(self, sweeps: Sequence[Experiment], points: Sequence[int]) -> str:
        """Which points are finished takes data sets and code; sweeps without runs are not kept waiting for them."""
        begun = set(self.store.sweeps())
        how = {"size": self.size, "device": self.device}
        counts = [
            (sweep, *(pending(sweep, self.store, **how) if sweep.name in begun else (count, count)))
            for sweep, count in zip(sweeps, points, strict=True)
        ]
        return announcement(counts, self.size)

    def _is_current(self, figure: Experiment) -> bool:
        """A figure that did not change keeps the verdict of its runs."""
        if not figure.is_current(self.store, size=self.size, device=self.device):
            return False
        tasks = figure.tasks(size=self.size, device=self.device)
        finished = finished_runs(tasks, self.store)
        found = figure.check(table_of(finished[task.point.key] for task in tasks))
        self.sections.append(section_of_findings(figure, self.size, found))
        self.unchanged.append(figure.name)
        return True

    def _run(self, figures: Sequence[Experiment], number: str, bar: WorkBar, **how: Any) -> None:
        before, names = time.monotonic(), [figure.name for figure in figures]
        options = {"size": self.size, "device": self.device, "width": self.width, "progress": bar}
        made = run_and_describe(figures, self.store, **options, **how)
        seconds = time.monotonic() - before
        file = self.tables / f"{figures[0].sweep.name}-{self.size}.txt"
        write_file(file, "\n".join(made.lines) + "\n")
        self.sections += made.sections
        self.failures += made.failures
        self.seconds += seconds
        first = [self.first_page(figures)] if made.sections and len(made.sections) == len(self.sections) else []
        failed = [line for line in made.lines if line.startswith("FAILED")]
        with bar.external_write_mode(file=sys.stdout):
            write_lines(
                [
                    f"{number} {sweep_line(names, seconds, made.sections)}",
                    *(f"  {line}" for line in failed),
                    *filter(None, first),
                ]
            )


def sweep_line(names: Sequence[str], seconds: float, sections: Sequence[Section]) -> str:
    """A sweep's figures, the time that it took, and their verdicts.

    Args:
        names: "paper/figure" each, at least one.
        seconds: time.
        sections: verdicts of the figures.

    >>> sweep_line(["betty/fig11", "betty/fig12"], 71.3, [])
    'betty/fig11, fig12  1 min 11 s  failed'
    """
    short = ", ".join([names[0], *(name.partition("/")[2] for name in names[1:])])
    verdicts = ", ".join(f"{SYMBOLS[status]} {_times(count)}{status}" for status, count in _counts(sections))
    return f"{short}  {duration(seconds)}  {verdicts or 'failed'}"


def duration(seconds: float) -> str:
    """Time for people.

    Args:
        seconds: 0 or more.

    >>> duration(3.21), duration(75), duration(7300)
    ('3.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def closing_lines(sections: Sequence[Section], size: str) -> list[str]:
    """The verdicts in one sentence, then what of the claims did not hold.

    Parts without a documented reason are said in their own words, a line per figure; of the others the figures are
    named, as the report says what and why.

    Args:
        sections: of all figures, at one size.
        size: "smoke", "real" or "paper".
    """
    counted = ", ".join(f"{count} {status}" for status, count in _counts(sections))
    timed = sum(any(finding.timed for finding in section.not_held) for section in sections)
    seconds = f" ({timed} differ in seconds, which do not count)" if timed else ""
    head = f"{len(sections)} figure{'s' * (len(sections) != 1)} at {size}: {counted or 'none finished'}{seconds}"
    known = [one.name for one in sections if any(f.counts and f.name in one.deviations for f in one.not_held)]
    documented = [f"not all of it held, for reasons that the report states: {', '.join(known)}"] if known else []
    return [head, *filter(None, map(not_held_line, sections)), *documented]


def not_held_line(section: Section) -> str:
    """What of a claim did not hold although no reason is documented, or is undecided, in the words of its statements.

    Args:
        section: a figure at a size.

    Returns:
        One line; "" if there is nothing to say.
    """
    missed = [f"not: {one.statement}" for one in section.not_held if one.counts and one.name not in section.deviations]
    unclear = []
    for reason, trained in (("undecided, the runs are too few", True), ("not trained: nothing is compared", False)):
        count = sum(one.trained == trained for one in section.undecided if not one.timed or not trained)
        unclear += [f"{count} part{'s' * (count > 1)} {reason}"] if count else []
    return f"{section.symbol} {section.name}: {'; '.join([*missed, *unclear])}" if missed or unclear else ""


def _counts(sections: Iterable[Section]) -> list[tuple[str, int]]:
    found = [section.status for section in sections]
    return [(status, found.count(status)) for status in SYMBOLS if status in found]


def _times(count: int) -> str:
    return f"{count} × " if count > 1 else ""


_ROUND, _ASCII = "╭─╮│╰╯", "+-+|++"
_WIDEST = 100  # columns, where the width of the terminal is unknown or larger


def box(lines: Sequence[str], width: int | None, *, encoding: str | None = None) -> list[str]:
    """Frames lines, wrapped to the terminal.

    Args:
        lines: without line ends.
        width: columns of the terminal; None: unknown.
        encoding: of the output; None: that of stdout. One without box characters gets a frame of "+", "-" and "|".

    >>> print("\\n".join(box(["done"], 40, encoding="ascii")))
    +------+
    | done |
    +------+
    """
    left, across, right, side, low_left, low_right = _corners(encoding or sys.stdout.encoding or "ascii")
    inner = wrapped(lines, min(width or _WIDEST, _WIDEST) - 4)
    longest = max(map(len, inner), default=0)
    framed = [f"{side} {line:<{longest}} {side}" for line in inner]
    rule = across * (longest + 2)
    return [left + rule + right, *framed, low_left + rule + low_right]


def _corners(encoding: str) -> str:
    try:
        _ROUND.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _ROUND
