"""\"Did you mean\": the known name that a mistyped one resembles."""

from collections.abc import Iterable
from difflib import get_close_matches

_SIMILARITY = 0.6  # of difflib, from 0 to 1


def did_you_mean(value: object, choices: Iterable[str]) -> str:
    """Asks about the name that was probably meant; "" if none is similar.

    Case is ignored, and so are differences between "_" and "-". A name without "/" may be that after a choice's "/".

    Args:
        value: the name that was given.

    >>> did_you_mean("REG", ["metis", "reg"]), did_you_mean("fig5b", ["betty/fig2", "cooperative/fig5b"])
    ("did you mean 'reg'?", "did you mean 'cooperative/fig5b'?")
    >>> did_you_mean("tabel6", ["betty/fig2", "betty/table6"]), did_you_mean("xyz", ["metis", "reg"])
    ("did you mean 'betty/table6'?", '')
    """
    known = list(dict.fromkeys(choices))
    keys: dict[str, list[str]] = {}
    for choice in known:
        ends = {_key(choice)} if "/" in str(value) else {_key(choice), _key(choice.rpartition("/")[2])}
        for key in ends:
            keys.setdefault(key, []).append(choice)
    found = get_close_matches(_key(value), keys, n=1, cutoff=_SIMILARITY)
    meant = keys[found[0]] if found else []
    return f"did you mean {' or '.join(map(repr, meant))}?" if meant else ""


def unknown(what: str, value: object, choices: Iterable[str], *, most: int = 12) -> str:
    """Says that a name is not known, which names are, unless they are many, and which was probably meant.

    Args:
        what: kind of the name, such as "method".
        value: the name that was given.
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
