"""README.md, CONTRIBUTING.md and docs/: every Python example runs as a script, and every link leads to a file."""

import inspect
import pkgutil
import re
import runpy
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from types import CodeType

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import workbench

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPTIONAL = ["dgl", "torch_geometric"]
MAX_README_LINES, MAX_CONTRIBUTING_LINES, MAX_PICTURE_BYTES = 165, 105, 150_000
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def examples() -> dict[str, tuple[str, CodeType]]:
    """By page and line: source and code of each example; tracebacks show the page's own lines."""
    found = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            line = text.count("\n", 0, match.start(1))
            found[f"{page.stem}:{line + 1}"] = match[1], compile("\n" * line + match[1], str(page), "exec")
    return found


def test_readme_and_guide_have_examples():
    pages = [name.partition(":")[0] for name in examples()]
    assert pages.count("README") >= 1 and pages.count("guide") >= 5


@pytest.mark.parametrize(("source", "code"), examples().values(), ids=examples())
def test_example_runs(source, code):
    for library in OPTIONAL:
        if re.search(rf"^\s*(import|from) {library}\b", source, re.MULTILINE):
            pytest.importorskip(library)
    exec(code, {"__name__": "__main__"})


def test_the_advice_in_the_readme_is_what_its_program_prints(capsys):
    """But for seconds, which the machine decides."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    program, table = re.findall(r"^```(?:python|text)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[:2]
    exec(program, {"__name__": "__main__"})
    row = re.compile(r"^(.+?) {2,}(yes|no) +([\d.]+ \w+) +([\d.]+ \w+) ", re.MULTILINE)
    told, printed = row.findall(table), row.findall(capsys.readouterr().out)
    assert len(told) >= 3 and {*told} <= {*printed}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_example_has_both_of_its_fences(page):
    fences = re.findall(r"^ *```(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert all(fences[::2]) and not any(fences[1::2]) and len(fences) % 2 == 0, "an opening fence names a language"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_to_files_and_headings(page):
    text = re.sub(r"`[^`\n]+`(?!\])", "", page.read_text(encoding="utf-8"))  # `a[i](b)` is code; [`a`](b) is a link
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_the_library_exist(page):
    """Those in running text too, which no example runs."""
    unknown = []
    for name in set(re.findall(r"\b(?:wb|workbench)(?:\.[A-Za-z]\w*)+", page.read_text(encoding="utf-8"))):
        try:
            pkgutil.resolve_name(re.sub(r"^wb\b", "workbench", name))
        except (AttributeError, ImportError):
            unknown.append(name)
    assert not unknown


def anchors(page):
    """Anchors of a page's headings, as git hosts make them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_readme_fits_on_three_screens():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MAX_README_LINES


def test_contributing_fits_on_two_screens_and_leads_to_every_page_of_the_developers():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_CONTRIBUTING_LINES
    assert max(map(len, text.splitlines())) <= 120
    pages = {f"docs/develop/{page.name}" for page in (ROOT / "docs" / "develop").glob("*.md")}
    assert pages == set(re.findall(r"\]\((docs/develop/\w+\.md)\)", text))


def test_the_map_is_the_tree_of_packages_in_the_order_of_their_layers():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (tree,) = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    floors = [line.split("  ")[0].split(" | ") for line in tree.splitlines() if not line.startswith(" ")]
    (layers,) = [one["layers"] for one in PROJECT["tool"]["importlinter"]["contracts"] if "layers" in one]
    assert floors == [re.sub(r"[()]", "", layer).split(" | ") for layer in reversed(layers)]
    described = re.findall(r"^  (\w+)  ", tree, re.MULTILINE)
    several = [floor for floor in floors if len(floor) > 3 and "files" not in floor]
    assert described == [name for floor in several for name in floor], "each with a line of its own"


def test_the_changelog_begins_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)[:2] == ["Unreleased", PROJECT["project"]["version"]]


def test_pictures_are_drawn_from_recorded_tables():
    figure = runpy.run_path(str(ROOT / "docs" / "pictures.py"))["peak_memory"]()
    assert len(figure.data) == 4 and all(len(trace.x) > 1 for trace in figure.data)


def test_pictures_are_small():
    assert all(picture.stat().st_size <= MAX_PICTURE_BYTES for picture in (ROOT / "docs" / "images").glob("*.png"))


def test_pages_of_the_site_link_to_each_other(tmp_path):
    """All documents and notebooks become pages; every link of theirs leads to a page or a file that is copied."""
    pytest.importorskip("nbconvert")
    pages = runpy.run_path(str(ROOT / "docs" / "site" / "pages.py"))
    pages["collect"](tmp_path / "pages")
    found = sorted((tmp_path / "pages").rglob("*.md"))
    names = {page.relative_to(tmp_path / "pages").as_posix() for page in found}
    assert {"index.md", "gallery.md", "command_line.md", "concepts/betty.md", "api/sampling.md"} <= names
    navigation = (tmp_path / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(name in navigation for name in names if name.startswith("develop/"))
    notebooks = [*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "notebooks").glob("[!.]*/*.ipynb")]
    assert len([name for name in names if name.startswith("notebooks/")]) == len(notebooks), "no checkpoints"
    for page in found:
        text = re.sub(r"```.*?```|`[^`\n]+`(?!\])", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s#]+)", text):
            assert re.match(r"\w+:", target) or (page.parent / target).exists(), f"{page.name} links to {target}"


def test_names_in_the_pages_by_task_and_by_library_exist_and_are_complete():
    pages = {page: (ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("tasks.md", "coming_from.md")}
    named = {page: set(re.findall(r"\bwb\.([\w.]+\w)", text)) for page, text in pages.items()}
    for name in set().union(*named.values()):
        found = workbench
        for part in name.split("."):
            found = getattr(found, part)
    packages = {name for name in workbench.__all__ if inspect.ismodule(getattr(workbench, name))}
    assert {*workbench.__all__} - packages - {"__version__"} <= named["tasks.md"]


def test_pinned_versions_install_on_the_oldest_python_that_the_project_accepts():
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=") + ".0"
    pinned = {
        canonicalize_name(line.partition("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    refused = [
        f"{distribution.name} {distribution.version} needs Python {needed}"
        for distribution in distributions()
        if canonicalize_name(distribution.name) in pinned
        for needed in distribution.metadata.get_all("Requires-Python") or ()
        if not SpecifierSet(needed).contains(oldest)
    ]
    assert not refused
