"""`Recovery`: how a training step continues after an out-of-memory (OOM) error, which also changes its memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from workbench.core.errors import check_at_least, check_choice, check_seed
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import partition_choices
from workbench.partition.batch.prepared_batch import check_method


@dataclass(frozen=True, eq=False)
class Recovery:
    """Out-of-memory recovery: how to split a micro-batch that runs out of memory.

    Args:
        parts: number of pieces, at least 2; pieces that do not fit are split again, down to one seed each.
        method: a name of `workbench.PARTITION_METHODS`, or "auto" or "fast". "range" is the fallback if the method
            itself runs out of memory, if "auto" finds no pymetis or METIS fails, and if the method puts all seeds into
            one part, as "cluster" may.
        seed: seed of the random choices of the method.
        node_parts: integer [num_graph_nodes], a partition of the whole graph, for method "cluster"; None for others.
        on_split: called after each split with the micro-batch, its pieces and the error, for example to count splits
            or to plan the next batch with more parts; everything that the failed attempt allocated is freed by then.

    Raises:
        ValueError: The method is unknown, `parts` is below 2, `seed` is not an integer, or `node_parts` is missing for
            "cluster" or passed to a method that does not use it.
        TypeError: `node_parts` is not an integer tensor.
    """

    parts: int = 2
    method: str = "auto"
    seed: int = 0
    node_parts: Tensor | None = None
    on_split: Callable[[MiniBatch, list[MiniBatch], Exception], object] | None = None

    def __post_init__(self) -> None:
        check_at_least("parts", self.parts, 2)
        check_choice("method", self.method, partition_choices())
        check_method(self.method, self.node_parts)
        check_seed(self.seed)


def check_recover(recover: Any) -> None:
    """Validate the `recover` option of training functions.

    Raises:
        TypeError: It is neither a `Recovery` nor None.
    """
    if recover is not None and not isinstance(recover, Recovery):
        raise TypeError(f"recover is {recover!r}; pass workbench.Recovery() to recover from OOM errors, or None")
