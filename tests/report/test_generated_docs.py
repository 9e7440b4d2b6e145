"""The generated parts of README.md and docs/ are those of what is recorded now."""

import json
import re
from pathlib import Path

import pytest

from workbench.paths import project_root
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
