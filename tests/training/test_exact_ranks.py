"""Ranks of rows in every dtype and at every scale, against NumPy's equations in float64, candidate by candidate."""

import itertools
import re

import numpy as np
import pytest
import torch

import workbench as wb
from tests.covering import pairwise
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.nn.decoders import ENDS, Decoder

NODES, RELATIONS, DIM = 13, 2, 6
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class RotatE(Decoder):
    """−Σ_d |h_d · e^{iθ_d} − t_d|, an equation of the caller's own, without products."""

    def query(self, kept, relation, end):
        real, imaginary = kept.chunk(2, -1)
        angle = relation.chunk(2, -1)[0]
        cos, sin = angle.cos(), angle.sin() if end == "dst" else -angle.sin()
        return torch.cat((real * cos - imaginary * sin, real * sin + imaginary * cos), -1)

    def compare(self, query, row):
        real, imaginary = (query - row).chunk(2, -1)
        return -(real**2 + imaginary**2).sqrt().sum(-1)


class Biased(Decoder):
    """A score that overrides `forward`."""

    def query(self, kept, relation, end):
        return kept * relation

    def forward(self, head, relation, tail, *, end="dst"):
        return super().forward(head, relation, tail, end=end) - tail.abs().sum(-1)


def as_complex(row):
    return row[: DIM // 2] + 1j * row[DIM // 2 :]


def length(row):
    return np.sqrt(row.real**2 + row.imag**2)


DECODERS = {
    "DistMult": (wb.nn.DistMult, lambda h, r, t: (h * r * t).sum()),
    "ComplEx": (wb.nn.ComplEx, lambda h, r, t: (as_complex(h) * as_complex(r) * as_complex(t).conj()).real.sum()),
    "TransE": (wb.nn.TransE, lambda h, r, t: -np.sqrt(((h + r - t) ** 2).sum())),
    "TransE-1": (lambda *a, **k: wb.nn.TransE(*a, p=1, **k), lambda h, r, t: -np.abs(h + r - t).sum()),
    "RotatE": (RotatE, lambda h, r, t: -length(as_complex(h) * np.exp(1j * r[: DIM // 2]) - as_complex(t)).sum()),
    "Biased": (Biased, lambda h, r, t: (h * r * t).sum() - np.abs(t).sum()),
    "dot": (lambda dim, **_: wb.nn.DotProduct(dim), lambda h, r, t: (h * t).sum()),
}


def build(name, dtype, scale=1.0):
    decoder = DECODERS[name][0](DIM, num_relations=RELATIONS).to(dtype).requires_grad_(False)
    if decoder.num_relations:  # RotatE turns nothing, so that ties stay ties
        values = torch.randint(1, 4, decoder.relations.shape, generator=torch.Generator().manual_seed(7))
        by = scale if name.startswith("TransE") else 0.0 if name == "RotatE" else 1.0
        decoder.relations.copy_(values.double() * by)
    return decoder


def coarse(dtype, scale, seed=0):
    """Rows of few values, of which many scores tie."""
    values = torch.randint(-2, 3, (NODES, DIM), generator=torch.Generator().manual_seed(seed))
    return (values.double() * scale).to(dtype)


def fine(dtype, scale, seed=0):
    """Rows whose scores differ by less than half precision has, and copies of them, which tie."""
    generator = torch.Generator().manual_seed(seed)
    rows = 1 + 0.01 * torch.randn(NODES, DIM, generator=generator, dtype=torch.float64)
    rows[NODES // 2 + 1 :] = rows[: NODES // 2]
    return (rows * scale).to(dtype)


def knowledge():
    triples = torch.randint(NODES, (3, 30), generator=torch.Generator().manual_seed(3)).T.contiguous()
    triples[:, 1] %= RELATIONS
    return KnowledgeGraph.build(triples[:20], triples[20:25], triples[25:], num_entities=NODES, num_relations=RELATIONS)


KG = knowledge()
FACTS = {tuple(t) for t in torch.cat((KG.train, KG.valid, KG.test)).tolist()}


def brute_force(name, decoder, rows, *, facts=(), candidates=None):
    """Ranks of KG.test, and the largest magnitude of a score."""
    equation, x = DECODERS[name][1], rows.double().numpy()
    relations = decoder.relations.double().numpy() if decoder.num_relations else np.zeros((RELATIONS, DIM))
    ranks, most = np.empty((2, len(KG.test))), 0.0
    for (number, end), (i, (h, r, t)) in itertools.product(enumerate(ENDS), enumerate(KG.test.tolist())):
        ids = range(NODES) if candidates is None else candidates[end].expand(len(KG.test), -1)[i].tolist()
        others = [(n, r, t) if end == "src" else (h, r, n) for n in ids if n != (h if end == "src" else t)]
        own, *scores = (equation(x[a], relations[b], x[c]) for a, b, c in [(h, r, t), *(set(others) - set(facts))])
        repeats = [others.count(other) for other in set(others) - set(facts)]
        above = sum(n for s, n in zip(scores, repeats, strict=True) if s > own)
        equal = sum(n for s, n in zip(scores, repeats, strict=True) if s == own)
        ranks[number, i], most = 1 + above + equal / 2, max(most, abs(own), *map(abs, scores), 0.0)
    return torch.from_numpy(ranks), most


def candidates_of(kind):
    if kind == "all":
        return None
    if kind == "sampled":
        return {end: wb.links.sample_negatives(NODES, (1, 9), end=end, seed=0)[0] for end in ENDS}
    generator = torch.Generator().manual_seed(11)
    return {end: torch.randint(NODES, (len(KG.test), 7), generator=generator) for end in ENDS}


SCALES = {
    torch.float16: (2.0**-24, 2.0**-12, 1.0, 2.0**6, 2.0**14),
    torch.bfloat16: (2.0**-130, 2.0**-70, 1.0, 2.0**60, 2.0**120),
    torch.float32: (2.0**-145, 2.0**-70, 1.0, 2.0**60, 2.0**120),
    torch.float64: (2.0**-1070, 2.0**-600, 2.0**-300, 1.0, 2.0**60, 2.0**300, 2.0**600),
}


@pytest.mark.parametrize(("name", "dtype", "kind"), pairwise(DECODERS, DTYPES, ["all", "sampled", "given"]), ids=str)
def test_ranks_are_exact_or_refused(name, dtype, kind):
    candidates, outcomes = candidates_of(kind), set()
    negatives = {"all": None, "sampled": 9, "given": candidates}[kind]
    scales = SCALES[dtype] if kind == "all" else SCALES[dtype][::2]
    for scale, (make, filtered) in itertools.product(scales, [(coarse, True), (fine, False)]):
        decoder, rows = build(name, dtype, scale), make(dtype, scale)  # pyright: ignore[reportArgumentType]
        options = {"known": KG if filtered else None, "negatives": negatives}
        with np.errstate(all="ignore"):
            wanted, most = brute_force(name, decoder, rows, facts=FACTS if filtered else (), candidates=candidates)
        if torch.tensor(most, dtype=torch.float64).to(dtype).isfinite():
            assert torch.equal(wb.training.rank_triples(decoder, rows, KG.test, **options), wanted), (scale, make)
        else:
            with pytest.raises(ValueError, match=f"{type(decoder).__name__} in {dtype} .* pass rows"):
                wb.training.rank_triples(decoder, rows, KG.test, **options)
        outcomes.add(bool(torch.tensor(most, dtype=torch.float64).to(dtype).isfinite()))
    assert True in outcomes
    assert len(outcomes) == 2 or "TransE" in name or name == "RotatE"  # products overflow at the largest scale


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_keep_their_ranks_whatever_the_decoder_s_dtype(dtype):
    rows = fine(dtype, 1.0)
    for name in ("DistMult", "TransE", "dot"):
        wanted, _ = brute_force(name, build(name, torch.float16), rows)
        for other in DTYPES:
            assert torch.equal(wb.training.rank_triples(build(name, other), rows, KG.test), wanted)


def test_wide_rows_in_half_precision():
    """The squares of their norms are beyond float16, their distances are not."""
    rows = (torch.randn(200, 512, generator=torch.Generator().manual_seed(0)) * 4).half()
    heads, tails = torch.randint(200, (2, 30), generator=torch.Generator().manual_seed(1))
    triples = torch.stack((heads, torch.zeros_like(heads), tails), 1)
    decoder = wb.nn.TransE(512, num_relations=1).half().requires_grad_(False)
    query = rows.double()[heads] + decoder.relations.double()
    scores = -(query[:, None] - rows.double()).square().sum(-1)
    wanted = 1 + (scores > scores.gather(1, tails[:, None])).sum(1)
    assert torch.equal(wb.training.rank_triples(decoder, rows, triples, ends=["dst"])[0], wanted.double())


@pytest.mark.parametrize("setting", ["highest", "medium", "autocast"])
def test_imprecise_products_do_not_change_ranks(setting):
    """bfloat16 in products, by torch's setting or by autocast, has 8 bits: scores apart by 1e-4 would swap."""
    rows, decoder = fine(torch.float32, 1.0), build("dot", torch.float32)
    wanted, _ = brute_force("dot", decoder, rows)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium" if setting == "medium" else before)
        with torch.autocast("cpu", torch.bfloat16, enabled=setting == "autocast"):
            assert torch.equal(wb.training.rank_triples(decoder, rows, KG.test), wanted)
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_values_that_are_not_finite_are_refused(value):
    decoder, rows = build("TransE", torch.float32), coarse(torch.float32, 1.0)
    rows[NODES - 1, 0] = value  # of a candidate alone
    with pytest.raises(ValueError, match=r"rows in torch.float32 contain NaN or infinity, so TransE"):
        wb.training.rank_triples(decoder, rows, KG.test)
    decoder.relations[0, 0] = value
    with pytest.raises(ValueError, match=r"scores of TransE in torch.float32 are not finite"):
        wb.training.rank_triples(decoder, coarse(torch.float32, 1.0), KG.test)
    one, others = torch.tensor([1.0]), torch.tensor([[0.0, value]])
    for rank in (
        wb.training.score_ranks,
        lambda positive, negative: wb.training.hits_above(positive, negative.flatten(), 5),
    ):
        with pytest.raises(ValueError, match=re.escape(f"{value} (positive, torch.float32)")):
            rank(torch.tensor([value]), others)
        if value == -torch.inf:
            rank(one, others)  # it does not compete
        else:
            with pytest.raises(ValueError, match=re.escape(f"{value} (negative, torch.float32)")):
                rank(one, others)


@pytest.mark.parametrize("rank", [torch.nan, 0.5])
def test_means_of_what_is_no_rank(rank):
    with pytest.raises(ValueError, match="1 or more"):
        wb.training.LinkMetrics.of(torch.tensor([1.0, rank]))
