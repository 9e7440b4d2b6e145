"""Units for readers: inside the library everything is bytes and seconds."""

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def format_bytes(count: float) -> str:
    """Bytes with a binary unit.

    >>> format_bytes(1536)
    '1.50 KiB'
    """
    value = float(count)
    for unit in _BINARY[:-1]:
        if abs(round(value, 2)) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1024
    return f"{value:.2f} {_BINARY[-1]}"


def parse_bytes(text: str) -> int:
    """Bytes from a number with an optional binary unit.

    Raises:
        ValueError: not such a number.

    >>> parse_bytes("8GiB") == 8 * 2**30
    True
    """
    stripped = text.strip()
    unit = next((unit for unit in reversed(_BINARY) if stripped.endswith(unit)), "")
    try:
        value = float(stripped.removesuffix(unit)) * 1024 ** (_BINARY.index(unit) if unit else 0)
    except ValueError:
        raise ValueError(f"{text!r} is not a number of bytes; write 8GiB, 512 MiB or a plain number") from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} is not a number of bytes; it must be finite and not negative")
    return int(value)
