"""The page: an overview, then every figure beside the paper's numbers; one file that needs no network."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path

from workbench import files
from workbench.report.cells import Column, columns
from workbench.report.figures import caption, embed, least_width, plotly_js
from workbench.report.sections import SYMBOLS, Section, by_figure

_MOST_COLUMNS, _WIDEST = 6, 600  # of a table, and pixels that a plot needs, for standing beside each other


@dataclass(frozen=True)
class _Shown:
    """A section with what the template needs of it."""

    section: Section
    anchor: str
    figure: str  # HTML
    caption: str
    least_width: int
    columns: tuple[Column, ...]

    @property
    def complaints(self) -> list[str]:
        """What a reader of the overview must know beside the status."""
        section = self.section
        parts = ["{} of {} points".format(*section.points)] if section.is_incomplete and section.points else []
        parts += [f"{finding.verdict}: {finding.name}" for finding in section.not_held]
        count = len(section.problems)
        return parts + ([f"{count} problem{'s' * (count > 1)}"] if count else [])

    @property
    def beside(self) -> bool:
        """Plot and table have room beside each other on a wide screen."""
        return bool(self.figure and 0 < len(self.columns) <= _MOST_COLUMNS and self.least_width <= _WIDEST)


def render(sections: Iterable[Section], *, title: str, made_at: str, summary: Mapping[str, str]) -> str:
    """The whole page as text; it loads nothing from anywhere.

    Args:
        sections: what was run and what is recorded; none gives a page that says how to run something.
        title: of the page.
        made_at: when, for people.
        summary: further facts for the top (machine, versions, commit), by the words shown.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    groups = by_figure(sections)
    shown = [[_shown(section, _anchor(group, section)) for section in group] for group in groups]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["slug"] = _slug
    return environment.from_string(_part("page.html.j2")).render(
        title=title,
        made_at=made_at,
        summary=summary,
        papers=_papers(shown),
        counts=_counts(groups),
        css=Markup(_part("page.css")),
        script=Markup(_part("page.js")),
        plotly=Markup(plotly_js()) if any(one.figure for group in shown for one in group) else "",
    )


def write(
    path: Path | str, sections: Iterable[Section], *, title: str, made_at: str, summary: Mapping[str, str]
) -> Path:
    """Write the page, whole or not at all: readers of an older one keep it until the new one is there.

    Args:
        path: of the page; its folders are made.
        sections: see `render`.
        title: likewise.
        made_at: likewise.
        summary: likewise.

    Returns:
        The path.
    """
    path = Path(path)
    text = render(sections, title=title, made_at=made_at, summary=summary)
    files.remove_unfinished(path.parent)
    files.write_file(path, text)
    return path


def _shown(section: Section, anchor: str) -> _Shown:
    from markupsafe import Markup

    numbers = () if section.comparison is None else tuple(columns(section.comparison))
    if section.figure is None:
        return _Shown(section, anchor, "", "", 0, numbers)
    figure = Markup(embed(section.figure, f"{anchor}-figure"))
    return _Shown(section, anchor, figure, caption(section.figure), least_width(section.figure), numbers)


def _anchor(group: Sequence[Section], section: Section) -> str:
    """One size may stand there twice, run here and recorded, or recorded on two devices."""
    same = [other for other in group if other.size == section.size]
    number = f"-{same.index(section) + 1}" if len(same) > 1 else ""
    return f"{_slug(section.name)}-{_slug(section.size)}{number}"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _papers(shown: Iterable[Sequence[_Shown]]) -> list[tuple[str, list[Sequence[_Shown]]]]:
    return [(paper, list(group)) for paper, group in groupby(shown, key=lambda group: group[0].section.paper)]


def _counts(groups: Iterable[Sequence[Section]]) -> list[tuple[str, str, int]]:
    """Symbol, status and how often, of those that occur."""
    counts = Counter(section.status for group in groups for section in group)
    return [(symbol, status, counts[status]) for status, symbol in SYMBOLS.items() if counts[status]]


def _part(name: str) -> str:
    return resources.files("workbench.report").joinpath(name).read_text(encoding="utf-8")
