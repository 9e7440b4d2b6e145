"""Words of titles and of evidence."""

from collections.abc import Sequence
from typing import Any

from workbench.core.units import format_bytes

_CASES = {
    "num_parts": "K = {}",
    "num_ranks": "{} ranks",
    "num_pes": "{} PEs",
    "num_partitions": "p = {}",
    "num_groups": "l = {}",
    "num_logical": "l = {}",
    "capacity": "c = {}",
    "num_layers": "{} layers",
    "threads": "{} threads",
    "batch_size": "batches of {}",
}
_NAMES = ("dataset", "graph", "panel", "model", "method", "system", "sampler", "encoder", "case")  # need no word before


def case_words(by: Sequence[str], at: Any) -> str:
    """Describe a case.

    Args:
        by: columns that identify a case.
        at: their values, a tuple, or the value of the only one.

    >>> case_words(["dataset", "num_parts", "buffer_share"], ("ogbn-arxiv", 4, 0.2))
    'ogbn-arxiv, K = 4, buffer share 0.2'
    >>> case_words(["num_ranks"], 1), case_words(["num_ranks"], 2)
    ('1 rank', '2 ranks')
    """
    values = at if isinstance(at, tuple) else (at,)
    return ", ".join(_case_word(name, value) for name, value in zip(by, values, strict=True))


def _case_word(name: str, value: Any) -> str:
    form = "{}" if name in _NAMES else _CASES.get(name, plain(name) + " {}")
    form = form.removesuffix("s") if str(value) == "1" and form.startswith("{} ") else form
    return form.format(plain(str(value)))


def plain(name: str) -> str:
    """The name of a column or a method without underscores."""
    return name.replace("_", " ").strip()


def quantity(value: float, column: str) -> str:
    """Format a value in the unit that its column's name ends in.

    >>> quantity(1536, "peak_bytes"), quantity(0.25, "epoch_seconds"), quantity(56420, "rows")
    ('1.50 KiB', '0.25 s', '56,420')
    """
    if column.endswith("bytes"):
        return format_bytes(value)
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{text} s" if column.endswith("seconds") else text


def from_to(values: Any, form: str) -> str:
    """Format the range of some values, or the one number that both ends are.

    Args:
        values: numbers, at least one.
        form: format of a number.

    >>> from_to([0.5, 0.75], ".0%"), from_to([0.501, 0.504], ".0%")
    ('50% to 75%', '50%')
    """
    low, high = (format(number, form) for number in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
