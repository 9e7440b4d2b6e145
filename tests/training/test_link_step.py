"""Steps on pairs: parts equal the whole batch, rows included, for all encoders, decoders and losses."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import workbench as wb

NODES, DIM, RELATIONS = 60, 4, 3
GENERATOR = torch.Generator().manual_seed(0)
SRC, DST = torch.randint(NODES, (2, 300), generator=GENERATOR)
RELATION = torch.randint(RELATIONS, (300,), generator=GENERATOR)
GRAPH = wb.Graph.from_edges(SRC, DST, num_nodes=NODES, edge_type=RELATION, undirected="multi")
KNOWN = wb.Graph.from_edges(SRC, DST, num_nodes=NODES, edge_type=RELATION)
PAIRS = torch.stack((SRC, DST))
NEGATIVES = wb.links.Negatives(12, chunks=3, ends="both", by_degree=0.5, from_batch=True)
START = torch.randn(NODES, DIM, dtype=torch.float64, generator=GENERATOR)

ENCODERS: dict[str, Callable[[], nn.Module | None]] = {
    "none": lambda: None,
    "sage": lambda: wb.build_model("sage-mean", in_dim=DIM, hidden_dim=5, out_dim=DIM, num_layers=2),
    "gat": lambda: wb.build_model("gat", in_dim=DIM, hidden_dim=4, out_dim=DIM, num_layers=1, heads=2),
    "rgcn": lambda: wb.build_model(
        "rgcn", in_dim=DIM, hidden_dim=5, out_dim=DIM, num_layers=2, num_relations=2 * RELATIONS, num_bases=2
    ),
}
DECODERS: dict[str, Callable[[], wb.nn.Decoder]] = {
    "distmult": lambda: wb.nn.DistMult(DIM, num_relations=RELATIONS, inverse=True, std=1),
    "complex": lambda: wb.nn.ComplEx(DIM, num_relations=RELATIONS, std=1),
    "transe": lambda: wb.nn.TransE(DIM, num_relations=RELATIONS, std=1),
    "dot": lambda: wb.nn.DotProduct(DIM),
}
CASES = [
    ("none", "distmult", wb.nn.softmax_pair_loss, "sum"),
    ("none", "dot", wb.nn.logistic_pair_loss, "mean"),
    ("sage", "distmult", wb.nn.softmax_pair_loss, "mean"),
    ("sage", "transe", wb.nn.logistic_pair_loss, "mean"),
    ("gat", "complex", wb.nn.softmax_pair_loss, "mean"),
    ("rgcn", "distmult", wb.nn.logistic_pair_loss, "sum"),
]


class Training:
    """A model, its rows, and the optimizer of its parameters, from the same start."""

    def __init__(self, encoder: str, decoder: str, loss: Any, reduction: str = "mean") -> None:
        torch.manual_seed(0)
        self.encoder, self.decoder = ENCODERS[encoder](), DECODERS[decoder]().double()
        modules = [m.double() for m in (self.encoder, self.decoder) if m is not None]
        self.parameters = [p for module in modules for p in module.parameters()]
        # A first step from zero is the sign of the gradient, which amplifies the rounding of gradients near zero.
        self.values, self.state = START.clone(), torch.full_like(START, 0.01)
        self.rows = wb.LearnedRows(self.values, self.state, lr=0.2)
        # TransE does not change if all rows are shifted: the gradient of a bias is rounding, which Adagrad would scale.
        method = torch.optim.Adagrad if self.encoder is None else torch.optim.SGD
        self.optimizer = method(self.parameters, lr=0.1) if self.parameters else None
        self.loss, self.reduction = loss, reduction

    def step(self, pairs: Any, micro: Any, rows: Any = None, **options: Any) -> Tensor:
        rows = self.rows if rows is None else rows
        model = self.encoder, self.decoder
        return wb.link_step(*model, pairs, micro, rows, self.loss, self.optimizer, reduction=self.reduction, **options)

    def tensors(self) -> list[Tensor]:
        return [self.values, self.state, *(x.detach() for x in self.parameters)]


def batches(sampler: wb.Sampler | None, **options: Any) -> wb.sampling.Batches[Any]:
    defaults = {"sampler": sampler, "batch_size": 100, "relation": RELATION, "negatives": NEGATIVES, "epoch": 0}
    return wb.edge_batches(GRAPH, PAIRS, **defaults | options)


def sampler_of(encoder: str) -> wb.Sampler | None:
    layers = {"none": 0, "gat": 1}.get(encoder, 2)
    return wb.NeighborSampler([3] * layers) if layers else None


def cut(method: str, pairs: wb.links.EdgeBatch, mb: wb.MiniBatch) -> list[wb.links.EdgeBatch]:
    """Parts of the pairs: at random, or each where REG puts its destination."""
    if method == "random":
        return pairs.split(torch.randint(4, (pairs.num_pairs,), generator=torch.Generator().manual_seed(1)))
    return pairs.split(wb.partition_batch(mb, 3, method="reg")[pairs.dst])


# Without blocks there is no computation graph for REG to partition.
CUTS = [(case, method) for case in CASES for method in ("random", "reg") if (case[0], method) != ("none", "reg")]


@pytest.mark.parametrize(("case", "method"), CUTS, ids=lambda x: x if isinstance(x, str) else f"{x[0]}-{x[1]}")
def test_parts_equal_the_whole_batch(case: Any, method: str) -> None:
    encoder, *rest = case
    whole, parts = (Training(encoder, *rest) for _ in range(2))
    for _, pairs, mb in batches(sampler_of(encoder)):
        pieces = cut(method, pairs, mb)
        assert len(pieces) > 2
        losses = whole.step(pairs, mb), parts.step(pieces, mb)
        torch.testing.assert_close(*losses, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(parts.tensors(), whole.tensors(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    assert not torch.equal(whole.values, START)


@pytest.mark.parametrize("loss", [wb.nn.softmax_pair_loss, wb.nn.logistic_pair_loss])
@pytest.mark.parametrize("ends", ["dst", "src", "either"])
def test_negatives_of_each_pair(loss: Any, ends: Any) -> None:
    """Not shared by a chunk: the loss is that of scores pair by pair, in parts as in one."""
    negatives = wb.links.Negatives(3, ends=ends, avoid_edges=True)
    _, pairs, mb = next(iter(batches(sampler_of("sage"), negatives=negatives)))
    assert pairs.chunk is None and pairs.neg_src is not None and pairs.neg_dst is not None
    whole, parts = (Training("sage", "distmult", loss) for _ in range(2))
    h = whole.encoder(mb.blocks, START[mb.node_ids])  # pyright: ignore[reportOptionalCall]
    positive = whole.decoder(h[pairs.src], pairs.relation, h[pairs.dst])
    assert pairs.relation is not None
    negative = whole.decoder(h[pairs.neg_src], pairs.relation.repeat_interleave(3), h[pairs.neg_dst]).view(-1, 3)
    expected = loss(positive, negative).detach()
    for found in (whole.step(pairs, mb), parts.step(cut("reg", pairs, mb), mb)):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(parts.tensors(), whole.tensors(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_equals_a_loop_in_plain_torch() -> None:
    """The whole step, with masked negatives, against an embedding, torch's Adagrad and scores pair by pair."""
    ours = Training("none", "distmult", wb.nn.softmax_pair_loss, "sum")
    nodes = nn.Embedding.from_pretrained(START.clone(), freeze=False)
    relations = nn.Embedding.from_pretrained(ours.decoder.relations.detach().clone(), freeze=False)
    theirs = [
        torch.optim.Adagrad(nodes.parameters(), lr=0.2, initial_accumulator_value=0.01),
        torch.optim.Adagrad(relations.parameters(), lr=0.1),
    ]
    masked = 0
    for _, pairs, mb in batches(None):
        loss = ours.step(pairs, mb, known=KNOWN)
        mask = wb.links.false_negatives(pairs, KNOWN)
        masked += int(mask.sum())
        for optimizer in theirs:
            optimizer.zero_grad()
        h, r, t = pairs.seeds[pairs.src], pairs.relation, pairs.seeds[pairs.dst]
        assert r is not None and pairs.chunk is not None
        expected = torch.zeros((), dtype=torch.float64)
        for end, kept, other, relation, mine in (
            ("src", t, h, r + RELATIONS, mask[:, :12]),
            ("dst", h, t, r, mask[:, 12:]),
        ):
            query = nodes(kept) * relations(relation)
            negative = nodes(pairs.seeds[getattr(pairs, f"neg_{end}")[pairs.chunk]])
            scores = torch.cat(((query * nodes(other)).sum(1, keepdim=True), (query[:, None] * negative).sum(2)), 1)
            scores[:, 1:][mine] = -torch.inf
            expected = expected + nn.functional.cross_entropy(scores, torch.zeros(len(h)).long(), reduction="sum")
        expected.backward()
        for optimizer in theirs:
            optimizer.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-10, atol=1e-10)
    assert masked
    torch.testing.assert_close(ours.values, nodes.weight.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(ours.decoder.relations.detach(), relations.weight.detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("encoder", ["none", "rgcn"])
def test_masked_parts_equal_the_whole_batch(encoder: str) -> None:
    losses = []
    for method in ("whole", "random"):
        training = Training(encoder, "distmult", wb.nn.logistic_pair_loss)
        for _, pairs, mb in batches(sampler_of(encoder)):
            losses.append(training.step(pairs if method == "whole" else cut(method, pairs, mb), mb, known=KNOWN))
        losses += training.tensors()
    half = len(losses) // 2
    for found, expected in zip(losses[half:], losses[:half], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


class Scaled(wb.nn.DistMult):
    """Scores divided by a learnt temperature; `forward` gets rows pair by pair, as documented."""

    def __init__(self, **options: Any) -> None:
        super().__init__(DIM, **options)
        self.temperature = nn.Parameter(torch.tensor(-0.25))  # below 0, so that it turns the ranks over

    def forward(self, head: Tensor, relation: Tensor | None, tail: Tensor, *, end: str = "dst") -> Tensor:
        assert head.dim() == tail.dim() == 2
        return super().forward(head, relation, tail, end=end) / self.temperature

    def against(self, kept: Tensor, relation: Tensor | None, candidates: Tensor, *, end: str = "dst") -> Tensor:
        return super().against(kept, relation, candidates, end=end) / self.temperature


@pytest.mark.parametrize("loss", [wb.nn.softmax_pair_loss, wb.nn.logistic_pair_loss])
def test_a_decoder_of_ones_own_trains_with_the_scores_that_it_is_ranked_with(loss: Any) -> None:
    torch.manual_seed(0)
    decoder = Scaled(num_relations=RELATIONS, inverse=True, std=1).double()
    relations, temperature = (p.detach().clone().requires_grad_() for p in (decoder.relations, decoder.temperature))
    optimizer = torch.optim.SGD(decoder.parameters(), lr=0.0)
    _, pairs, mb = next(iter(batches(None)))
    found = wb.link_step(None, decoder, pairs, mb, START, loss, optimizer, reduction="sum")
    h, r, t = START[pairs.seeds[pairs.src]], pairs.relation, START[pairs.seeds[pairs.dst]]
    assert r is not None and pairs.chunk is not None
    expected = torch.zeros((), dtype=torch.float64)
    for end, kept, other, relation in (("src", t, h, r + RELATIONS), ("dst", h, t, r)):
        query = kept * relations[relation] / temperature
        negative = START[pairs.seeds[getattr(pairs, f"neg_{end}")[pairs.chunk]]]
        expected = expected + loss((query * other).sum(1), (query[:, None] * negative).sum(2), reduction="sum")
    expected.backward()
    torch.testing.assert_close(found, expected.detach(), rtol=1e-10, atol=1e-10)
    for ours, theirs in ((decoder.relations, relations), (decoder.temperature, temperature)):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-10)
    triples = torch.stack((SRC, RELATION, DST), 1)[:20]
    scores = (START[triples[:, 0]] * relations[triples[:, 1]] / temperature) @ START.T
    ranks = 1 + (scores > scores.gather(1, triples[:, 2:])).sum(1)
    assert torch.equal(wb.training.rank_triples(decoder, START, triples, ends=["dst"])[0], ranks.double())


def has_targets(pairs: wb.links.EdgeBatch, mb: wb.MiniBatch) -> bool:
    """Whether an edge between the ends of a pair, in either direction, was sampled."""
    ends = zip(pairs.seeds[pairs.src].tolist(), pairs.seeds[pairs.dst].tolist(), strict=True)
    targets = {pair for s, d in ends for pair in ((s, d), (d, s))}
    sampled = {
        (s, d)
        for block in mb.blocks
        for s, d in zip(mb.node_ids[block.indices].tolist(), mb.node_ids[block.destinations].tolist(), strict=True)
    }
    return bool(targets & sampled)


@pytest.mark.parametrize("sampler", [wb.NeighborSampler([3, 3]), wb.FullNeighborSampler(2), wb.DenseSampler([3, 3])])
def test_target_edges_do_not_leak(sampler: wb.Sampler) -> None:
    kept = [has_targets(pairs, mb) for _, pairs, mb in batches(sampler, exclude="none")]
    left_out = [has_targets(pairs, mb) for _, pairs, mb in batches(sampler, exclude="both")]
    assert all(kept) and not any(left_out)


def test_every_edge_is_trained_once() -> None:
    trained = torch.cat(
        [torch.stack((b.seeds[b.src], b.relation, b.seeds[b.dst]), 1) for _, b, _ in batches(None, batch_size=70)]
    )
    expected = torch.stack((SRC, RELATION, DST), 1)
    assert sorted(trained.tolist()) == sorted(expected.tolist())


def test_fixed_features_are_not_trained() -> None:
    features, training = START.clone(), Training("sage", "dot", wb.nn.softmax_pair_loss)
    before = [p.detach().clone() for p in training.parameters]
    _, pairs, mb = next(iter(batches(sampler_of("sage"))))
    training.step(pairs, mb, features)
    assert torch.equal(features, START)
    assert any(not torch.equal(p, old) for p, old in zip(training.parameters, before, strict=True))


def interrupt(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(1000))  # handled by now


@pytest.mark.parametrize("moment", ["before the step", "within the step"])
def test_interrupts(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters and rows change together, or not at all."""
    training = Training("none", "distmult", wb.nn.softmax_pair_loss)
    _, pairs, mb = next(iter(batches(None)))
    before = [x.clone() for x in training.tensors()]
    options = {"before_step": interrupt} if moment == "before the step" else {}
    if not options:
        assert training.optimizer is not None
        training.optimizer.register_step_post_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        training.step(pairs, mb, **options)
    changed = [not torch.equal(now, old) for now, old in zip(training.tensors(), before, strict=True)]
    assert changed == [not options] * len(changed)


def test_gradients_of_a_failed_step_are_discarded() -> None:
    training, other = (Training("none", "distmult", wb.nn.softmax_pair_loss) for _ in range(2))
    (_, first, mb), (_, second, mb2), *_ = batches(None)
    with pytest.raises(KeyboardInterrupt):
        training.step(first, mb, before_step=interrupt)
    training.step(second, mb2)
    other.step(second, mb2)
    assert all(torch.equal(a, b) for a, b in zip(training.tensors(), other.tensors(), strict=True))


def test_refusals() -> None:
    training = Training("none", "distmult", wb.nn.softmax_pair_loss)
    (_, pairs, mb), (_, others, _), *_ = batches(None)
    parts = pairs.split(torch.arange(100) % 2)
    with pytest.raises(ValueError, match="2 parts of pairs and 1 micro-batches"):
        training.step(parts, [mb])
    with pytest.raises(ValueError, match="seeds of the pairs and of the batch differ"):
        training.step(others, mb)
    with pytest.raises(ValueError, match="no parent"):
        training.step([pairs], mb)
    with pytest.raises(ValueError, match="reduction 'max' is not known"):
        Training("none", "dot", wb.nn.softmax_pair_loss, "max").step(pairs, mb)
    with pytest.raises(TypeError, match=r"pairs is a MiniBatch.*pass the EdgeBatch"):
        training.step(mb, pairs)
    with pytest.raises(TypeError, match="decoder is"):
        wb.link_step(None, nn.Linear(4, 4), pairs, mb, START, wb.nn.softmax_pair_loss, None)  # pyright: ignore
    with pytest.raises(ValueError, match="optimizer is None"):
        wb.link_step(None, training.decoder, pairs, mb, training.rows, wb.nn.softmax_pair_loss, None)
    with pytest.raises(IndexError, match="rows has 10 rows"):
        training.step(pairs, mb, START[:10])


def test_the_mean_divides_by_the_total_of_all_processes() -> None:
    _, pairs, mb = next(iter(batches(None)))
    loss = wb.nn.softmax_pair_loss
    summed = float(Training("none", "distmult", loss, "sum").step(pairs, mb))
    totals: list[Any] = [None, 0.5, 250, torch.tensor(250)]
    means = [float(Training("none", "distmult", loss).step(pairs, mb, total=total)) for total in totals]
    assert means == pytest.approx([summed / pairs.num_pairs, summed / 0.5, summed / 250, summed / 250])


@pytest.mark.parametrize(
    ("total", "reduction", "error", "message"),
    [
        (0, "mean", ValueError, "total is 0; pass the positive number of pairs of all processes"),
        (-3, "mean", ValueError, "total is -3"),
        (float("inf"), "mean", ValueError, "total is inf"),
        (float("nan"), "mean", ValueError, "total is nan"),
        (lambda count: count, "mean", TypeError, "total is a function; pass a number"),
        ("7", "mean", TypeError, "total is a str; pass a number"),
        (7, "sum", ValueError, "total is 7, but reduction 'sum' divides by nothing; omit total"),
    ],
)
def test_wrong_totals_are_refused_before_gradients_are_zeroed(
    total: Any, reduction: str, error: Any, message: str
) -> None:
    _, pairs, mb = next(iter(batches(None)))
    training = Training("none", "distmult", wb.nn.softmax_pair_loss, reduction)
    training.step(pairs, mb)
    with pytest.raises(error, match=message):
        training.step(pairs, mb, total=total)
    gradient = training.decoder.relations.grad
    assert gradient is not None and gradient.any()


def test_one_batch_serves_two_sets_of_pairs() -> None:
    _, pairs, mb = next(iter(batches(sampler_of("none"))))
    other = replace(pairs, relation=(pairs.relation + 1) % RELATIONS)
    first, second, both = (Training("none", "distmult", wb.nn.softmax_pair_loss, "sum") for _ in range(3))
    alone = float(first.step(pairs, mb)) + float(second.step(other, mb))
    assert float(both.step([pairs, other], [mb, mb])) == pytest.approx(alone)


def test_steps_in_autocast() -> None:
    _, pairs, mb = next(iter(batches(sampler_of("none"))))
    losses = []
    for enabled in (False, True):
        torch.manual_seed(0)
        decoder = wb.nn.DistMult(DIM, num_relations=RELATIONS, inverse=True, std=1)
        rows, optimizer = wb.LearnedRows(START.float(), lr=0.1), torch.optim.SGD(decoder.parameters(), lr=0.1)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            losses.append(float(wb.link_step(None, decoder, pairs, mb, rows, wb.nn.softmax_pair_loss, optimizer)))
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_scores_of_autocast_have_gradients() -> None:
    decoder = wb.nn.DistMult(DIM, num_relations=RELATIONS)
    _, pairs, mb = next(iter(batches(sampler_of("none"))))
    h = torch.randn(mb.num_inputs, DIM, requires_grad=True)
    gradients = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            scores = wb.nn.pair_scores(decoder, h, pairs)
            loss = torch.stack([wb.nn.softmax_pair_loss(one.positive, one.negative) for one in scores]).sum()
        gradients.append(torch.autograd.grad(loss, h)[0])
    assert float((gradients[1] - gradients[0]).norm()) < 0.02 * float(gradients[0].norm())
