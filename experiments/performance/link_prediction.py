"""Link prediction beside DGL: training edges per second of DistMult alone and behind a layer of GraphSAGE.

Both sides train learnt rows and relations with inverse ones by Adagrad, from the same initial values, with the settings
of MariusGNN's example: all neighbours of both directions without the batch's own edges, chunks of pairs that share
negatives of both ends, a sum of cross entropies. The first batch's losses are compared before anything is timed.

DGL runs its own sampler and layers. Its negatives are scored by matrix products in torch (`products`) or by DGL's dot
product per pair (`pairs`); its rows are DGL's `NodeEmbedding` with `SparseAdagrad` (`dgl`) or torch's sparse ones
(`torch`).
"""

from collections.abc import Callable, Iterator
from itertools import chain, count, islice, repeat
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveInt
from torch import Tensor

import workbench as wb
from experiments.performance import speedup
from experiments.performance.link_prediction_dgl import DglLinks
from experiments.performance.timing import beside_dgl, limited_threads
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding
from workbench.links.knowledge_graph import KnowledgeGraph

LR = 0.1
_STD = 1e-3
_LABELS = {"none": "DistMult alone", "sage": "GraphSAGE, DistMult"}


class Config(DataPointConfig):
    """One encoder beside one form of DGL's loop.

    Args:
        encoder: of the rows; none: the decoder alone.
        scoring: of DGL's negatives.
        rows: of DGL.
        dim: width of the rows.
        batch_size: training edges per batch.
        chunks: that share negatives.
        negatives: per chunk and end.
        max_batches: batches that are timed at once.
        repeats: rounds.
        threads: of both sides; None: all.
    """

    encoder: Literal["none", "sage"]
    scoring: Literal["products", "pairs"] = "products"
    rows: Literal["dgl", "torch"] = "torch"
    dim: PositiveInt = 50
    batch_size: PositiveInt = 1000
    chunks: PositiveInt = 10
    negatives: PositiveInt = 500
    max_batches: PositiveInt
    repeats: PositiveInt
    threads: PositiveInt | None = None


def run(config: Config) -> Iterator[dict[str, Any]]:
    kg = config.dataset.load()
    assert isinstance(kg, KnowledgeGraph)
    with limited_threads(config.threads):
        torch.manual_seed(config.seed)
        ours = OurLinks(config, kg, start := _STD * torch.randn(kg.num_entities, config.dim))
        options = {"encoder": config.encoder, "rows": config.rows, "scoring": config.scoring, "lr": LR}
        theirs = DglLinks(kg, start, **options)
        ours.copy_parameters(theirs)
        check_equal(ours, theirs)
        times = beside_dgl(ours.train, dgl_train(config, kg, theirs), repeats=config.repeats)
    edges = config.max_batches * config.batch_size
    speeds = {f"{side}_edges_per_second": edges / times[f"{side}_seconds"] for side in ("ours", "dgl")}
    yield {"graph": config.dataset.name, "num_batches": config.max_batches, **speeds, **times}


class OurLinks:
    """The library's side: a loader, a model, rows and an optimizer."""

    def __init__(self, config: Config, kg: KnowledgeGraph, start: Tensor) -> None:
        self.config, self.kg = config, kg
        self.encoder = self._build_encoder() if config.encoder == "sage" else None
        self.decoder = wb.nn.DistMult(config.dim, num_relations=kg.num_relations, inverse=True)
        self.rows = wb.LearnedRows(start.clone(), lr=LR)
        self.modules = [module for module in (self.encoder, self.decoder) if module is not None]
        self.optimizer = torch.optim.Adagrad((p for module in self.modules for p in module.parameters()), lr=LR)
        self.loader = wb.edge_batches(
            kg.graph(inverse=True),
            kg.train[:, [0, 2]].T,
            relation=kg.train[:, 1],
            sampler=None if self.encoder is None else wb.FullNeighborSampler(1),
            batch_size=config.batch_size,
            negatives=wb.links.Negatives(config.negatives, chunks=config.chunks, ends="both"),
        )

        self.batches = chain.from_iterable(repeat(self.loader))  # epoch after epoch

    def train(self) -> None:
        """Train on the next batches."""
        for _, pairs, batch in islice(self.batches, self.config.max_batches):
            self.step(pairs, batch)

    def step(self, pairs: wb.links.EdgeBatch, batch: wb.MiniBatch) -> Tensor:
        model = self.encoder, self.decoder
        return wb.link_step(
            *model, pairs, batch, self.rows, wb.nn.softmax_pair_loss, self.optimizer, reduction="sum", verify=False
        )

    def copy_parameters(self, peer: DglLinks) -> None:
        """Take the initial parameters of DGL's side."""
        with torch.no_grad():
            self.decoder.relations.normal_(std=_STD)
            peer.relations.copy_(self.decoder.relations)
        if self.encoder is not None:
            assert peer.conv is not None
            self.encoder.layers[0].load_state_dict(peer.conv.state_dict())

    def _build_encoder(self) -> Any:
        dim = self.config.dim
        return wb.build_model("sage-mean", in_dim=dim, hidden_dim=dim, out_dim=dim, num_layers=1)


