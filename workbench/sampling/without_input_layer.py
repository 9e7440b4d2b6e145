"""`WithoutInputLayer`: samples all layers but the input layer, whose aggregate is precomputed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from workbench.core.errors import check_at_least
from workbench.core.exchange import refuse_halo
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.sampling.drawn import Drawn
from workbench.sampling.excluding import ExcludingSampler
from workbench.sampling.sampler import Sampler, check_sampler, copy_ids, sample_layers


@dataclass(frozen=True)
class WithoutInputLayer(Sampler):
    """A sampler without its last hop, for models whose first layer reads precomputed aggregates.

        aggregated = wb.aggregate_rows(graph, x, model=model)
        rows = wb.AggregatedRows(x, aggregated)
        for step, mb in wb.batches(graph, ids, sampler=wb.WithoutInputLayer(sampler), batch_size=1024):
            wb.train_step(model, mb, rows, y, loss_fn, optimizer)

    Its batches are those of `sampler` without the input layer's block and that block's new sources, bit for bit. The
    fanout of the input layer has no effect: the first layer aggregates all neighbours.

    Args:
        sampler: a sampler of one layer or more; not a `CooperativeSampler`, which wraps this one instead.

    Source: Hoang et al., "BatchGNN" (2023), section 3, "Input Feature Aggregation Cache", and figure 2.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> wb.WithoutInputLayer(wb.NeighborSampler([1, 1])).sample(path, torch.tensor([3])).node_ids
    tensor([3, 2])
    """

    sampler: Sampler

    def __post_init__(self) -> None:
        check_sampler(self.sampler)
        check_at_least("the number of layers of sampler", self.sampler.num_layers, 1)

    @property
    def num_layers(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of layers that are sampled: one less than the model has."""
        return self.sampler.num_layers - 1

    @property
    def rows_are_independent(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.sampler.rows_are_independent

    @property
    def edge_ids(self) -> bool:
        return getattr(self.sampler, "edge_ids", False)

    @property
    def sources_are_new(self) -> bool:
        return getattr(self.sampler, "sources_are_new", False)

    @property
    def reads_other_rows(self) -> bool:
        return getattr(self.sampler, "reads_other_rows", False)

    @property
    def draw_owned(self) -> Callable[..., Any]:
        """That of the sampler, one layer further out; missing if it has none."""
        draw: Any = getattr(self.sampler, "draw_owned")  # noqa: B009
        return lambda owned, nodes, *, layer, **options: draw(owned, nodes, layer=layer + 1, **options)

    def draw(
        self, graph: Graph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> Drawn:
        """Draw in-edges as the sampler does in its layer `layer + 1`. Arguments as for `Sampler.draw`."""
        check_at_least("layer", layer, 0, most=self.num_layers - 1)
        return self.sampler.draw(graph, nodes, layer=layer + 1, step=step, exclude_edges=exclude_edges)

    def sample(self, graph: Graph, seeds: Tensor, *, step: int = 0, exclude_edges: Tensor | None = None) -> MiniBatch:
        """Sample the batch of some seeds. Arguments and errors as for `Sampler.sample`.

        A sampler with a `sample` of its own samples its whole batch, of which the input layer is dropped.

        Returns:
            A batch of `num_layers` blocks; its inputs are the destinations of the first layer.
        """
        if type(self.sampler).sample in (Sampler.sample, ExcludingSampler.sample):
            draw = partial(self.draw, graph, exclude_edges=exclude_edges)
            return sample_layers(self, graph, seeds, step=step, draw=draw)
        options: dict[str, Any] = {} if exclude_edges is None else {"exclude_edges": exclude_edges}
        mb = self.sampler.sample(graph, seeds, step=step, **options)
        remedy = "wrap in the other order: CooperativeSampler(WithoutInputLayer(sampler), owned)"
        refuse_halo(mb.exchanges, "sampled without its input layer", remedy)
        return MiniBatch(copy_ids(mb.node_ids[: mb.blocks[0].num_dst]), mb.blocks[1:], step=mb.step)
