"""The systems that node classification is trained with: in memory, from disk, DGL's and PyG's, and two controls."""

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.performance.epoch import DglSage
from experiments.performance.timing import import_dgl
from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, permutation, stream
from workbench.core.shared_storage import total_bytes
from workbench.experiment.config import ModelConfig
from workbench.interop import graph_to_dgl

MEMORY, DISK, DGL, PYG = "in memory", "on disk", "DGL", "PyG"
LAYER_WISE, REDUCED = "layer-wise", "reduced graph"
CONTROLS = (LAYER_WISE, REDUCED)
"""In memory: with a sample per layer in place of DENSE's, and with as few of the nodes as the buffer has."""


class SystemConfig(ModelConfig):
    """How all systems train.

    Args:
        batch_size: training nodes per step.
        num_partitions: p, on disk; the training nodes are in the first ones.
        capacity: c, partitions in the buffer.
        limit: limit what an epoch from disk may allocate to `memory_share` of features and edges, by the system.
        memory_share: fraction of the bytes of features and edges that an epoch from disk may need.
        learning_rate: of Adam.
        epochs: number of epochs.
    """

    batch_size: PositiveInt
    num_partitions: PositiveInt
    capacity: PositiveInt
    limit: bool = False
    memory_share: float = Field(gt=0, le=1)
    learning_rate: float
    epochs: PositiveInt


class InMemory:
    """Features and edges in memory.

    Args:
        config: of the point.
        data: the data set.
        folder: where a store may be built.
    """

    def __init__(self, config: SystemConfig, data: Dataset, folder: Path) -> None:
        self._config, self._data = config, data
        self.model = self._build().to(config.device)
        self._optimizer = torch.optim.Adam(self.model.parameters(), lr=config.learning_rate)
        self._prepare(folder)

    def _build(self) -> Any:
        return self._config.build(self._data)

    def _prepare(self, folder: Path) -> None:
        config, graph = self._config, self._data.graph
        self._graph = Graph(graph.indptr.clone(), graph.indices.clone())  # no longer those of a file
        self._x = self._data.x.clone()
        self._sampler = wb.DenseSampler(config.fanouts, seed=config.seed)
        options: dict[str, Any] = {"batch_size": config.batch_size, "seed": config.seed}
        self._loader = wb.batches(self._graph, self._data.train_idx, sampler=self._sampler, **options)

    @property
    def resident_bytes(self) -> int:
        """Bytes of features and edges that are in memory between epochs."""
        return self._x.nbytes + total_bytes(self._graph._tensors().values())

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        """Train an epoch; yields the loss of every step."""
        for _, mb in self._loader.epoch(epoch):
            yield self._step(mb, self._x, self._data.y)

    def _step(self, mb: wb.MiniBatch, x: Any, y: Tensor) -> Tensor:
        return wb.train_step(self.model, mb, x, y, cross_entropy, self._optimizer, forward=self.forward)

    def forward(self, mb: wb.MiniBatch, inputs: Any) -> Tensor:
        """Call the model on a batch and its features, which may be stored in half precision."""
        return self.model(mb.blocks, inputs.x.float())

    def logits(self, batches: Iterable[Any]) -> tuple[Tensor, Tensor]:
        """Outputs of the model on batches of the whole graph."""
        return wb.sampled_logits(self.model, batches, self._data.x, forward=self.forward)

    def columns(self) -> Mapping[str, Any]:
        """What only some systems have."""
        return {}


class OnDisk(InMemory):
    """Features and edges in partitions on disk, of which some are in a buffer."""

    resident_bytes = 0  # pyright: ignore[reportAssignmentType]

    def _prepare(self, folder: Path) -> None:
        config, data = self._config, self._data
        start = time.perf_counter()
        self._store = wb.outofcore.PartitionStore.build(
            folder,
            data.graph,
            rows=data.x,
            num_partitions=config.num_partitions,
            train_idx=data.train_idx,
            seed=config.seed,
        )
        self._build_seconds = time.perf_counter() - start
        self._y = data.y[self._store.node_ids]
        self._ids = torch.isin(self._store.node_ids, data.train_idx).nonzero()[:, 0]
        self._sampler = wb.DenseSampler(config.fanouts, seed=config.seed)
        self._links, self._io = wb.Traffic(), {}

    def _order(self, epoch: int) -> wb.outofcore.NodeOrder:
        config = self._config
        sizes = config.num_partitions, config.capacity, self._store.num_train_partitions
        return wb.outofcore.node_order(*sizes, seed=config.seed, epoch=epoch)

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        config, before = self._config, self._links.snapshot()
        with wb.outofcore.PartitionBuffer(self._store, capacity=config.capacity, traffic=self._links) as buffer:
            options: dict[str, Any] = {"batch_size": config.batch_size, "seed": config.seed, "epoch": epoch}
            for state, _, mb in wb.outofcore.batches(buffer, self._order, self._ids, sampler=self._sampler, **options):
                yield self._step(mb, state.rows, self._y)
        read = (self._links.snapshot() - before).nbytes("disk")
        predicted = wb.outofcore.epoch_io(self._store, self._order(epoch)).read_bytes
        self._io = {"read_bytes": read, "predicted_read_bytes": predicted}

    def columns(self) -> Mapping[str, Any]:
        return {**self._io, "build_seconds": self._build_seconds}


class LayerWise(InMemory):
    """In memory, with neighbours drawn anew in every layer, as DGL does."""

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        self._sampler = wb.NeighborSampler(self._config.fanouts, seed=self._config.seed)
        options: dict[str, Any] = {"batch_size": self._config.batch_size, "seed": self._config.seed}
        self._loader = wb.batches(self._graph, self._data.train_idx, sampler=self._sampler, **options)


