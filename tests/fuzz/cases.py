"""Cases by category: a public call with mutated arguments, and what its result must be."""

import random
from collections.abc import Callable

from tests.fuzz import batches, interop, self_test, steps, structures
from tests.fuzz.outcome import what_is_wrong

CATEGORIES: dict[str, tuple[Callable[[random.Random], object], ...]] = {
    **structures.CATEGORIES,
    **interop.CATEGORIES,
    **batches.CATEGORIES,
    **steps.CATEGORIES,
}


def run_case(category: str, seed: int) -> tuple[str, str]:
    """Outcome and detail of one case, which depends on category and seed alone."""
    rng = random.Random(f"{category} {seed}")
    targets = CATEGORIES.get(category) or (self_test.TARGETS[seed],)
    target = targets[seed % len(targets)]
    try:
        target(rng)
    except BaseException as error:
        wrong = what_is_wrong(error)
        return (
            ("raised", f"{target.__name__}: {error}") if wrong is None else ("unhelpful", f"{target.__name__}: {wrong}")
        )
    return "returned", target.__name__
