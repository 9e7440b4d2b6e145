"""Fuzz cases by category: a public call with mutated arguments, and checks of its result."""

import random
from collections.abc import Callable

from tests.fuzz import batches, interop, self_test, steps, structures
from tests.fuzz.outcome import problem_of

CATEGORIES: dict[str, tuple[Callable[[random.Random], object], ...]] = {
    **structures.CATEGORIES,
    **interop.CATEGORIES,
    **batches.CATEGORIES,
    **steps.CATEGORIES,
}


def run_case(category: str, seed: int) -> tuple[str, str]:
    """Run a case, which depends only on category and seed; return its outcome and details."""
    rng = random.Random(f"{category} {seed}")
    targets = CATEGORIES.get(category) or (self_test.TARGETS[seed],)
    target = targets[seed % len(targets)]
    try:
        target(rng)
    except BaseException as error:
        wrong = problem_of(error)
        return (
            ("raised", f"{target.__name__}: {error}") if wrong is None else ("unhelpful", f"{target.__name__}: {wrong}")
        )
    return "returned", target.__name__
