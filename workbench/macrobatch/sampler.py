"""`MacrobatchSampler`: ranks sample windows of their own mini-batches together, with one relay per hop."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.traffic import Traffic
from workbench.distributed.group import Group
from workbench.distributed.owned_sampler import OwnedSampler
from workbench.distributed.progress import in_phase
from workbench.distributed.row_exchange import exchange_ids
from workbench.macrobatch.relay import check_relayable, sample_relayed
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.sampler import Sampler


class MacrobatchSampler(OwnedSampler):
    """Samples mini-batches of each rank's own from a graph that is divided over the ranks, a window of them at once.

        owned = wb.OwnedGraph.of(graph, owner, rank, size)
        sampler = wb.MacrobatchSampler(wb.NeighborSampler([5, 10, 15], replace=True), owned)
        loader = wb.macrobatches(owned.graph, mine, sampler=sampler, store=store, batch_size=1024, size=22)
        for step, mb, rows in loader: …

    In every hop, one all-to-all asks the owners for the rows of all mini-batches, and one returns them: as many relays
    as layers, whatever the size of the window. Each mini-batch equals the one that `sampler` draws from the whole graph
    in one process, bit for bit. `sample` and `sample_window` are collective. To overlap them with training
    (`workbench.prefetch`), pass a group of its own, `torch.distributed.new_group()`: collectives of two threads must
    not share one.

    Args:
        sampler: draws the rows; each must depend on its node alone (`rows_are_independent`).
        owned: the in-edges of this rank's nodes, and the owner of every node.
        group: the ranks; None for all.
        traffic: counts what other ranks send, as "rank": "ids", the nodes that they ask for; "edges", the rows drawn
            for this rank; "relays" and the bytes of their headers.

    Raises:
        ValueError: the rows of `sampler` depend on each other or on rows of other nodes, or `owned` belongs to another
            rank.

    Source: BatchGNN, section 3, "Macrobatch sampling".
    """

    def __init__(
        self, sampler: Sampler, owned: OwnedGraph, group: Group = None, *, traffic: Traffic | None = None
    ) -> None:
        check_relayable(owned, sampler)
        super().__init__(sampler, owned, group, traffic=traffic)

    def sample(self, graph: Graph, seeds: Tensor, *, step: int = 0, exclude_edges: Tensor | None = None) -> MiniBatch:
        """Sample one mini-batch of this rank; collective. Arguments and errors as for `sample_window`."""
        (mb,) = self.sample_window(graph, [seeds], steps=[step], exclude_edges=[exclude_edges])
        return mb

    def sample_window(
        self,
        graph: Graph,
        seeds: Sequence[Tensor],
        *,
        steps: Sequence[int],
        exclude_edges: Sequence[Tensor | None] | None = None,
    ) -> list[MiniBatch]:
        """Sample a window of this rank's mini-batches; collective: every rank calls it, possibly with none.

        Args:
            graph: `owned.graph`.
            seeds: int64 or int32 node ids of each mini-batch, each once, of any rank.
            steps: number of each mini-batch, which selects its random variates.
            exclude_edges: int64 or int32, per mini-batch, raw-graph edge ids that must not be drawn, or None.

        Returns:
            The mini-batches, without exchanges.

        Raises:
            ValueError: another graph, duplicate seeds, or lists of different lengths.
            TypeError: ids of another dtype.
            IndexError: an id out of range.
        """
        self._check(graph)
        options: dict[str, Any] = {"steps": steps, "exclude_edges": exclude_edges, "traffic": self._traffic}
        with in_phase("sampling"):
            relay = sample_relayed(self._owned, seeds, sampler=self._sampler, **options)
            try:
                messages = next(relay)
                while True:
                    for phase in ("request", "answer"):
                        messages = relay.send(exchange_ids(messages, self._group, phase=phase))
            except StopIteration as done:
                return done.value
