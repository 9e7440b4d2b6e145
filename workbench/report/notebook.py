"""The cells that all notebooks of figures share: result, one point's code, findings, recorded tables, and its runs."""

import inspect
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from workbench.experiment.experiment import Experiment
from workbench.experiment.figure_spec import SIZES
from workbench.experiment.recorded import Recorded, recorded
from workbench.paths import shown_path
from workbench.report.expected_time import about, expected_seconds
from workbench.report.sections import NOT_RUN, Section
from workbench.report.tables import escaped, markdown_table
from workbench.report.verdicts import folded, read_smoke_findings, told, verdicts
from workbench.tracking.compare import compare as compare_runs
from workbench.tracking.opening import open_store
from workbench.tracking.store import Store

_NUM_RUNS = 5  # shown of a sweep


def result(experiment: Experiment) -> None:
    """Displays the verdict in a line, the figure as recorded, and the claim with what did not hold; runs nothing.

    Args:
        experiment: the figure.
    """
    from IPython.display import display

    smoke = read_smoke_findings(experiment.name.partition("/")[0])
    sections = verdicts([experiment], smoke)[0].sections
    _show_markdown(verdict_line(sections))
    if (kept := headline(experiment)) is not None:
        display(experiment.draw(kept.table))
    _show_markdown(box_of(experiment, sections))


def point(experiment: Experiment) -> None:
    """Displays the function that computes one point of a figure's sweep, and how long the recorded sweeps took.

    Args:
        experiment: the figure.
    """
    _show_markdown(point_text(experiment))


def findings(experiment: Experiment, table: pd.DataFrame, *, size: str) -> None:
    """Displays every part of the claim with its verdict, the evidence, and the reason of documented deviations.

    Args:
        experiment: the figure.
        table: rows of its sweep.
        size: size of the rows, "smoke", "real" or "paper", whose deviations apply.
    """
    _show_markdown(findings_text(experiment, table, size=size))


def findings_text(experiment: Experiment, table: pd.DataFrame, *, size: str) -> str:
    """Returns what `findings` displays.

    Args:
        experiment: the figure.
        table: rows of its sweep.
        size: size of the rows, "smoke", "real" or "paper", whose deviations apply.
    """
    return markdown_table(experiment.findings(table, size=size))


def recorded_tables(experiment: Experiment, *, compare: bool = False) -> None:
    """Displays every recorded table of a figure's sweep: provenance, figure unless `result` shows it, and findings.

    Args:
        experiment: the figure.
        compare: also display the paper's numbers beside those of the table.
    """
    from IPython.display import display

    tables, shown = recorded(experiment.sweep.name), headline(experiment)
    for kept in tables:
        _show_markdown(heading(kept))
        if shown is None or kept.file != shown.file:
            display(experiment.draw(kept.table))
        if compare:
            display(experiment.compare(kept.table))
        findings(experiment, kept.table, size=kept.size)
    if not tables:
        _show_markdown(f"No table of `{experiment.sweep.name}` is recorded.")


def heading(kept: Recorded) -> str:
    """Returns a line of Markdown: size, device and date of a recorded table, and whether its code has changed since.

    Args:
        kept: the recorded table.
    """
    return f"**{kept.size}**, {kept.about['device']}, {kept.about['date']}; {kept.provenance()}"


def logged_runs(
    experiment: Experiment, table: pd.DataFrame, columns: Sequence[str], *, store: Store | None = None
) -> pd.DataFrame:
    """Displays how to find a sweep's runs in MLflow and returns the last of them.

    Args:
        experiment: the figure.
        table: rows of its sweep, as `Experiment.run` returns them.
        columns: columns to show, as `wb.compare` names them.
        store: the store of the runs; None: the one that `open_store` opens.
    """
    _show_markdown(where_logged(experiment))
    runs = compare_runs(store or open_store(), sweep=experiment.sweep.name)
    return runs.loc[runs.run_id.isin(table.run_id), list(columns)].tail(_NUM_RUNS)


