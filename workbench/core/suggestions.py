"""\"Did you mean\": the known name that a mistyped one resembles."""

from collections.abc import Iterable
from difflib import get_close_matches

_SIMILARITY = 0.6  # of difflib, from 0 to 1


def did_you_mean(value: object, choices: Iterable[str]) -> str:
    """Asks about the name that was probably meant; "" if none is similar.

    Case is ignored, and so are differences between "_" and "-". A name that is the part of exactly one choice after its
    "/" is that one.

    Args:
        value: the name that was given.
        choices: known names.

    >>> did_you_mean("REG", ["metis", "reg"]), did_you_mean("fig5b", ["betty/fig2", "cooperative/fig5b"])
    ("did you mean 'reg'?", "did you mean 'cooperative/fig5b'?")
    >>> did_you_mean("xyz", ["metis", "reg"])
    ''
    """
    known = list(dict.fromkeys(choices))
    by_key = {_key(choice): choice for choice in reversed(known)}
    suffixes = [choice for choice in known if _key(choice.rpartition("/")[2]) == _key(value)]
    found = get_close_matches(_key(value), by_key, n=1, cutoff=_SIMILARITY)
    meant = [by_key[key] for key in found] if _key(value) in by_key or not suffixes else suffixes
    return f"did you mean {' or '.join(map(repr, meant))}?" if meant else ""


def unknown(what: str, value: object, choices: Iterable[str], *, most: int = 12) -> str:
    """Says that a name is not known, which names are, unless they are many, and which was probably meant.

    Args:
        what: kind of the name, such as "method".
        value: the name that was given.
        choices: known names.
        most: longest list of names to print.

    >>> unknown("method", "metsi", ["metis", "reg"])
    "method 'metsi' is not known; choose from metis, reg; did you mean 'metis'?"
    """
    known = list(choices)
    meant = did_you_mean(value, known)
    if len(known) <= most:
        return f"{what} {value!r} is not known; choose from {', '.join(known) or 'none'}" + (
            f"; {meant}" if meant else ""
        )
    return f"{what} {value!r} is not known; {meant or f'there are {len(known)}, such as ' + ', '.join(known[:3])}"


def _key(name: object) -> str:
    return str(name).lower().replace("_", "-")
