"""mkdocs hook: formulas between dollar signs become MathML, which browsers draw without scripts."""

import re
from typing import Any

from latex2mathml.converter import convert

_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
_DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
_INLINE = re.compile(r"(?<![\\$\w])\$(?![\s$])([^$\n]+?)(?<!\s)\$(?![\w$])")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace formulas outside of code."""
    parts = _CODE.split(markdown)
    parts[::2] = [_INLINE.sub(_inline, _DISPLAY.sub(_display, part)) for part in parts[::2]]
    return "".join(parts)


def _inline(match: re.Match[str]) -> str:
    return convert(match[1])


def _display(match: re.Match[str]) -> str:
    return convert(match[1].strip(), display="block")
