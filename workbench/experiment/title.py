"""Titles of figures whose numbers are measured, each the ends of its values over all cases; and words of evidence."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

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


class Cases:
    """A number of a title, measured in every case that the figure shows: formatted as the range of all, so that a
    title says what the weakest case says. A NaN in one of them is seen.

    Args:
        values: one per case, indexed by the columns that identify it; booleans are counted.

    >>> "{:.0%}, {:.1f}".format(Cases(pd.Series([0.5, 0.75])), Cases(pd.Series([2.0, 2.01])))
    '50% to 75%, 2.0'
    >>> "{}, at most {.most:g}".format(Cases(pd.Series([True, False])), Cases(pd.Series([3, 4])))
    '1 of 2, at most 4'
    """

    def __init__(self, values: pd.Series) -> None:
        self.values = values

    @property
    def least(self) -> float:
        """The smallest value."""
        return float(self.values.min(skipna=False))

    @property
    def most(self) -> float:
        """The largest value."""
        return float(self.values.max(skipna=False))

    def __format__(self, form: str) -> str:
        if self.values.dtype == bool:
            return f"{self.values.sum()} of {len(self.values)}"
        return from_to([self.least, self.most], form)


class Title:
    """A figure's title. Its text has no number of its own: all are fields, filled with what the table says.

    Args:
        template: text with fields in braces. A field of a series formats as the range over its cases,
            `{field.most:.1f}` as the largest, `{field.least:.1f}` as the smallest; one of booleans as "3 of 4".
        **numbers: by field, a series with one value per case, indexed by the columns that identify it; or a number of
            the configuration.

    >>> Title("REG reads {times:.2f} times the inputs", times=pd.Series([0.914, 1.137])).text
    'REG reads 0.91 to 1.14 times the inputs'
    """

    def __init__(self, template: str, **numbers: Any) -> None:
        self.template = template
        self.numbers = numbers

    @property
    def text(self) -> str:
        """The title, or "" if a field has no case: there is nothing to say."""
        if any(not len(values) for values in self.series.values()):
            return ""
        cases = {name: Cases(values) for name, values in self.series.items()}
        return self.template.format(**{**self.numbers, **cases})

    @property
    def series(self) -> dict[str, pd.Series]:
        """The fields that have a value per case."""
        return {name: value for name, value in self.numbers.items() if isinstance(value, pd.Series)}
