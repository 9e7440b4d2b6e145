"""Link prediction with learnt rows, in memory and from disk: where rows and edges are, and in which order they come."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

import workbench as wb
from experiments.performance.link_prediction_dgl import DglLinks
from workbench.core.randomness import Purpose, permutation, stream
from workbench.experiment.config import DataPointConfig

MEMORY, COMET, BETA, BALANCED, DGL = "in memory", "COMET", "BETA", "balanced", "DGL"
Encoder = Literal["none", "sage-mean", "gat", "gat-self"]
EVALUATED = 4096
"""Entities per batch of an evaluation."""
System = Literal["in memory", "COMET", "BETA", "balanced", "DGL"]


class LinkConfig(DataPointConfig):
    """A model of link prediction and a system that trains it.

    Args:
        encoder: kind of the layer over learnt rows; "none": the decoder alone; "gat-self": GAT as in the artifact, with
            attention to the node itself.
        heads: of GAT, which are averaged; None: one.
        in_fanout: incoming neighbours that the encoder draws for every node, in training and in evaluation; None: all
            in- and out-neighbours.
        num_layers: layers of the encoder.
        system: "in memory", the order of the partitions from disk, or DGL's sampler and layers in memory.
        dim: width of all rows.
        std: standard deviation of the rows' and the relations' initial values.
        learning_rate: of Adagrad, for rows and parameters.
        batch_size: triples per step.
        chunks: of a batch, which share negatives.
        negatives: per chunk and end; from disk, nodes in the buffer.
        exclude: edges that are not sampled: "none", or those of the batch ("targets", or "both" directions).
        num_partitions: p, on disk.
        capacity: c, partitions in the buffer.
        num_groups: l, logical groups of COMET and the balanced order.
    """

    encoder: Encoder
    heads: PositiveInt | None = None
    in_fanout: PositiveInt | None = None
    num_layers: PositiveInt = 1
    system: System
    dim: PositiveInt
    std: float = Field(default=1e-3, gt=0)
    learning_rate: float = Field(default=0.1, gt=0)
    batch_size: PositiveInt
    chunks: PositiveInt
    negatives: PositiveInt
    exclude: Literal["none", "targets", "both"] = "none"
    num_partitions: PositiveInt
    capacity: PositiveInt
    num_groups: PositiveInt


class InMemory:
    """Learnt rows and edges in memory.

    Args:
        config: of the point.
        kg: the knowledge graph.
        folder: where a store may be built.
    """

    def __init__(self, config: LinkConfig, kg: wb.links.KnowledgeGraph, folder: Path) -> None:
        self.config, self.kg = config, kg
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.decoder = wb.nn.DistMult(config.dim, num_relations=kg.num_relations, inverse=True, std=config.std)
        dims = {"in_dim": config.dim, "hidden_dim": config.dim, "out_dim": config.dim}
        options: dict[str, Any] = {**dims, "num_layers": config.num_layers, "seed": config.seed}
        if config.encoder.startswith("gat"):
            options |= {"heads": config.heads or 1, "self_attention": config.encoder == "gat-self"}
        kind = config.encoder.removesuffix("-self")
        self.encoder = None if kind == "none" else wb.build_model(kind, **options)
        models = [self.decoder] if self.encoder is None else [self.decoder, self.encoder]
        for model in models:
            model.to(config.device)
        self._optimizer = torch.optim.Adagrad([p for m in models for p in m.parameters()], lr=config.learning_rate)
        self._loading: dict[str, Any] = {
            "sampler": None if self.encoder is None else self._sampler(config.seed),
            "batch_size": config.batch_size,
            "negatives": wb.links.Negatives(config.negatives, chunks=config.chunks, ends="both", seed=config.seed),
            "exclude": config.exclude,
            "seed": config.seed,
        }
        self._prepare(folder)

    def _sampler(self, seed: int) -> wb.DenseSampler:
        if self.config.in_fanout is not None:
            return wb.DenseSampler([self.config.in_fanout] * self.config.num_layers, seed=seed)
        everyone = [-1] * self.config.num_layers
        return wb.DenseSampler(everyone, out_fanouts=everyone)

    def _prepare(self, folder: Path) -> None:
        config, kg = self.config, self.kg
        self._rows = wb.LearnedRows(self._initial_values(), lr=config.learning_rate)
        pairs = {"pairs": kg.train[:, [0, 2]].T.contiguous(), "relation": kg.train[:, 1].contiguous()}
        self._batches = wb.edge_batches(kg.graph(), **pairs, **self._loading)

    def _initial_values(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.config.seed)
        return self.config.std * torch.randn(self.kg.num_entities, self.config.dim, generator=generator)

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        """Train an epoch; yields the sum of the losses of every batch."""
        for _, pairs, mb in self._batches.epoch(epoch):
            yield self._step(pairs, mb, self._rows)

    def _step(self, pairs: wb.links.EdgeBatch, mb: wb.MiniBatch, rows: Any) -> Tensor:
        options: dict[str, Any] = {"reduction": "sum"}
        return wb.link_step(
            self.encoder, self.decoder, pairs, mb, rows, wb.nn.softmax_pair_loss, self._optimizer, **options
        )

    def metrics(self, triples: Tensor) -> wb.training.LinkMetrics:
        """Filtered ranks, with as many neighbours as in training, of all training triples."""
        if self.encoder is None or self.config.in_fanout is None:
            return self.metrics_of_all(triples)
        return self._ranked(self._sampled(self.encoder), triples)

    def metrics_of_all(self, triples: Tensor) -> wb.training.LinkMetrics:
        """Filtered ranks, with all in- and out-neighbours."""
        options: dict[str, Any] = {"graph": self._all, "known": self.kg}
        return wb.training.evaluate_links(self.encoder, self.decoder, self._values(), triples, **options)

    def metrics_in_buffer(self, triples: Tensor, epoch: int) -> wb.training.LinkMetrics | None:
        """Filtered ranks of what the encoder computes from the buffer's graphs in training; None in memory."""
        return None

    def _ranked(self, outputs: Tensor, triples: Tensor) -> wb.training.LinkMetrics:
        return wb.training.evaluate_links(None, self.decoder, outputs, triples, known=self.kg)

    def _sampled(self, encoder: Any) -> Tensor:
        """The encoder's outputs for all entities, with neighbours drawn as in training."""
        nodes = torch.arange(self.kg.num_entities)
        options: dict[str, Any] = {"batch_size": EVALUATED, "shuffle": False, "epoch": 0}
        batches = wb.batches(self.kg.graph(), nodes, sampler=self._sampler(self.config.seed + 1), **options)
        return wb.sampled_logits(encoder, batches, self._values())[1]

    @cached_property
    def _all(self) -> wb.Graph | None:
        return None if self.encoder is None else self.kg.graph(inverse=True)

    def _values(self) -> Any:
        return self._rows

    def columns(self) -> dict[str, Any]:
        """What only training from disk has."""
        return {}


