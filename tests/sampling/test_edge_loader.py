"""Epochs of pairs: each pair once, targets excluded, and exact training on parts of an edge batch."""

import pytest
import torch
from torch import Tensor

from tests.strategies import random_graph
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.links.edge_batch import EdgeBatch
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.links.negatives import Negatives
from workbench.nn.model import build_model
from workbench.sampling.edge_batches import edge_batches
from workbench.sampling.neighbor import FullNeighborSampler, NeighborSampler
from workbench.training.accumulate import accumulate

GRAPH = random_graph(40, 300, seed=2)
PAIRS = torch.stack([GRAPH.indices.long(), torch.repeat_interleave(torch.arange(40), GRAPH.in_degrees())])[:, ::7]
OPTIONS = {"sampler": NeighborSampler([3, 2], edge_ids=True), "batch_size": 8}


def raw(batch: EdgeBatch) -> list[list[int]]:
    return torch.stack([batch.seeds[batch.src], batch.seeds[batch.dst]], 1).tolist()


def test_an_epoch_has_every_pair_once_in_an_order_of_its_own() -> None:
    relation = torch.arange(PAIRS.shape[1])
    orders = []
    for epoch in (0, 1):
        batches = list(edge_batches(GRAPH, PAIRS, **OPTIONS, relation=relation, epoch=epoch))
        assert [step for step, _, _ in batches] == list(range(len(batches) * epoch, len(batches) * (epoch + 1)))
        orders.append(torch.cat([pairs.relation for _, pairs, _ in batches if pairs.relation is not None]))
        assert [pair for _, pairs, _ in batches for pair in raw(pairs)] == PAIRS.T[orders[-1]].tolist()
        assert all(torch.equal(mb.seeds, pairs.seeds) and mb.step == step for step, pairs, mb in batches)
    assert not torch.equal(*orders) and torch.equal(orders[0].sort().values, relation)
    in_order = [pair for _, pairs, _ in edge_batches(GRAPH, PAIRS, **OPTIONS, shuffle=False) for pair in raw(pairs)]
    assert in_order == PAIRS.T.tolist()
    sizes = [pairs.num_pairs for _, pairs, _ in edge_batches(GRAPH, PAIRS, **OPTIONS, drop_last=True)]
    assert sizes == [8] * (PAIRS.shape[1] // 8)


@pytest.mark.parametrize("exclude", ["none", "targets", "both"])
def test_excluded_edges_are_not_sampled(exclude: str) -> None:
    edges = {int(e): (int(s), int(d)) for e, s, d in zip(GRAPH.edge_ids, GRAPH.indices, _rows(GRAPH), strict=True)}  # type: ignore[arg-type]
    options = {**OPTIONS, "sampler": FullNeighborSampler(1, edge_ids=True)}
    leaked = reverse = 0
    for _, pairs, mb in edge_batches(GRAPH, PAIRS, **options, exclude=exclude):
        targets = {tuple(pair) for pair in raw(pairs)}
        assert mb.blocks[0].edge_ids is not None
        drawn = [edges[e] for e in mb.blocks[0].edge_ids.tolist()]
        leaked += sum(edge in targets for edge in drawn)
        reverse += sum(edge[::-1] in targets and edge not in targets for edge in drawn)
    assert (leaked > 0) == (exclude == "none")
    assert (reverse > 0) == (exclude != "both")


def _rows(graph: Graph) -> Tensor:
    return torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees())


def test_negatives_are_drawn_per_step() -> None:
    negatives = Negatives(5, chunks=2, ends="both", by_degree=0.4, seed=4)
    for step, pairs, _ in edge_batches(GRAPH, PAIRS, **OPTIONS, negatives=negatives, epoch=2):
        expected = negatives.draw(GRAPH, pairs.seeds[pairs.src], pairs.seeds[pairs.dst], step=step)
        assert torch.equal(pairs.seeds, expected.seeds)
        assert pairs.neg_src is not None and torch.equal(pairs.neg_src, expected.neg_src)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16])
def test_relations_may_have_any_dtype_of_edge_types(dtype: torch.dtype) -> None:
    relation = torch.arange(PAIRS.shape[1])
    for negatives in (None, Negatives(2, chunks=2)):
        for _, pairs, _ in edge_batches(GRAPH, PAIRS, **OPTIONS, relation=relation.to(dtype), negatives=negatives):
            assert pairs.relation is not None and pairs.relation.dtype == torch.int64
            assert raw(pairs) == PAIRS.T[pairs.relation].tolist()


