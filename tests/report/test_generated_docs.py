"""The generated parts of README.md and docs/ are those of what is recorded now."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from workbench.experiment.experiment import Experiment
from workbench.experiment.recorded import Recorded
from workbench.paths import project_root
from workbench.report import generated_docs
from workbench.report.generated_docs import documents, notebooks, regenerated, with_generated_outputs


def test_documents_with_generated_parts() -> None:
    found = {file.relative_to(project_root()).as_posix() for file in documents()}
    assert found >= {"README.md", "docs/figures.md", "docs/figures/betty.md", "docs/performance.md"}


@pytest.mark.parametrize("file", documents(), ids=lambda file: file.name)
def test_generated_parts_are_up_to_date(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text == regenerated(text), f"{file.name} is out of date: run `make figures`"


def test_a_page_per_paper_and_all_links_between_them_resolve() -> None:
    docs = project_root() / "docs"
    pages = {file.stem: file.read_text(encoding="utf-8") for file in (docs / "figures").glob("*.md")}
    headings = {
        (paper, "".join(c for c in line[3:].lower() if c.isalnum() or c in " -_").replace(" ", "-"))
        for paper, text in pages.items()
        for line in text.splitlines()
        if line.startswith("## ")
    }
    linked = re.findall(r"\(figures/(\w+)\.md#([^)]+)\)", (docs / "figures.md").read_text(encoding="utf-8"))
    assert linked and set(linked) == headings


def test_no_page_shows_the_name_of_a_statement() -> None:
    known = {finding.name for figure in notebooks().values() for one in figure.sections for finding in one.findings}
    known = {name for name in known if "-" in name}
    for file in documents():
        shown = set(re.findall(r"`([\w.-]+)`", file.read_text(encoding="utf-8")))
        assert not shown & known, f"{file.name} shows {sorted(shown & known)}; use the statement's words"


def test_generated_outputs_of_notebooks_are_up_to_date() -> None:
    stale = []
    for file, figure in notebooks().items():
        text = file.read_text(encoding="utf-8")
        stale += [file.name] if json.loads(text) != json.loads(with_generated_outputs(text, figure)) else []
    assert not stale, "out of date: run `make figures`"


def test_only_the_marked_part_changes() -> None:
    text = "before\n<!-- generated: summary -->\nstale\n<!-- end of generated -->\nafter\n"
    new = regenerated(text)
    assert new.startswith("before\n<!-- generated: summary -->\n\n| paper |")
    assert new.endswith("\n\n<!-- end of generated -->\nafter\n") and "stale" not in new
    assert regenerated(new) == new


def test_an_unknown_part_is_an_error() -> None:
    with pytest.raises(ValueError, match=re.escape("unknown generated part 'sumary'; use one of summary, figures")):
        regenerated("<!-- generated: sumary -->\n<!-- end of generated -->")


def ratios(measured: str, median: float) -> pd.DataFrame:
    row = {"measured": measured, "cases": 2, "median": median, "from": 1.0, "to": 9.0, "spread": 0.1}
    return pd.DataFrame([row, {**row, "measured": f"{measured}: a part", "median": 0.5}])


def test_speed_is_that_of_the_weaker_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def table(name: str, device: str) -> Recorded:
        return Recorded(Path(name), {"device": device}, pd.DataFrame({"dgl_seconds": [1.0, 2.0]}))

    amd, intel = "AMD EPYC, 2 cores", "Intel(R) Xeon(R) Processor, 2 cores"
    medians = {"a": ratios("drawing", 3.0), "b": ratios("drawing", 2.5), "c": ratios("cutting", 4.0)}

    class Bench:
        def compare(self, rows: pd.DataFrame) -> pd.DataFrame:
            return medians[rows.attrs["name"]]

    def bench(**devices: str) -> tuple[Experiment, list[Recorded]]:
        tables = [table(name, device) for name, device in devices.items()]
        for each in tables:
            each.table.attrs["name"] = each.file.name
        return Bench(), tables  # pyright: ignore[reportReturnType]

    monkeypatch.setattr(generated_docs, "_benchmarks", lambda: iter([bench(a=amd, b=intel), bench(c=amd)]))
    rows = [line.strip("| ").split(" | ") for line in generated_docs.speed().splitlines()[2:]]
    assert [(row[0], float(row[2]), row[-1]) for row in rows] == [
        ("drawing", 2.5, "Intel Xeon"),
        ("cutting", 4.0, "AMD EPYC, only"),
    ]