class OnDisk(InMemory):
    """Learnt rows, their state and edges in partitions on disk; an epoch passes them through a buffer."""

    def _prepare(self, folder: Path) -> None:
        config = self.config
        init = wb.outofcore.LearntInit(config.dim, std=config.std, seed=config.seed)
        sizes: dict[str, Any] = {"num_partitions": config.num_partitions, "seed": config.seed}
        self._store = wb.outofcore.PartitionStore.build(folder, self.kg.graph(), rows=init, **sizes)
        self._bytes, self._bias, self._loads = 0, 0.0, 0

    def order(self, epoch: int) -> wb.outofcore.BucketOrder:
        """The order of an epoch."""
        config = self.config
        if config.system == BETA:
            return wb.outofcore.beta_order(config.num_partitions, config.capacity, seed=config.seed, epoch=epoch)
        make = wb.outofcore.comet_order if config.system == COMET else wb.outofcore.balanced_order
        return make(config.num_partitions, config.capacity, config.num_groups, seed=config.seed, epoch=epoch)

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        links, rows, held = wb.Traffic(), None, None
        with wb.outofcore.PartitionBuffer(self._store, capacity=self.config.capacity, traffic=links) as buffer:
            batches = wb.outofcore.edge_batches(buffer, self.order, epoch=epoch, **self._loading)
            for state, _, pairs, mb in batches:
                if state is not held:
                    held = state
                    rows = wb.LearnedRows(state.rows, state.state_rows, lr=self.config.learning_rate)
                yield self._step(pairs, mb, rows)
        order = self.order(epoch)
        self._bytes, self._loads = links.snapshot().nbytes("disk"), order.num_loads
        self._bias = wb.outofcore.partition_bias(order, bucket_edges=self._store.bucket_edges)

    def _values(self) -> Tensor:
        return self._store.read()[self._raw]

    @property
    def _raw(self) -> Tensor:
        """Ids of the store of all entities."""
        return self._store.ids_of(torch.arange(self._store.num_nodes))

    def metrics_in_buffer(self, triples: Tensor, epoch: int) -> wb.training.LinkMetrics | None:
        """An entity's output is the mean over the states of the epoch that have it in the buffer, whose rows and edges
        alone are in memory.
        """
        if self.encoder is None:
            return None
        total, count = torch.zeros(self._store.num_nodes, self.config.dim), torch.zeros(self._store.num_nodes, 1)
        sampler = self._sampler(self.config.seed + 1)
        with wb.outofcore.PartitionBuffer(self._store, capacity=self.config.capacity) as buffer:
            for state in buffer.epoch(self.order(epoch)):
                here = state.ids.to_store(torch.arange(state.ids.num_nodes))
                batches = (
                    (state, step, state.sample(sampler, ids, step=step))
                    for step, ids in enumerate(here.split(EVALUATED))
                )
                seeds, outputs = wb.sampled_logits(self.encoder, batches)
                total[seeds] += outputs
                count[seeds] += 1
        return self._ranked((total / count)[self._raw], triples)

    def columns(self) -> dict[str, Any]:
        return {"disk_bytes": self._bytes, "num_loads": self._loads, "bias": self._bias}


