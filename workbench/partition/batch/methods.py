"""The partition methods by name, one module each, and those that users register."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import Tensor

from workbench.core.errors import ID_DTYPES, check_ids, check_type, check_vector
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.cluster import prepare_cluster
from workbench.partition.batch.hypergraph import prepare_hypergraph, prepare_hypergraph_deep
from workbench.partition.batch.metis import prepare_metis
from workbench.partition.batch.prepared_batch import POLICIES, Prepare, PreparedBatch
from workbench.partition.batch.random import prepare_random
from workbench.partition.batch.range import prepare_range
from workbench.partition.batch.refined import prepare_hypergraph_refined, prepare_star_refined
from workbench.partition.batch.reg import prepare_reg, prepare_reg_normalized, prepare_reg_unweighted
from workbench.partition.batch.star import prepare_star

_METHODS: dict[str, Prepare] = {
    "range": prepare_range,
    "random": prepare_random,
    "metis": prepare_metis,
    "reg": prepare_reg,
    "reg_unweighted": prepare_reg_unweighted,
    "reg_normalized": prepare_reg_normalized,
    "star": prepare_star,
    "star_refined": prepare_star_refined,
    "hypergraph": prepare_hypergraph,
    "hypergraph_deep": prepare_hypergraph_deep,
    "hypergraph_refined": prepare_hypergraph_refined,
    "cluster": prepare_cluster,
}
_BUILT_IN = (*POLICIES, *_METHODS)

PARTITION_METHODS: Mapping[str, Prepare] = MappingProxyType(_METHODS)
"""The methods by name; `register_partitioner` adds to them."""

Assign = Callable[[MiniBatch, int], Tensor]
"""A partitioner of one's own: a batch and the number of parts to the part of every seed, integer [num_seeds]."""


def partition_choices() -> tuple[str, ...]:
    """Return what `Partitioner` accepts: `PARTITION_METHODS`, and the policies that choose one of them."""
    return (*POLICIES, *PARTITION_METHODS)


def register_partitioner(name: str) -> Callable[[Assign], Assign]:
    """Give a function a name that every `method=` accepts: of partitions, plans, recovery and training.

    The function gets a batch, on its own device, and a number of parts, 2 to the number of seeds, and returns the part
    of every seed, integer [num_seeds]. Its result is checked every time. Seeds, weights, objectives and budgets are not
    passed to it. The name is known in this process, until it ends; registering it again replaces the function.

    Args:
        name: of the method; not one of the workbench's own.

    Returns:
        A decorator that registers a function and returns it unchanged.

    Raises:
        ValueError: the name is empty, or one of the workbench's own.
        TypeError: the name is not text.
    """
    check_type("name", name, str, 'write it above the function: @wb.register_partitioner("my method")')
    if not name or name in _BUILT_IN:
        raise ValueError(f"the name of a partitioner is {name!r}; choose one that is not in {', '.join(_BUILT_IN)}")

    def register(assign: Assign) -> Assign:
        _METHODS[name] = lambda batch: lambda num_parts: _checked(name, assign(batch.mb, num_parts), batch, num_parts)
        return assign

    return register


def _checked(name: str, part: Tensor, batch: PreparedBatch, num_parts: int) -> Tensor:
    check_vector(f"the result of {name!r}", part, batch.mb.num_seeds, ID_DTYPES)
    return check_ids(f"the result of {name!r}", part, num_parts).cpu()
