"""Collects the pages of the documentation site: `python docs/site/pages.py FOLDER`, then mkdocs makes HTML of them.

The repository's own documents are copied, with links between them kept; executed notebooks become pages with their
static figures; the gallery, the command line and the API are generated. Nothing is executed and no network is needed.
"""

import ast
import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path, PurePosixPath

import click
import nbformat
import yaml
from nbconvert import MarkdownExporter

from workbench.cli import command as cli

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!`)\]\((?P<target>[^)\s]+)\)")
PAPERS = {
    "betty": "Betty",
    "cooperative": "Cooperative Minibatching",
    "batchgnn": "BatchGNN",
    "data_placement": "Rethinking Graph Data Placement",
    "mariusgnn": "MariusGNN",
}


def collect(out: Path) -> None:
    """Write all pages to an empty folder."""
    sources = [one for one in (ROOT / "notebooks").rglob("*.ipynb") if one.parent.name != ".ipynb_checkpoints"]
    figures = [figure for source in sorted(sources) if (figure := notebook(source, out))]
    pictures = {page: picture for _, page, picture in figures}
    for source, page in documents():
        text = linked(source.read_text(encoding="utf-8"), source, page, out)
        write(out / page, with_picture(text, page, pictures))
    write(out / "gallery.md", gallery(figures))
    write(out / "command_line.md", command_line())
    api = dict(api_pages())
    for name, text in api.items():
        write(out / name, text)
    write(out.parent / "mkdocs.yml", configuration(out, list(api), [page for _, page, _ in figures]))
    for folder in ("images", "site/assets"):
        if (ROOT / "docs" / folder).is_dir():
            shutil.copytree(ROOT / "docs" / folder, out / PurePosixPath(folder).name, dirs_exist_ok=True)


def documents() -> Iterator[tuple[Path, PurePosixPath]]:
    """Documents of the repository, each with its page."""
    yield ROOT / "README.md", PurePosixPath("index.md")
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        yield ROOT / name, PurePosixPath(name.lower())
    for source in sorted((ROOT / "docs").rglob("*.md")):
        yield source, PurePosixPath(source.relative_to(ROOT / "docs").as_posix())


def page_of(file: Path) -> PurePosixPath | None:
    """The page that a file of the repository becomes; None: it is none."""
    pages = dict(documents())
    if file in pages:
        return pages[file]
    if file.suffix == ".ipynb":
        return PurePosixPath(file.relative_to(ROOT).with_suffix(".md").as_posix())
    if file.is_relative_to(ROOT / "docs" / "images"):
        return PurePosixPath(file.relative_to(ROOT / "docs").as_posix())
    return None


def linked(text: str, source: Path, page: PurePosixPath, out: Path) -> str:
    """Text whose links lead to pages of the site; other files of the repository are copied beside them."""

    def replaced(match: re.Match[str]) -> str:
        target, hash_, anchor = match["target"].partition("#")
        file = (source.parent / target).resolve()
        if re.match(r"\w+:", match["target"]) or not target or not file.exists():
            return match[0]
        found = page_of(file)
        if found is None and file.is_dir():
            found = listing(file, out)
        elif found is None:
            found = PurePosixPath("files", file.relative_to(ROOT).as_posix())
            write_copy(file, out / found)
        return f"]({os.path.relpath(found, page.parent)}{hash_}{anchor})"

    return LINK.sub(replaced, text)


def with_picture(text: str, page: PurePosixPath, pictures: dict[PurePosixPath, str]) -> str:
    """Text with a notebook's figure above the line "Picture: [title](notebook)"."""

    def replaced(match: re.Match[str]) -> str:
        notebook = PurePosixPath(os.path.normpath(page.parent / match["target"]))
        if notebook not in pictures:
            return match[0]
        picture = os.path.relpath(pictures[notebook], page.parent)
        return f"[![{match['title']}]({picture})]({match['target']})\n\n{match[0]}"

    return re.sub(r"^Picture: \[(?P<title>[^\]]+)\]\((?P<target>[^)]+)\)", replaced, text, flags=re.MULTILINE)


def listing(folder: Path, out: Path) -> PurePosixPath:
    """The page of a folder: its files."""
    page = PurePosixPath("files", folder.relative_to(ROOT).as_posix(), "index.md")
    lines = ""
    for file in sorted(file for file in folder.iterdir() if file.is_file() and file.suffix != ".pyc"):
        found = page_of(file) or page.parent / file.name
        if found.parent == page.parent:
            write_copy(file, out / found)
        lines += f"- [{file.stem}]({os.path.relpath(found, page.parent)})\n"
    write(out / page, f"# {folder.relative_to(ROOT)}\n\n{lines}")
    return page


def notebook(source: Path, out: Path) -> tuple[str, PurePosixPath, str] | None:
    """Write a notebook's page; return its title, the page and the figure that shows it, if it has one."""
    page = PurePosixPath(source.relative_to(ROOT).with_suffix(".md").as_posix())
    cells = nbformat.read(source, as_version=4)
    body, resources = MarkdownExporter().from_notebook_node(cells, {"output_files_dir": f"{source.stem}_files"})
    for name, data in resources["outputs"].items():
        file = out / page.parent / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    body = re.sub(r"^<div>\n<style scoped>.*?</style>\n", "<div>\n", body, flags=re.DOTALL | re.MULTILINE)
    body = re.sub(r"^    (FigureWidget|VBox|HBox|interactive)\(.*$", "", body, flags=re.MULTILINE)
    write(out / page, linked(body, source, page, out))
    title = re.search(r"^# (.+)$", body, re.MULTILINE)
    pictures = [name for name in resources["outputs"] if name.endswith((".png", ".svg"))]
    if not pictures or title is None:
        return None
    return title[1], page, str(page.parent / _picture(cells, pictures))


def _picture(cells: nbformat.NotebookNode, pictures: list[str]) -> str:
    """Of a notebook's pictures, the one of its recorded table, else of its own run, else the first."""
    of_cells = {re.sub(r".*_(\d+)_\d+\.\w+$", r"\1", name): name for name in reversed(pictures)}
    for last in ("notebook.result(exp)", "exp.draw(table)"):
        for number, cell in enumerate(cells.cells):
            if cell.source.endswith(last) and str(number) in of_cells:
                return of_cells[str(number)]
    return pictures[0]


def gallery(figures: list[tuple[str, PurePosixPath, str]]) -> str:
    """A page with the figure of every notebook, by paper."""
    parts = [
        "# Gallery\n\nThe figures as recorded on real graphs or large stand-ins, else as their notebooks ran them; "
        "each leads to its notebook.\n"
    ]
    for folder, paper in PAPERS.items():
        own = [figure for figure in figures if figure[1].parts[1] == folder]
        if own:
            parts.append(f"## {paper}\n\n<div class='gallery' markdown>\n")
            parts += [f"[![{title}]({picture}){{ loading=lazy }} {title}]({page})\n" for title, page, picture in own]
            parts.append("</div>\n")
    return "\n".join(parts)


def command_line() -> str:
    """The help of every command."""
    parts = ["# Command line\n\nThe installed command is `workbench`; its help texts:\n"]
    for path, command in commands(cli, ("workbench",)):
        context = click.Context(command, info_name=" ".join(path), max_content_width=100, terminal_width=100)
        parts.append(f"{'#' * (1 + len(path))} `{' '.join(path)}`\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A command and those below it."""
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            if found is not None and not found.hidden:
                yield from commands(found, (*path, name))


def api_pages() -> Iterator[tuple[str, str]]:
    """A page per package: what it is, and its public names, whose docstrings the site reads from the source."""
    packages: dict[str, list[tuple[str, str]]] = {}
    stubs = [ROOT / "workbench" / "__init__.pyi", *sorted((ROOT / "workbench").glob("*/__init__.pyi"))]
    for stub in stubs:
        home = stub.relative_to(ROOT).parent.as_posix().replace("/", ".")
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                module = f"{home}.{node.module}"
                found = packages.setdefault(module.split(".")[1], [])
                found.extend((f"{module}.{a.name}", f"{home.replace('workbench', 'wb')}.{a.name}") for a in node.names)
    for package, names in sorted(packages.items()):
        names.sort(key=lambda name: name[0].rpartition(".")[2].lower())
        index = ", ".join(f"`{public}`" for _, public in names)
        sections = "\n\n".join(f"::: {name}" for name, _ in names)
        about = inspect.getdoc(import_module(f"workbench.{package}"))
        yield f"api/{package}.md", f"# workbench.{package}\n\n{about}\n\nPublic names: {index}.\n\n{sections}\n"


def configuration(out: Path, api: list[str], notebooks: list[PurePosixPath]) -> str:
    """The configuration of mkdocs with all pages in its navigation."""
    options = yaml.safe_load((ROOT / "docs" / "site" / "mkdocs.yml").read_text(encoding="utf-8"))
    figures = [
        {paper: [f"figures/{folder}.md", *(str(p) for p in notebooks if p.parts[1] == folder)]}
        for folder, paper in PAPERS.items()
    ]
    tutorials = sorted(p.relative_to(out).as_posix() for p in (out / "notebooks").glob("*.md"))
    concepts = sorted(p.relative_to(out).as_posix() for p in (out / "concepts").glob("*.md"))
    develop = sorted(p.relative_to(out).as_posix() for p in (out / "develop").glob("*.md"))
    chapters = ["guide", "scripts", "advisor", "samplers", "features", "ranks", "training_from_disk", "link_prediction"]
    pages = ("coming_from", "tasks", *chapters, "data", "experiments", "layers", "performance")
    guide = [f"{page}.md" for page in pages]
    options["nav"] = [
        {"Start": "index.md"},
        {"Tutorials": tutorials},
        {"Guide": guide},
        {"Concepts": concepts},
        {"Gallery": "gallery.md"},
        {"Figures": ["figures.md", *figures]},
        {"Command line": "command_line.md"},
        {"API": api},
        {"Project": ["contributing.md", *develop, "changelog.md"]},
    ]
    options["docs_dir"], options["site_dir"] = out.name, "docs"
    options["plugins"] = [_with_source(plugin) for plugin in options["plugins"]]
    text = yaml.safe_dump(options, sort_keys=False, allow_unicode=True)
    return text.replace(
        "slugify: github", "slugify: !!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}"
    )


def _with_source(plugin: object) -> object:
    """Tell the API generator where the package is."""
    if isinstance(plugin, dict) and "mkdocstrings" in plugin:
        plugin["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT)]
    return plugin


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def write_copy(file: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copy)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    collect(folder)
