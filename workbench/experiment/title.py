"""Titles of figures whose numbers are measured: each tells the ends of its values over all cases."""

from typing import Any

import pandas as pd

from workbench.experiment.wording import from_to


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
