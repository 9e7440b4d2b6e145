"""Memory plans in words: the answer in one sentence, and a table with one column per partitioner."""

from collections.abc import Mapping, Sequence

import pandas as pd

from workbench.core.units import format_bytes
from workbench.memory.plan import Plan
from workbench.report.terminal_width import terminal_width
from workbench.report.text_table import text_table


def answer(plans: Mapping[str, Plan]) -> str:
    """Names the smallest number of micro-batches that fits, and the partitioner.

    Args:
        plans: by partitioner, at least one, all of one batch and capacity.
    """
    best = min(plans.values(), key=_quality)
    capacity, peak = format_bytes(best.capacity_bytes), format_bytes(best.peak_bytes)
    if best.num_parts == 1:
        return f"The whole batch fits into {capacity}: its training step needs an estimated {peak}."
    parts = f"{best.num_parts} micro-batches ({_reason(best, list(plans.values()))})"
    reads = f"each input node is read {best.redundancy.ratio:.2f} times on average"
    return f"The batch fits into {capacity} as {parts}: the largest needs an estimated {peak}, and {reads}."


def _quality(plan: Plan) -> tuple[int, int]:
    """Less is better."""
    return plan.num_parts, plan.peak_bytes


def _reason(best: Plan, plans: Sequence[Plan]) -> str:
    """Why the best of several plans is the best."""
    name, fewest = best.method_name, [plan for plan in plans if plan.num_parts == best.num_parts]
    if len(plans) == 1:
        return f"partitioned by {name}"
    if len(fewest) == 1:
        return f"{name} needs the fewest"
    tied = "the same for all methods" if len(fewest) == len(plans) else f"{len(fewest)} methods need the fewest"
    smallest = sum(plan.peak_bytes == best.peak_bytes for plan in fewest) == 1
    return f"{tied}; {name} has the smallest peak" if smallest else f"{tied}; shown is {name}"


def comparison(plans: Mapping[str, Plan]) -> list[str]:
    """A table of parts, peak by term, redundancy and planning time, with one column per partitioner, the best first.

    Args:
        plans: by partitioner, at least one, all of one batch and capacity.
    """
    made = sorted(plans.values(), key=_quality)
    largest = [max(plan.estimates, key=lambda estimate: estimate.peak_bytes) for plan in made]
    shares = [plan.redundancy.largest / plan.redundancy.full_inputs for plan in made]
    terms = [term for term in largest[0].terms if any(estimate.terms[term] for estimate in largest)]
    rows = {
        "micro-batches": [plan.num_parts for plan in made],
        "largest peak": [format_bytes(plan.peak_bytes) for plan in made],
        "peak phase": [estimate.phase for estimate in largest],
        **{f"  {term}": [format_bytes(estimate.terms[term]) for estimate in largest] for term in terms},
        "input nodes, sum / batch": [f"{plan.redundancy.ratio:.3f}" for plan in made],
        "input nodes, largest / batch": [f"{share:.3f}" for share in shares],
        "planning seconds": [f"{sum(plan.seconds.values()):.2f}" for plan in made],
        **{f"  {stage}": [f"{plan.seconds[stage]:.2f}" for plan in made] for stage in made[0].seconds},
        "part counts tried": [" ".join(str(number) for number, _ in plan.tried) for plan in made],
    }
    cells = [(name, *map(str, values)) for name, values in rows.items()]
    table = pd.DataFrame(cells, columns=["", *(plan.method_name for plan in made)])
    return _fitted(table)


def _fitted(table: pd.DataFrame) -> list[str]:
    """The columns that the terminal has room for, and the names of the others."""
    width, kept = terminal_width(), table.shape[1]
    lines = text_table(table)
    while width is not None and max(map(len, lines)) > width and kept > 2:
        kept -= 1
        lines = text_table(table.iloc[:, :kept])
    beyond = ", ".join(table.columns[kept:])
    return [*lines, "", f"Not shown, beyond this terminal's width: {beyond}"] if beyond else lines
