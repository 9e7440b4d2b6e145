"""The HTML report: an overview, then every figure beside the paper's numbers, in one self-contained file."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

from workbench import files
from workbench.experiment.distance import ratio_words, with_ratios
from workbench.experiment.figure_spec import SIZES
from workbench.experiment.finding import IN_PART, NOT_HELD, Finding
from workbench.report.sections import SYMBOLS, Section, by_figure
from workbench.report.tables import Column, columns, latex_table

_MAX_COLUMNS, _MAX_WIDTH = 6, 600  # of a table, and pixels of a plot, to be placed side by side

_FIRST_MISSED = 8  # shown of what did not hold, the rest behind a fold


def caption(figure: Any) -> str:
    """Returns a figure's title as plain text; "" without a title.

    Args:
        figure: a plotly Figure.
    """
    whole = (figure.layout.meta or {}).get("title") if isinstance(figure.layout.meta, dict) else None
    text = re.sub(r"<br ?/?>", " · ", whole or figure.layout.title.text or "")
    return unescape(re.sub(r"<[^>]*>", "", text)).strip()


def least_width(figure: Any) -> int:
    """Returns the width in pixels below which a figure should scroll, so that its subplots remain legible.

    Args:
        figure: a plotly Figure.
    """
    starts = {round(axis.domain[0], 3) for axis in figure.select_xaxes() if axis.domain}
    return _COLUMN * max(1, len(starts))


@dataclass(frozen=True)
class _Shown:
    """A section and the derived values that the template needs."""

    section: Section
    anchor: str
    figure: str  # HTML
    caption: str
    least_width: int
    columns: tuple[Column, ...]
    apart: str  # range of the ratios of here to the paper; "" without any
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
        first_missed=_FIRST_MISSED,
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

    compared = None if section.comparison is None else with_ratios(section.comparison)
    numbers, apart = () if compared is None else tuple(columns(compared)), ratio_words(compared)
    latex = Markup(latex_table(section.comparison)) if section.comparison is not None and numbers else ""
    if section.figure is None:
        return _Shown(section, anchor, "", "", 0, numbers, apart)
    figure = Markup(embed(section.figure, f"{anchor}-figure"))
    from workbench.report.thumbnail import thumbnail  # imports plotly

    text, sketch = caption(section.figure), Markup(thumbnail(section.figure, f"Sketch of {section.title}"))
    return _Shown(section, anchor, figure, text, least_width(section.figure), numbers, apart, latex, sketch)


def _sketch(group: Sequence[_Shown]) -> str:
    """The picture of a figure in the gallery: of the largest size that was drawn."""
    return next((one.sketch for one in reversed(group) if one.sketch), "")


def _missed(shown: Iterable[Sequence[_Shown]]) -> list[tuple[_Shown, list[Finding]]]:
    """Sections with the status "did not hold" or "held in part", with the statements to which they owe it.

    The most surprising first: claims of which nothing held, large data, reasons not known. Seconds do not count.
    """
    of = [one for group in shown for one in group if one.section.status in (NOT_HELD, IN_PART)]
    found = [(one, [f for f in one.section.counted if _keeps_from_holding(f)]) for one in of]
    return sorted(found, key=_expected)


def _keeps_from_holding(finding: Finding) -> bool:
    return not finding.held and not finding.timed


def _expected(missed: tuple[_Shown, list[Finding]]) -> tuple[bool, int, bool]:
    one, findings = missed
    section = one.section
    explained = all(finding.name in section.deviations for finding in findings)
    return section.status != NOT_HELD, -SIZES.index(section.size), explained


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


_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}
_HEIGHT = 440  # pixels, for figures without a height of their own
_COLUMN = 300  # pixels, minimum width per column of subplots


def embed(figure: Any, name: str) -> str:
    """Returns the HTML of a place for an interactive figure and of its data, which a script of the page draws.

    The title is omitted: the page shows it as a caption, which wraps.

    Args:
        figure: a plotly Figure; not modified.
        name: id of the HTML element, unique in the page.
    """
    import plotly.graph_objects as go

    shown = go.Figure(figure)
    height = figure.layout.height or _HEIGHT
    shown.update_layout(
        title=None,
        width=None,
        autosize=True,
        height=height,
        font_family=figure.layout.font.family or figure.layout.template.layout.font.family or _FONT,
        margin=_margin(figure),
    )
    data = f'{{"config":{json.dumps(_CONFIG)},{_in_a_script(str(shown.to_json()))[1:]}'
    place = f'<div class="plot" id="{name}" style="height: {height:.0f}px"></div>'
    return f'{place}<script type="application/json" id="{name}-data">{data}</script>'


def _in_a_script(text: str) -> str:
    """JSON that ends no script element, whatever its strings contain."""
    return text.replace("<", "\\u003c")


def _margin(figure: Any) -> dict[str, int]:
    """Margins that neither the author nor the template sets; subplot titles stay below the mode bar."""
    ours = {"l": 64, "r": 16, "t": 60 if figure.layout.annotations else 36, "b": 56}
    said = (figure.layout.margin, figure.layout.template.layout.margin)
    return {side: value for side, value in ours.items() if all(margin[side] is None for margin in said)}


def plotly_js() -> str:
    """Returns the source of plotly.js, which every embedded figure requires."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()