class OnReducedGraph(InMemory):
    """In memory, with the training nodes and, in every epoch, as many random other nodes as the buffer has."""

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        config, data = self._config, self._data
        held = torch.randperm(data.graph.num_nodes, generator=torch.Generator().manual_seed(config.seed + epoch))
        count = round(data.graph.num_nodes * config.capacity / config.num_partitions)
        others = held[~torch.isin(held, data.train_idx)][: max(0, count - len(data.train_idx))]
        options: dict[str, Any] = {"batch_size": config.batch_size, "seed": config.seed, "epoch": epoch}
        few = among(self._graph, torch.cat([data.train_idx, others]))
        for _, mb in wb.batches(few, data.train_idx, sampler=self._sampler, **options):
            yield self._step(mb, self._x, data.y)


def among(graph: Graph, nodes: Tensor) -> Graph:
    """The edges between some nodes, with the ids of all."""
    held = torch.zeros(graph.num_nodes, dtype=torch.bool)
    held[nodes] = True
    kept = held[graph.indices.long()] & held.repeat_interleave(graph.indptr.diff())
    before = torch.cat([torch.zeros(1, dtype=torch.int64), kept.cumsum(0)])
    return Graph(before[graph.indptr], graph.indices[kept])


class WithDgl(InMemory):
    """DGL's sampler and layers, in memory."""

    def _build(self) -> Any:
        config, data = self._config, self._data
        torch.manual_seed(config.seed)
        return DglSage(data.num_features, config.hidden_dim, data.num_classes, config.fanouts)

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        self._peer = graph_to_dgl(self._graph).formats("csc")

    @cached_property
    def _dgl_sampler(self) -> Any:
        return import_dgl().dataloading.NeighborSampler(list(self._config.fanouts))

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        config, ids, device = self._config, self._data.train_idx, self._config.device
        order = permutation(stream(config.seed, Purpose.SHUFFLE, epoch), len(ids))
        for seeds in ids[order].split(config.batch_size):
            inputs, outputs, blocks = self._dgl_sampler.sample_blocks(self._peer, seeds)
            out = self.model([block.to(device) for block in blocks], self._x[inputs].to(device).float())
            loss = cross_entropy(out, self._data.y[outputs].to(device))
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            yield loss.detach()

    def forward(self, mb: wb.MiniBatch, inputs: Any) -> Tensor:
        return self.model(mb.to_dgl(), inputs.x.float())


class PygSage(nn.Module):
    """GraphSAGE of PyG's examples, called with a whole subgraph or with one bipartite graph per layer."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        dims = [in_dim, *[hidden_dim] * (num_layers - 1), out_dim]
        self.layers = nn.ModuleList([SAGEConv(*pair) for pair in pairwise(dims)])

    def forward(self, x: Tensor, edges: Any) -> Tensor:
        """Compute the outputs of all nodes of `edges`, an edge_index, or of the seeds, if it is a list of `adjs`."""
        for position, layer in enumerate(self.layers):
            if isinstance(edges, Tensor):
                x = layer(x, edges)
            else:
                edge_index, _, (_, num_dst) = edges[position]
                x = layer((x, x[:num_dst]), edge_index)
            x = x if position == len(self.layers) - 1 else x.relu()
        return x


class WithPyg(InMemory):
    """PyG's NeighborLoader and layers, in memory."""

    def _build(self) -> Any:
        config, data = self._config, self._data
        torch.manual_seed(config.seed)
        return PygSage(data.num_features, config.hidden_dim, data.num_classes, len(config.fanouts))

    def _prepare(self, folder: Path) -> None:
        from torch_geometric.loader import NeighborLoader

        self._x, self._whole = self._data.x.clone(), self._data.graph.to_pyg()
        self._whole.x, self._whole.y = self._x, self._data.y
        self._loader = NeighborLoader(
            self._whole,
            num_neighbors=list(self._config.fanouts)[::-1],
            input_nodes=self._data.train_idx,
            batch_size=self._config.batch_size,
            shuffle=True,
        )

    @property
    def resident_bytes(self) -> int:
        return self._x.nbytes + self._whole.edge_index.nbytes

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        torch.manual_seed(self._config.seed + epoch)
        for batch in self._loader:
            batch = batch.to(self._config.device)
            out = self.model(batch.x.float(), batch.edge_index)[: batch.batch_size]
            loss = cross_entropy(out, batch.y[: batch.batch_size])
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            yield loss.detach()

    def forward(self, mb: wb.MiniBatch, inputs: Any) -> Tensor:
        return self.model(inputs.x.float(), mb.to_pyg().adjs)


def why_not(system: str, device: str) -> str:
    """Why a system can't train on a device here, checked before any work; empty if it can.

    PyG's loader needs pyg-lib or torch-sparse, which are compiled. Whether DGL was built for CUDA, only a copy tells.
    """
    if system == PYG:
        compiled = find_spec("pyg_lib") or find_spec("torch_sparse")
        return "" if find_spec("torch_geometric") and compiled else "PyG with pyg-lib or torch-sparse is not installed"
    if system != DGL:
        return ""
    if find_spec("dgl") is None:
        return "DGL is not installed"
    if device == "cpu":
        return ""
    dgl = import_dgl()
    try:
        dgl.graph(([0], [0])).to(device)
    except dgl.DGLError:
        return f"DGL {dgl.__version__} has no GPU {device}; install a build for CUDA, or train on the CPU"
    return ""


SYSTEMS: dict[str, type[InMemory]] = {
    MEMORY: InMemory,
    DISK: OnDisk,
    DGL: WithDgl,
    PYG: WithPyg,
    LAYER_WISE: LayerWise,
    REDUCED: OnReducedGraph,
}
