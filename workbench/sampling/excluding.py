"""`ExcludingSampler`: the base of the library's samplers, which looks up excluded edges once for all layers."""

from abc import abstractmethod
from functools import partial

from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.sampling.candidates import excluded_positions
from workbench.sampling.sampler import Drawn, Sampler, check_draw, check_graph, sample_layers


class ExcludingSampler(Sampler):
    """A sampler that is defined by `_draw`, which gets the excluded edges as CSR positions."""

    @abstractmethod
    def _draw(self, graph: Graph, excluded: Tensor | None, nodes: Tensor, *, layer: int, step: int) -> Drawn:
        """Draw rows of int64 [n] nodes on the graph's device without some CSR positions, which ascend."""
        ...

    def draw(
        self, graph: Graph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> Drawn:
        """Draw the rows of some nodes in one layer.

        Args:
            graph: the graph to sample from; all of it for random walks, which read the rows of the nodes they visit.
            nodes: int64 or int32 [n], node ids; a node that occurs twice gets the same row twice.
            layer: number of the layer, 0 for the input layer.
            step: number of the batch, which selects the random variates.
            exclude_edges: int64 or int32, raw-graph edge ids that must not be drawn, nor walked over.

        Returns:
            The drawn rows; with positions if `edge_ids`, weights or types need them.

        Raises:
            TypeError: ids of another dtype.
            ValueError: a layer that does not exist, weights that are missing, negative or not finite, or an edge type
                without a fanout.
            IndexError: an id out of range.
            CapacityError: the drawn rows need more memory than is available.
        """
        nodes = check_draw(self, graph, nodes, layer=layer, step=step)
        return self._draw(graph, excluded_positions(graph, exclude_edges), nodes, layer=layer, step=step)

    def sample(self, graph: Graph, seeds: Tensor, *, step: int = 0, exclude_edges: Tensor | None = None) -> MiniBatch:
        """Sample the batch of some seeds. Arguments and errors as for `Sampler.sample`.

        The excluded edges are looked up and sorted once for all layers.
        """
        if type(self).draw is not ExcludingSampler.draw:  # a subclass defines its own
            return super().sample(graph, seeds, step=step, exclude_edges=exclude_edges)
        check_graph(graph)
        draw = partial(self._draw, graph, excluded_positions(graph, exclude_edges))
        return sample_layers(self, graph, seeds, step=step, draw=draw)