def test_knowledge_graphs_and_decoders_without_a_graph() -> None:
    triples = torch.tensor([[0, 1, 2], [2, 0, 0], [3, 1, 1], [0, 2, 2]])
    kg = KnowledgeGraph.build(triples, triples[:0], triples[:0], num_entities=5, num_relations=3)
    graph, negatives = kg.graph(inverse=True), Negatives(3, chunks=2)
    found = list(
        edge_batches(
            graph, kg.train[:, [0, 2]].T, sampler=None, batch_size=3, relation=kg.train[:, 1], negatives=negatives
        )
    )
    assert [len(mb.blocks) for _, _, mb in found] == [0, 0] and torch.equal(found[0][1].seeds, found[0][2].node_ids)
    heads_and_tails = [(*pair, int(r)) for _, b, _ in found for pair, r in zip(raw(b), b.relation, strict=True)]  # type: ignore[arg-type]
    assert sorted(heads_and_tails) == sorted((h, t, r) for h, r, t in triples.tolist())


def softmax_loss(pairs: EdgeBatch, h: Tensor, relations: Tensor) -> Tensor:
    """DistMult with a softmax over each pair's positive and negative scores, summed over pairs."""
    flat = pairs.per_pair()
    assert pairs.relation is not None and flat.neg_src is not None and flat.neg_dst is not None
    of_pairs = relations[pairs.relation]
    positive = (h[pairs.src] * of_pairs * h[pairs.dst]).sum(1)
    of_negatives = of_pairs.repeat_interleave(pairs.num_negatives, 0)
    negative = (h[flat.neg_src] * of_negatives * h[flat.neg_dst]).sum(1).view(pairs.num_pairs, -1)
    return (torch.cat([positive[:, None], negative], 1).logsumexp(1) - positive).sum()


@pytest.mark.parametrize("chunks", [None, 3])
def test_parts_of_an_edge_batch_train_like_the_whole(chunks: int | None) -> None:
    """The parts' seeds in the whole batch (`parent`) select their micro-batches; nothing is sampled again."""
    options = {**OPTIONS, "batch_size": 20}
    relation, negatives = torch.arange(PAIRS.shape[1]) % 2, Negatives(4, chunks=chunks, ends="both", by_degree=0.5)
    _, pairs, mb = next(iter(edge_batches(GRAPH, PAIRS, **options, relation=relation, negatives=negatives)))
    x = torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    relations = torch.randn(2, 5, dtype=torch.float64).requires_grad_()

    def gradients(parts: list[EdgeBatch], micro: list[MiniBatch]) -> list[Tensor]:
        model = build_model("sage-mean", in_dim=6, hidden_dim=7, out_dim=5).double()
        part_of = {id(m): part for m, part in zip(micro, parts, strict=True)}
        relations.grad = None
        loss = accumulate(
            model, micro, lambda m: x[m.node_ids], lambda h, m: softmax_loss(part_of[id(m)], h, relations)
        )
        return [loss, relations.grad, *(p.grad for p in model.parameters())]  # type: ignore[list-item]

    whole = gradients([pairs], [mb])
    parts = pairs.split(torch.arange(20) % 3 + (torch.arange(20) > 15))
    micro = mb.select([part.parent for part in parts])  # type: ignore[misc]
    assert len(parts) == 4 and all(torch.equal(m.seeds, p.seeds) for m, p in zip(micro, parts, strict=True))
    for ours, theirs in zip(gradients(parts, micro), whole, strict=True):
        assert (ours - theirs).norm() <= 1e-10 * theirs.norm()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"pairs": PAIRS.T}, ValueError, r"pairs have shape \(43, 2\); pass \[2, n\]"),
        ({"pairs": PAIRS.tolist()}, TypeError, "pairs is a list; pass a tensor"),
        ({"pairs": PAIRS + 30}, IndexError, r"pairs\[0\] contains"),
        ({"pairs": torch.stack([PAIRS[0], PAIRS[1] + 30])}, IndexError, r"pairs\[1\] contains"),
        ({"pairs": PAIRS.float()}, TypeError, r"pairs\[0\] must be an int64 or int32 tensor, not torch.float32"),
        ({"relation": PAIRS[0, :3]}, ValueError, "relation has shape"),
        ({"relation": PAIRS[0].float()}, TypeError, "relation must be a tensor of torch.int64 or .*not torch.float32"),
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"epoch": -1}, ValueError, "epoch is -1"),
        ({"exclude": "self"}, ValueError, "choose from both, none, targets"),
    ],
)
def test_bad_arguments_are_refused_by_the_call(change, error, message) -> None:
    with pytest.raises(error, match=message):
        edge_batches(**({"graph": GRAPH, "pairs": PAIRS} | OPTIONS | change))
