"""The generated parts of README.md, docs/ and notebooks: `python -m workbench.report.generated_docs [--smoke]`.

A document marks them by `<!-- generated: NAME -->` and `<!-- end of generated -->`. All are functions of the recorded
tables and of the smoke size's findings and seconds, which `--smoke` records after running it. In the notebook of a
figure, the result box, the code of one point and the findings of recorded tables are generated outputs.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.experiment.experiment import Experiment
from workbench.experiment.figure_loader import experiment_names, load_experiment
from workbench.experiment.recorded import TIMINGS, Recorded, recorded
from workbench.files import write_file
from workbench.paths import project_root, shown_path
from workbench.report.expected_time import smoke_seconds, write_smoke_seconds
from workbench.report.notebook import box_of, findings_text, point_text, verdict_line
from workbench.report.tables import markdown_table
from workbench.report.verdicts import (
    FigureVerdicts,
    details,
    figure_rows,
    paper_row,
    read_smoke_findings,
    run_smoke,
    verdicts,
    write_smoke_findings,
)

BENCHMARKS = (TIMINGS, "gpu_check/")
"""Folders of this repository's own measurements, which reproduce no paper."""

_RATIOS = ("measured", "cases", "median", "from", "to", "spread")
_PART = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)


def documents() -> list[Path]:
    """Returns README.md and the files in docs/ that have generated parts."""
    files = [project_root() / "README.md", *sorted((project_root() / "docs").rglob("*.md"))]
    return [file for file in files if _PART.search(file.read_text(encoding="utf-8"))]


def notebooks() -> dict[Path, FigureVerdicts]:
    """Returns the notebooks of all figures, with their verdicts."""
    figures = [figure for paper in _papers().values() for figure in paper]
    return {project_root() / "notebooks" / f"{figure.experiment.name}.ipynb": figure for figure in figures}


def with_generated_outputs(text: str, figure: FigureVerdicts) -> str:
    """Returns a notebook that shows the figure's verdicts and the code of one point, as they are now.

    Args:
        text: the notebook's file.
        figure: verdicts of the figure.
    """
    content = json.loads(text)
    for cell in content["cells"]:
        last = "".join(cell["source"]).rpartition("\n")[2]
        if last == "notebook.result(exp)":
            drawn = [output for output in cell["outputs"] if "text/markdown" not in output.get("data", {})]
            verdict, box = verdict_line(figure.sections), box_of(figure.experiment, figure.sections)
            cell["outputs"] = [_markdown_output(verdict), *drawn, _markdown_output(box)]
        elif last == "notebook.point(exp)":
            cell["outputs"] = [_markdown_output(point_text(figure.experiment))]
        elif last.startswith("notebook.recorded_tables(exp"):
            shown = [each["data"] for each in cell["outputs"] if _is_findings(each.get("data", {}))]
            for data, kept in zip(shown, recorded(figure.experiment.sweep.name), strict=False):
                data["text/markdown"] = findings_text(figure.experiment, kept.table, size=kept.size).splitlines(True)
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _is_findings(data: dict[str, Any]) -> bool:
    return "".join(data.get("text/markdown", [])).startswith("| statement | verdict |")


def _markdown_output(shown: str) -> dict[str, Any]:
    data = {"text/markdown": shown.splitlines(keepends=True), "text/plain": ["<IPython.core.display.Markdown object>"]}
    return {"data": data, "metadata": {}, "output_type": "display_data"}


def regenerated(text: str) -> str:
    """Returns a document with its generated parts made anew from what is recorded.

    Args:
        text: the document.

    Raises:
        ValueError: a marker names an unknown part.
    """
    return _PART.sub(lambda match: f"{match[1]}\n{_part(match['name'])}\n\n{match[3]}", text)


def summary() -> str:
    """The number of figures by verdict: one row per paper."""
    head = "| paper | figures and tables | smoke | real | paper | stated sizes met (real) |\n|---|--:|---|---|---|--:|"
    return "\n".join([head, *(paper_row(figures) for figures in _papers().values())])


def figures() -> str:
    """All figures: per paper, a table of verdicts that links to the paper's page."""
    return "\n\n".join(
        f"## {figures[0].experiment.paper}\n\n{figure_rows(figures, f'figures/{paper}.md')}"
        for paper, figures in _papers().items()
    )


def figures_of(paper: str) -> str:
    """The details of a paper's figures.

    Args:
        paper: name of the paper's folder.
    """
    return "\n\n".join(map(details, _papers()[paper]))


def benchmarks() -> str:
    """The numbers of the recorded benchmarks: per benchmark, one table for every processor, linked to its rows."""
    return "\n\n".join(part for experiment, tables in _benchmarks() for part in _benchmark(experiment, tables))


