"""Validation of the options of `plan_micro_batches`."""

from numbers import Real

from torch import Tensor

from workbench.core.errors import check_at_least, check_bytes, check_choice
from workbench.memory.planning.strategy import STRATEGIES
from workbench.partition.batch import partition_choices
from workbench.partition.batch.prepared_batch import check_method


def check_options(
    capacity_bytes: int | str,
    method: str,
    margin: float,
    node_parts: Tensor | None,
    strategy: str,
    max_parts: int | None,
) -> int:
    """Validate the options of `plan_micro_batches`, and return the capacity in bytes.

    Args:
        capacity_bytes: bytes, at least 1, or text such as "8GiB".
        method: name of a partition method.
        margin: fraction in [0, 1].
        node_parts: integer [num_graph_nodes], or None.
        strategy: name of a strategy.
        max_parts: at least 1, or None.

    Raises:
        ValueError: An option is out of range or unknown, or `node_parts` does not go with the method.
        TypeError: `node_parts` is not an integer tensor.
    """
    capacity_bytes = check_bytes("capacity_bytes", capacity_bytes)
    check_choice("method", method, partition_choices())
    check_method(method, node_parts)
    check_choice("strategy", strategy, STRATEGIES)
    if not isinstance(margin, Real) or not 0 <= margin <= 1:
        raise ValueError(f"margin is {margin!r}; it must be a fraction between 0 and 1, such as 0.02 for 2 %")
    if max_parts is not None:
        check_at_least("max_parts", max_parts, 1)
    return capacity_bytes
