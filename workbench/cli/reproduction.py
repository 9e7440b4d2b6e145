"""The work of `workbench reproduce`: a line per sweep, one bar over all of them, and a closing box."""

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from workbench.cli.command_group import write_error, write_lines
from workbench.cli.sweep_output import pending, run_and_describe
from workbench.experiment.attempt import finished_runs
from workbench.experiment.experiment import Experiment
from workbench.experiment.sweep import new_bar
from workbench.experiment.table import table_of
from workbench.files import write_file
from workbench.report.expected_time import announcement
from workbench.report.sections import SYMBOLS, Section
from workbench.report.verdicts import section_of_findings
from workbench.tracking.store import Store

_MINUTE = 60.0


@dataclass
class Reproduction:
    """What was reproduced so far.

    Args:
        store: contains the runs.
        size: "smoke", "real" or "paper".
        device: None: the size's.
        tables: folder of the tables that a reader may want and the terminal does not show.
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
        points = [len(figures[0].configs(size=self.size, device=self.device)) for figures in views]
        if line := self._announcement([figures[0].sweep for figures in views]):
            write_error(line)
        with new_bar(sum(points), label=self.size) as bar:
            for number, (figures, count) in enumerate(zip(views, points, strict=True), 1):
                changed = figures if run_all else [figure for figure in figures if not self._is_current(figure)]
                if changed:
                    self._run(changed, f"{number:>{len(str(len(views)))}}/{len(views)}", bar, **how)
                else:
                    bar.total -= count
                    bar.refresh()

    def _announcement(self, sweeps: Sequence[Experiment]) -> str:
        return announcement(
            ((sweep, *pending(sweep, self.store, size=self.size, device=self.device)) for sweep in sweeps), self.size
        )

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

    def _run(self, figures: Sequence[Experiment], number: str, bar: tqdm, **how: Any) -> None:
        before, names = time.monotonic(), [figure.name for figure in figures]
        options = {"size": self.size, "device": self.device, "width": self.width, "progress": bar}
        made = run_and_describe(figures, self.store, **options, **how)
        seconds = time.monotonic() - before
        file = self.tables / f"{figures[0].sweep.name}-{self.size}.txt"
        write_file(file, "\n".join(made.lines) + "\n")
        self.sections += made.sections
        self.failures += made.failures
        self.seconds += seconds
        failed = [line for line in made.lines if line.startswith("FAILED")]
        with bar.external_write_mode(file=sys.stdout):
            write_lines([f"{number} {sweep_line(names, seconds, made.sections)}", *(f"  {line}" for line in failed)])


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
    timed = sum(1 for section in sections if any(f.timed and not f.held for f in section.findings))
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
    count = len(section.undecided)
    unclear = [f"{count} part{'s' * (count > 1)} undecided, the runs are too few"] if count else []
    return f"{section.symbol} {section.name}: {'; '.join([*missed, *unclear])}" if missed or unclear else ""


def _counts(sections: Iterable[Section]) -> list[tuple[str, int]]:
    found = [section.status for section in sections]
    return [(status, found.count(status)) for status in SYMBOLS if status in found]


def _times(count: int) -> str:
    return f"{count} × " if count > 1 else ""
