"""The controller of the locality factor, as a scripted state machine."""

from dataclasses import FrozenInstanceError

import pytest

import workbench as wb

STAYS = None

SCRIPTS = {
    "doubles up to 8, then stays": [(5, 2), (5, 4), (5, 8), (5, STAYS), (9, 8)],
    "no movement: stays at 1": [(0, STAYS), (9, 1)],
    "between the bounds: stays": [(1.7, STAYS), (9, 1)],
    "0.20 doubles, 0.15 stays": [(2, 2), (1, STAYS)],
    "below 0.15: the midpoint of the last two": [(2, 2), (0.4, 1.5), (0.4, 1.75), (9, 3.5)],
    "all seconds since the start count": [(6, 2), (0, 4), (0, 8), (0, STAYS)],
    "from 4 to 3, then settled": [(2.5, 2), (1.7, 4), (0.2, 3), (1.8, STAYS)],
}
"""Per epoch of 10 seconds: seconds of movement, and the factor afterwards; STAYS: settled from now on."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts(name: str) -> None:
    control = wb.placement.LocalityControl()
    settled = False
    for movement, factor in SCRIPTS[name]:
        before, control = control, control.next(movement, 10)
        settled = settled or factor is STAYS
        assert control.settled == settled
        assert control.factor == (before.factor if factor is STAYS else factor)


def test_a_factor_below_the_largest_doubles_once_more() -> None:
    """From 6, the midpoint of 4 and 8, to 12; that is the end."""
    control = wb.placement.LocalityControl()
    for movement, execution, factor in ((2, 10, 2), (2, 10, 4), (2, 10, 8), (0, 20, 6), (9, 10, 12), (9, 10, 12)):
        control = control.next(movement, execution)
        assert control.factor == factor
    assert control.settled


def test_states_are_records() -> None:
    """A state gives the same next state again and again, and does not change itself."""
    start = wb.placement.LocalityControl()
    assert start.next(5, 10) == start.next(5, 10) and start == wb.placement.LocalityControl() and start.ratio == 0
    with pytest.raises(FrozenInstanceError):
        start.factor = 3.0  # pyright: ignore[reportAttributeAccessIssue]


def test_bounds_are_options() -> None:
    control = wb.placement.LocalityControl(grow_at=0.5, shrink_below=0.4, largest=2)
    assert control.next(0.45, 1).settled
    grown = control.next(0.6, 1)
    assert grown.factor == 2 and grown.next(0.6, 1).settled
    assert grown.next(0.1, 1).factor == 1.5


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        ((-1, 1), "movement_seconds is -1"),
        ((1, float("inf")), "execution_seconds is inf"),
        ((float("nan"), 1), "movement_seconds is nan"),
        ((1, 0), "execution_seconds is 0; call next"),
    ],
)
def test_impossible_seconds_are_refused(seconds: tuple[float, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wb.placement.LocalityControl().next(*seconds)


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shrink_below is 0\.3 and grow_at 0\.2"):
        wb.placement.LocalityControl(shrink_below=0.3)
    with pytest.raises(ValueError, match=r"factor is 0\.5"):
        wb.placement.LocalityControl(factor=0.5)
    with pytest.raises(ValueError, match="movement_seconds is nan"):
        wb.placement.LocalityControl(movement_seconds=float("nan"))
    with pytest.raises(TypeError, match="movement_seconds is"):
        wb.placement.LocalityControl().next("1", 1)  # pyright: ignore[reportArgumentType]