class WithDgl(InMemory):
    """DGL's sampler and GraphSAGE in memory, torch's sparse rows; negatives are scored by matrix products.

    Training begins with the values of the library's model, which ranks the triples with the trained ones.

    Raises:
        ValueError: an encoder, or edges to exclude, that it has no form of.
    """

    def _prepare(self, folder: Path) -> None:
        config = self.config
        if config.encoder.startswith("gat") or config.in_fanout or config.exclude == "targets" or config.num_layers > 1:
            raise ValueError(
                f"encoder {config.encoder!r}, {config.num_layers} layers, exclude={config.exclude!r}: DGL's side "
                "has one layer of sage-mean or none, and excludes edges in both directions or none"
            )
        encoder = "none" if self.encoder is None else "sage"
        options = {"rows": "torch", "scoring": "products", "lr": config.learning_rate}
        self._peer = DglLinks(self.kg, self._initial_values(), encoder=encoder, **options)
        with torch.no_grad():
            self._peer.relations.copy_(self.decoder.relations)
        if self.encoder is not None and self._peer.conv is not None:
            self._peer.conv.load_state_dict(self.encoder.layers[0].state_dict())

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        config, kg = self.config, self.kg
        excluded = torch.empty(0, dtype=torch.int64) if config.exclude == "none" else None
        order = permutation(stream(config.seed, Purpose.SHUFFLE, epoch), len(kg.train))
        generator = torch.Generator().manual_seed(config.seed + epoch)
        for edges in order.split(config.batch_size):
            shape = 2, config.chunks, config.negatives
            yield self._peer.step(edges, torch.randint(kg.num_entities, shape, generator=generator), excluded)

    def metrics(self, triples: Tensor) -> wb.training.LinkMetrics:
        with torch.no_grad():
            self.decoder.relations.copy_(self._peer.relations)
        if self.encoder is not None and self._peer.conv is not None:
            self.encoder.layers[0].load_state_dict(self._peer.conv.state_dict())
        return super().metrics(triples)

    def _values(self) -> Tensor:
        return self._peer.rows.weight.detach()


SYSTEMS: dict[str, type[InMemory]] = {MEMORY: InMemory, COMET: OnDisk, BETA: OnDisk, BALANCED: OnDisk, DGL: WithDgl}
