"""The HTML report: an overview, then every figure beside the paper's numbers, in one self-contained file."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path

from workbench import files
from workbench.experiment.figure_spec import SIZES
from workbench.experiment.finding import Finding
from workbench.report.latex import latex_table
from workbench.report.plotly_embed import caption, embed, least_width, plotly_js
from workbench.report.sections import SYMBOLS, Section, by_figure
from workbench.report.table_columns import Column, columns
from workbench.report.thumbnail import thumbnail

_MAX_COLUMNS, _MAX_WIDTH = 6, 600  # of a table, and pixels of a plot, to be placed side by side


@dataclass(frozen=True)
class _Shown:
    """A section and the derived values that the template needs."""

    section: Section
    anchor: str
    figure: str  # HTML
    caption: str
    least_width: int
    columns: tuple[Column, ...]
    latex: str = ""
    sketch: str = ""  # SVG

    @property
    def remarks(self) -> list[str]:
        """Remarks beside the status in the overview: missing points, findings that are not held, problems."""
        section = self.section
        parts = ["{} of {} points".format(*section.points)] if section.is_incomplete and section.points else []
        parts += [f"{finding.verdict}: {finding.statement}" for finding in (*section.not_held, *section.undecided)]
        count = len(section.problems)
        return parts + ([f"{count} problem{'s' * (count > 1)}"] if count else [])

    @property
    def side_by_side(self) -> bool:
        """Plot and table fit beside each other on a wide screen."""
        return bool(self.figure and 0 < len(self.columns) <= _MAX_COLUMNS and self.least_width <= _MAX_WIDTH)


def render(sections: Iterable[Section], *, title: str, made_at: str, summary: Mapping[str, str]) -> str:
    """Renders the page as HTML text that loads nothing from the network.

    Args:
        sections: runs and recorded tables; without any, the page explains how to run a figure.
        title: title of the page.
        made_at: date and time as shown.
        summary: further facts for the header (machine, versions, commit), keyed by their label.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    groups = by_figure(sections)
    shown = [[_shown(section, _anchor(group, section)) for section in group] for group in groups]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["slug"] = _slug
    environment.filters["sketch"] = _sketch
    return environment.from_string(_part("page.html.j2")).render(
        title=title,
        made_at=made_at,
        summary=summary,
        papers=_papers(shown),
        counts=_counts(groups),
        sizes=_sizes(groups),
        missed=_missed(shown),
        css=Markup(_part("page.css")),
        script=Markup(_part("page.js")),
        plotly=Markup(plotly_js()) if any(one.figure for group in shown for one in group) else "",
    )


def write(
    path: Path | str, sections: Iterable[Section], *, title: str, made_at: str, summary: Mapping[str, str]
) -> Path:
    """Renders the page and replaces the file atomically.

    Args:
        path: the HTML file; missing parent folders are created.
        sections: runs and recorded tables.
        title: title of the page.
        made_at: date and time as shown.
        summary: further facts for the header, keyed by their label.

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
    latex = Markup(latex_table(section.comparison)) if section.comparison is not None and numbers else ""
    if section.figure is None:
        return _Shown(section, anchor, "", "", 0, numbers)
    figure = Markup(embed(section.figure, f"{anchor}-figure"))
    text, sketch = caption(section.figure), Markup(thumbnail(section.figure, f"Sketch of {section.title}"))
    return _Shown(section, anchor, figure, text, least_width(section.figure), numbers, latex, sketch)


def _sketch(group: Sequence[_Shown]) -> str:
    """The picture of a figure in the gallery: of the largest size that was drawn."""
    return next((one.sketch for one in reversed(group) if one.sketch), "")


def _missed(shown: Iterable[Sequence[_Shown]]) -> list[tuple[_Shown, list[Finding]]]:
    """Sections of which a part of the claim did not hold, with these parts; seconds do not count."""
    found = [(one, [f for f in one.section.not_held if f.counts]) for group in shown for one in group]
    return [(one, findings) for one, findings in found if findings and not one.section.is_incomplete]


def _sizes(groups: Iterable[Sequence[Section]]) -> list[str]:
    return list(dict.fromkeys(size for _, size in sorted((SIZES.index(s.size), s.size) for g in groups for s in g)))


def _anchor(group: Sequence[Section], section: Section) -> str:
    """The id of a section, numbered if a figure has several of one size: run here and recorded, or on two devices."""
    same = [other for other in group if other.size == section.size]
    number = f"-{same.index(section) + 1}" if len(same) > 1 else ""
    return f"{_slug(section.name)}-{_slug(section.size)}{number}"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _papers(shown: Iterable[Sequence[_Shown]]) -> list[tuple[str, list[Sequence[_Shown]]]]:
    return [(paper, list(group)) for paper, group in groupby(shown, key=lambda group: group[0].section.paper)]


def _counts(groups: Iterable[Sequence[Section]]) -> list[tuple[str, str, int]]:
    """(symbol, status, count) of every status that occurs."""
    counts = Counter(section.status for group in groups for section in group)
    return [(symbol, status, counts[status]) for status, symbol in SYMBOLS.items() if counts[status]]


def _part(name: str) -> str:
    return resources.files("workbench.report").joinpath(name).read_text(encoding="utf-8")
