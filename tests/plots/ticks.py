"""Reads the texts of ticks."""


def shown_number(text: str) -> float:
    """The number that the text of a tick on a logarithmic axis shows.

    >>> shown_number("0.3"), shown_number("20k"), shown_number("1.5M")
    (0.3, 20000.0, 1500000.0)
    """
    factor = {"k": 1e3, "M": 1e6}.get(text[-1])
    return float(text) if factor is None else float(text[:-1]) * factor