def speed() -> str:
    """The benchmarks that time DGL beside the library, in one table: the rows that together summarize all cases.

    Of a row that several processors measured, the one with the smallest median is shown.
    """
    found: list[pd.DataFrame] = []
    for experiment, tables in _benchmarks():
        for kept in (table for table in tables if "dgl_seconds" in table.table):
            found.append(_overall(experiment, kept).assign(on=_processor(kept)))
    ratios = [table[[*_RATIOS, "on"]] for table in found if {*_RATIOS} <= {*table}]
    if not ratios:
        return "No benchmark is recorded."
    rows: Any = pd.concat(ratios, ignore_index=True)
    same = rows.groupby("measured", sort=False)["median"]
    rows.loc[same.transform("size") == 1, "on"] += ", only"
    return markdown_table(rows.loc[same.idxmin()])


def _overall(experiment: Experiment, kept: Recorded) -> pd.DataFrame:
    """The first rows of a comparison, which summarize all cases; those after them are of some."""
    compared: Any = experiment.compare(kept.table)
    return compared[compared["cases"].cumsum() <= len(kept.table)]


_OF_PAPER = "figures-of-"
_PARTS: dict[str, Callable[[], str]] = {part.__name__: part for part in (summary, figures, benchmarks, speed)}


def _part(name: str) -> str:
    paper = name.removeprefix(_OF_PAPER)
    if name.startswith(_OF_PAPER) and paper in _papers():
        return figures_of(paper)
    if name not in _PARTS:
        known = [*_PARTS, *(f"{_OF_PAPER}{paper}" for paper in _papers())]
        raise ValueError(f"unknown generated part {name!r}; use one of {', '.join(known)}")
    return _PARTS[name]()


def _benchmark(experiment: Experiment, tables: list[Recorded]) -> list[str]:
    parts = [f"### {experiment.spec.title}"]
    for kept in tables:
        origin = f"[Rows](../{shown_path(kept.file)}), measured on {_origin(kept)}."
        parts += [origin, markdown_table(experiment.compare(kept.table))]
    return parts


def _processor(kept: Recorded) -> str:
    """The processor's name without what is the same for all of a maker's."""
    return re.sub(r"\(R\)| Processor|, \d+ cores", "", str(kept.about.get("device", "an unrecorded machine")))


def _origin(kept: Recorded) -> str:
    """Machine, threads, versions and date, as far as they were recorded."""
    about = {key: str(value) for key, value in kept.about.items() if value != "unknown"}
    versions = [f"{name} {about[f'version.{name}']}" for name in ("torch", "dgl") if f"version.{name}" in about]
    threads = [f"{about['threads']} threads"] if "threads" in about else []
    waiting = [] if about.get("openmp") == "default" else ["how OpenMP's threads waited not recorded"]
    return ", ".join([about.get("device", "an unrecorded machine"), *threads, *versions, about["date"], *waiting])


def _benchmarks() -> Iterator[tuple[Experiment, list[Recorded]]]:
    for name in experiment_names():
        if name.startswith(TIMINGS) and (tables := recorded(name)):
            yield load_experiment(name), tables


@cache
def _papers() -> dict[str, list[FigureVerdicts]]:
    """Paper to its figures' verdicts, in order; benchmarks are left out."""
    names = [name for name in experiment_names() if not name.startswith(BENCHMARKS)]
    papers = list(dict.fromkeys(name.partition("/")[0] for name in names))
    of = {paper: [load_experiment(name) for name in names if name.startswith(f"{paper}/")] for paper in papers}
    return {paper: verdicts(experiments, read_smoke_findings(paper)) for paper, experiments in of.items()}


def main() -> None:
    """Writes all generated parts."""
    parser = argparse.ArgumentParser(description="Generate the tables of README.md and docs/ from recorded results.")
    parser.add_argument("--smoke", action="store_true", help="run the smoke size first and record its findings")
    if parser.parse_args().smoke:
        for paper, figures in _papers().items():
            write_smoke_findings(paper, run_smoke([figure.experiment for figure in figures]))
        figures = list(map(load_experiment, experiment_names()))
        for paper in {figure.name.partition("/")[0] for figure in figures}:
            write_smoke_seconds(paper, smoke_seconds(f for f in figures if f.name.startswith(f"{paper}/")))
        _papers.cache_clear()
    for file in documents():
        write_file(file, regenerated(file.read_text(encoding="utf-8")))
    for file, figure in notebooks().items():
        old = file.read_text(encoding="utf-8")
        new = with_generated_outputs(old, figure)
        if json.loads(new) != json.loads(old):  # leaves the form of files alone
            write_file(file, new)


if __name__ == "__main__":
    main()
