"""Bars by term: heights, shares, what is left out; every term has a look of its own."""

from workbench.memory.record import TERMS
from workbench.plots.style import PALETTE
from workbench.plots.terms import TERM_LOOKS, term_bars

MIB = 2**20


def test_every_term_can_be_told_from_the_others() -> None:
    assert tuple(TERM_LOOKS) == TERMS
    marks = [(look.color, look.hatch) for look in TERM_LOOKS.values()]
    assert len(set(marks)) == len({look.name for look in TERM_LOOKS.values()}) == len(TERMS)
    assert {color for color, _ in marks} <= set(PALETTE)


def test_a_trace_a_term_in_order_without_those_that_are_nothing() -> None:
    bars = term_bars([0, 1], [{"labels": 0, "inputs": 4 * MIB}, {"parameters": MIB, "inputs": MIB, "loss": 0}], MIB)
    assert [trace.name for trace in bars] == ["parameters", "input features"]
    assert [trace.y for trace in bars] == [(0, 1), (4, 1)]
    assert bars[1].customdata[1] == "1.00 MiB (1,048,576 bytes), 50.0%"
    assert all(text == "" for text in bars[0].text)


def test_shares_are_written_where_there_is_room() -> None:
    (parameters, inputs) = term_bars([0], [{"parameters": 1, "inputs": 99}], 1.0, shares=True)
    assert (parameters.text, inputs.text) == (("",), ("99%",))