def where_logged(experiment: Experiment) -> str:
    """Returns a paragraph of Markdown on the MLflow experiment, the tags and the filter of a figure's runs.

    Args:
        experiment: the figure.
    """
    sweep = experiment.sweep.name
    return (
        f"Each point is a run in the MLflow experiment `{sweep.partition('/')[0]}`, with its rows as an artifact. "
        f'The filter `tags.sweep = "{sweep}"` selects these runs. `make ui` serves MLflow and prints a link; in '
        f"JupyterLab, started by `make lab`, its launcher has a tile. In a terminal: `workbench compare {sweep}`."
    )


def _show_markdown(text: str) -> None:
    from IPython.display import Markdown, display

    display(Markdown(text))


def headline(experiment: Experiment) -> Recorded | None:
    """Returns the recorded table that stands for a figure: that of the largest size; None without any.

    Args:
        experiment: the figure.
    """
    return max(recorded(experiment.sweep.name), key=lambda kept: SIZES.index(kept.size), default=None)


def verdict_line(sections: Sequence[Section]) -> str:
    """Formats a figure's verdict in a line: that of its largest recorded size, else of the smoke size.

    Args:
        sections: its recorded verdicts, one per size.
    """
    if not sections:
        return "– **Not run** at any size"
    section = max(sections, key=lambda section: SIZES.index(section.size))
    status, held = _status(section)
    return f"{section.symbol} **{status.capitalize()}** at size {section.size}{_device(section)}: {held}"


def box_of(experiment: Experiment, sections: Sequence[Section]) -> str:
    """Formats a figure's claim and its verdicts in Markdown: what did not hold in a line each, the reasons folded.

    Args:
        experiment: the figure.
        sections: its recorded verdicts, one per size.
    """
    spec, known = experiment.spec, experiment.sweep.spec.sizes
    source = experiment.paper
    source += f", {escaped(spec.source)}" if spec.source.lower() != source.lower() else ""
    parts = [f"**Claim.** {escaped(spec.claim)} *({source})*"]
    parts += [part for section in sections for part in _section(section)]
    missing = [size for size in SIZES if size in known and size not in {section.size for section in sections}]
    parts += [f"– **{size}**: {NOT_RUN}" for size in missing]
    parts += [f"*{size}*: {escaped(note)}" for size in known if (note := experiment.note(size))]
    return "\n\n".join(parts)


def _section(section: Section) -> list[str]:
    failed = [one for one in section.counted if not one.held]
    head = f"{section.symbol} **{section.size}**{_device(section)}: {', '.join(_status(section))}"
    if not failed:
        return [head]
    lines = "\n".join(f"- {one.symbol} {escaped(one.statement)}" for one in failed)
    reasons = "\n".join(f"- {told(one, section)}" for one in failed)
    return [head, lines, folded("Evidence and reasons", reasons)]


def _status(section: Section) -> tuple[str, str]:
    """The verdict, and how many statements hold."""
    points = " ({} of {} points)".format(*section.points) if section.is_incomplete and section.points else ""
    held = [finding.held for finding in section.counted]
    return section.status + points, f"{sum(held)} of {len(held)} statements hold"


def _device(section: Section) -> str:
    return f", {section.provenance['device']}" if section.recorded else ""


def point_text(experiment: Experiment) -> str:
    """Returns Markdown: the `run` of a figure's sweep, which yields the rows of one point, and the expected times.

    Args:
        experiment: the figure; the function is that of the figure whose rows it shows.
    """
    run = experiment.sweep.module.run
    file = shown_path(Path(inspect.getsourcefile(run) or experiment.sweep.file))
    tables = [(kept, kept.point_seconds()) for kept in recorded(experiment.sweep.name)]
    times = "; ".join(_time(kept, seconds) for kept, seconds in tables if seconds)
    smoke = expected_seconds(experiment, "smoke")
    taken = f" All points of size smoke take {about(smoke)}." if smoke is not None else ""
    taken += f" As recorded: {times}." if times else ""
    return f"One point of the sweep is this function of `{file}`.{taken}\n\n```python\n{inspect.getsource(run)}```\n"


def _time(kept: Recorded, seconds: Sequence[float]) -> str:
    return f"{len(seconds)} points of size {kept.size} in {_rounded(sum(seconds))} on {kept.about['device']}"


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
