"""`run_ranks`: run a function on several ranks of this machine and return the rows of rank 0."""

from collections.abc import Callable, Mapping
from typing import Any

from workbench.distributed.rank_pool import RankPool


def run_ranks(
    function: str | Callable[..., Any],
    config: Mapping[str, Any],
    world_size: int,
    *,
    timeout_seconds: float = 600.0,
    backend: str = "gloo",
) -> list[dict[str, Any]]:
    """Run a function on ranks that start now and end with the call; `RankPool` keeps them for several calls.

    Every rank joins a process group of `torch.distributed` and calls the function with the configuration. The contract
    is `env://`, a function by name, and JSON, so torchrun, Slurm or Ray can start the same function with
    `python -m workbench.distributed.rank_main module:function CONFIG`.

    Args:
        function: "module:function", or a function of a module; called with the configuration, yields rows.
        config: JSON values.
        world_size: number of ranks, at least 1; they share the cores.
        timeout_seconds: after which all ranks are killed, from the start of their processes.
        backend: of `torch.distributed`, "gloo" or "nccl".

    Returns:
        The rows of rank 0: mappings from column to number, string, bool or None.

    Raises:
        ValueError: a function that ranks can't import, or a limit that is not above 0.
        TypeError: a configuration that is not JSON.
        RankError: a rank raised, died or did not end in time; all ranks have ended.
    """
    with RankPool(world_size, backend=backend) as pool:
        return pool.run(function, config, timeout_seconds=timeout_seconds)
