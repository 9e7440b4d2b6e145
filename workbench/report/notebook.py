"""The cells that all notebooks of figures share: result, one point's code, findings, recorded tables, and its runs."""

from collections.abc import Sequence

import pandas as pd

from workbench.experiment.experiment import Experiment
from workbench.experiment.recorded import Recorded, recorded
from workbench.report.markdown import markdown_table
from workbench.report.point_text import point_text
from workbench.report.result_box import result_box
from workbench.report.smoke_findings import read_smoke_findings
from workbench.tracking.compare import compare as compare_runs
from workbench.tracking.opening import open_store
from workbench.tracking.store import Store

_NUM_RUNS = 5  # shown of a sweep


def result(experiment: Experiment) -> None:
    """Displays the claim, the recorded verdict at every size, and where the claim fails with reasons; runs nothing.

    Args:
        experiment: the figure.
    """
    _show_markdown(result_box(experiment, read_smoke_findings(experiment.name.partition("/")[0])))


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
    _show_markdown(markdown_table(experiment.findings(table, size=size)))


def recorded_tables(experiment: Experiment, *, compare: bool = False) -> None:
    """Displays every recorded table of a figure's sweep: provenance, figure and findings.

    Args:
        experiment: the figure.
        compare: also display the paper's numbers beside those of the table.
    """
    from IPython.display import display

    tables = recorded(experiment.sweep.name)
    for kept in tables:
        _show_markdown(heading(kept))
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