def check_equal(ours: OurLinks, theirs: DglLinks) -> None:
    """Check that both sides compute the same on one batch, twice: the second loss depends on the first step.

    The second losses are compared with torch's rows alone: DGL adds eps inside of the square root, which slows down the
    first steps of rows with small gradients.

    Args:
        ours: this library's side.
        theirs: DGL's side with the same parameters and rows.

    Raises:
        AssertionError: they differ.
    """
    config, kg = ours.config, ours.kg
    edges = torch.arange(min(config.batch_size, len(kg.train)))
    head, relation, tail = kg.train[edges].unbind(1)
    negatives = draw_negatives(config, kg)
    shared = {"negative_src": negatives[0], "negative_dst": negatives[1], "chunks": config.chunks}
    pairs = wb.links.EdgeBatch.from_pairs(head, tail, **shared, relation=relation)
    graph = kg.graph(inverse=True)
    excluded, batch = pairs.target_edges(graph), wb.MiniBatch(pairs.seeds, ())
    if ours.encoder is not None:
        batch = wb.FullNeighborSampler(1).sample(graph, pairs.seeds, exclude_edges=excluded)
    for _ in range(2 if config.rows == "torch" else 1):
        losses = ours.step(pairs, batch), theirs.step(edges, negatives, excluded)
        torch.testing.assert_close(*losses, rtol=1e-3, atol=0)


def draw_negatives(config: Config, kg: KnowledgeGraph) -> Tensor:
    """Uniform nodes that replace heads and tails, int64 [2, chunks, negatives]."""
    return torch.randint(kg.num_entities, (2, config.chunks, config.negatives))


def dgl_train(config: Config, kg: KnowledgeGraph, peer: DglLinks) -> Callable[[], None]:
    """A function that trains DGL's side on as many batches."""

    epochs = (torch.randperm(len(kg.train)).split(config.batch_size) for _ in count())
    batches = chain.from_iterable(epochs)

    def train() -> None:
        for edges in islice(batches, config.max_batches):
            peer.step(edges, draw_negatives(config, kg))

    return train


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    rows = _named(table)
    title = "Training edges per second beside DGL"
    return speedup.draw_ratios(rows, panel="model", case=["limit"], group="peer", title=title)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows: Any = _named(table)
    ratio = {"value": "ratio_best", "by": ["model", "peer", "limit"], "least": 2.0, "form": ".2f", "timed": True}
    found = []
    for scoring, text in (("pairs", "DGL's dot product per pair"), ("products", "matrix products in torch")):
        part = rows[rows.scoring == scoring]
        if len(part):
            statement = f"beside {text}, the library trains at least twice as many edges per second"
            found.append(claims.within(f"twice-{scoring}", statement, part, **ratio))
    return found


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    rows: Any = _named(table)
    groups = {"link prediction beside DGL": rows}
    for (model, peer), part in rows.groupby(["model", "peer"], sort=False):
        groups[f"{model}, DGL with {peer}"] = part
    return speedup.summary(groups)


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """Models, forms of DGL's loop and threads as text."""
    owners = {"dgl": "DGL's rows", "torch": "torch's rows"}
    peers = [f"{scoring}, {owners[rows]}" for scoring, rows in zip(table["scoring"], table["rows"], strict=True)]
    limit = table.threads.map("{:.0f} threads".format, na_action="ignore").fillna("all threads")
    return table.assign(model=table.encoder.map(_LABELS), peer=peers, limit=limit)
