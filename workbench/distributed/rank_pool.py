"""`RankPool`: ranks that stay, so that a function called on them does not wait for processes that import torch."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from tempfile import TemporaryFile
from typing import Any, Self

from workbench.core.errors import check_at_least
from workbench.core.interrupts import complete_despite_interrupt, deferred_interrupt
from workbench.distributed.order import Order, check_config, function_name, package_of
from workbench.distributed.progress import ProgressBoard
from workbench.distributed.rank_call import RankCall
from workbench.distributed.rank_process import RankProcess
from workbench.distributed.rendezvous import Rendezvous
from workbench.kernels.threads import get_num_threads

_SPARE_SECONDS = 60.0  # of a collective beyond the limit of its call, which names the rank that hangs


class RankPool:
    """Processes that run functions together, one function after the other; each call has a process group of its own.

        with wb.RankPool(2) as pool:
            rows = pool.run("experiments.paper.figure:on_ranks", {"size": 3})

    The ranks start with the first call. They end when the pool is closed, at the latest with this process, and so does
    all that they have started; after a failure the next call starts new ones. Ranks keep the modules that they have
    imported.

    Args:
        world_size: number of ranks, at least 1; they share the cores.
        backend: of `torch.distributed`, "gloo" or "nccl".
    """

    def __init__(self, world_size: int, *, backend: str = "gloo") -> None:
        check_at_least("world_size", world_size, 1)
        self.world_size, self.backend = world_size, backend
        self._ranks: list[RankProcess] = []

    @property
    def pids(self) -> list[int]:
        """Process ids of the ranks; empty if none has started."""
        return [process.pid for process in self._ranks]

    def run(
        self,
        function: str | Callable[..., Any],
        config: Mapping[str, Any],
        *,
        world_size: int | None = None,
        timeout_seconds: float = 600.0,
    ) -> list[dict[str, Any]]:
        """Call a function on ranks and return the rows of rank 0.

        Args:
            function: "module:function", or a function of a module; called with the configuration, yields rows.
            config: JSON values.
            world_size: number of ranks of this call; None: all. The others wait.
            timeout_seconds: limit of the call, the start of processes included.

        Raises:
            ValueError: a function that ranks can't import, more ranks than there are, or a limit that is not above 0.
            TypeError: a configuration that is not JSON.
            RankError: a rank raised, died or did not end in time; all ranks have ended.
        """
        deadline = time.monotonic() + timeout_seconds
        order = self._order(function, config, timeout_seconds)
        size = self.world_size if world_size is None else world_size
        check_at_least("world_size", size, 1, most=self.world_size)
        try:
            with Rendezvous(size) as rendezvous:
                self._start()
                for rank, process in enumerate(self._ranks[:size]):
                    process.send(replace(order, environment=rendezvous.environment(rank)))
                return RankCall(order.function, self._ranks[:size], timeout_seconds, deadline).rows()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the ranks, whatever they do."""
        complete_despite_interrupt(self._kill)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _order(self, function: str | Callable[..., Any], config: Mapping[str, Any], timeout_seconds: float) -> Order:
        if not timeout_seconds > 0:
            raise ValueError(f"timeout_seconds is {timeout_seconds}; it must be above 0")
        name = function_name(function)
        return Order(name, check_config(config), {}, self.backend, timeout_seconds + _SPARE_SECONDS, package_of(name))

    def _start(self) -> None:
        """Start the ranks if there are none, or if one has died since the last call."""
        if any(process.status is not None for process in self._ranks):
            self.close()
        if self._ranks:
            return
        threads = max(1, get_num_threads() // self.world_size)
        with TemporaryFile() as board:
            board.truncate(ProgressBoard.num_bytes(self.world_size))
            for rank in range(self.world_size):
                with deferred_interrupt():  # a child that is not in the list would not be killed
                    self._ranks.append(RankProcess(rank, self.world_size, board.fileno(), threads))

    def _kill(self) -> None:
        for process in self._ranks:
            process.kill()
        self._ranks = []
