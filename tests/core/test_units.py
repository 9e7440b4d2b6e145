"""Formatting and parsing of sizes."""

import pytest
from hypothesis import example, given, strategies as st

from workbench.core.units import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1024**2 - 1, "1.00 MiB"),
        (-1536, "-1.50 KiB"),
        (8 * 2**30, "8.00 GiB"),
        (5000 * 2**40, "5000.00 TiB"),
    ],
)
def test_format(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("12", 12), ("12 B", 12), (" 1.5KiB ", 1536), ("8GiB", 8 * 2**30), ("2 TiB", 2**41), ("1e3", 1000)]
    + [("8GB", 8 * 10**9), ("500 MB", 5 * 10**8), ("1.5 kB", 1500), ("2TB", 2 * 10**12)],
)
def test_parse(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "8Gb", "8 gib", "eight", "1 KiB KiB"])
def test_parse_rejects_other_text(text):
    with pytest.raises(ValueError, match=f"{text!r} is not a number of bytes; write 8GiB"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1e400 KiB"])
def test_parse_rejects_negative_and_infinite_sizes(text):
    with pytest.raises(ValueError, match="must be finite and not negative"):
        parse_bytes(text)


@given(count=st.integers(0, 2**50))
@example(count=1111)  # formatted as 1.08 KiB, which is off by 0.54 %
def test_parse_inverts_format(count):
    text = format_bytes(count)
    unit = parse_bytes(f"1 {text.split()[1]}")
    assert abs(parse_bytes(text) - count) <= 0.005 * unit + 1  # two decimals, and whole bytes
