"""Words of titles."""

from typing import Any


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
