"""Decoders against their published equations, written with loops and complex numbers, and against PyG's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import workbench as wb

DIM, RELATIONS, PAIRS, COUNT = 6, 3, 5, 4
GENERATOR = torch.Generator().manual_seed(0)
HEAD, TAIL, CANDIDATES = (torch.randn(n, DIM, dtype=torch.float64, generator=GENERATOR) for n in (PAIRS, PAIRS, COUNT))
RELATION = torch.tensor([0, 2, 1, 2, 2])


def as_complex(row: Tensor) -> Tensor:
    return torch.complex(row[: DIM // 2], row[DIM // 2 :])


def complex_score(h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    return (as_complex(h) * as_complex(r) * as_complex(t).conj()).sum().real


EQUATIONS: dict[str, tuple[Callable[..., wb.nn.Decoder], Callable[[Tensor, Tensor, Tensor], Any]]] = {
    "DistMult": (wb.nn.DistMult, lambda h, r, t: sum(h[d] * r[d] * t[d] for d in range(DIM))),
    "ComplEx": (wb.nn.ComplEx, complex_score),
    "TransE, L1": (lambda *a, **k: wb.nn.TransE(*a, p=1, **k), lambda h, r, t: -(h + r - t).abs().sum()),
    "TransE, L2": (wb.nn.TransE, lambda h, r, t: -(h + r - t).square().sum().sqrt()),
    "dot": (lambda dim, **_: wb.nn.DotProduct(dim), lambda h, r, t: h @ t),
}


def build(name: str, *, inverse: bool = False) -> wb.nn.Decoder:
    torch.manual_seed(1)
    return EQUATIONS[name][0](DIM, num_relations=RELATIONS, inverse=inverse, std=1.0).double()


def rows_of(decoder: wb.nn.Decoder, relation: Tensor) -> Tensor:
    return decoder.relations[relation] if decoder.num_relations else torch.zeros(len(relation), DIM)


def brute_force(name: str, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    return torch.stack([EQUATIONS[name][1](h, r, t) for h, r, t in zip(head, relation, tail, strict=True)])


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", EQUATIONS)
def test_equals_its_equation(name: str) -> None:
    decoder = build(name)
    expected = brute_force(name, HEAD, rows_of(decoder, RELATION), TAIL)
    assert_close(decoder(HEAD, RELATION, TAIL), expected)
    assert_close(decoder(HEAD, RELATION, TAIL, end="src"), expected)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("name", EQUATIONS)
def test_candidates_of_either_end(name: str, inverse: bool) -> None:
    decoder = build(name, inverse=inverse and name != "dot")
    relation = rows_of(decoder, RELATION)
    turned = rows_of(decoder, RELATION + RELATIONS * decoder.inverse)
    for i, candidate in enumerate(CANDIDATES):
        every = candidate.expand(PAIRS, DIM)
        assert_close(decoder.against(HEAD, RELATION, CANDIDATES)[:, i], brute_force(name, HEAD, relation, every))
        ends = (TAIL, turned, every) if decoder.inverse else (every, relation, TAIL)
        assert_close(decoder.against(TAIL, RELATION, CANDIDATES, end="src")[:, i], brute_force(name, *ends))


@pytest.mark.parametrize("end", ["src", "dst"])
@pytest.mark.parametrize("name", EQUATIONS)
def test_chunks_are_scored_one_by_one(name: str, end: str) -> None:
    decoder = build(name)
    kept, other, candidates = (torch.randn(2, n, DIM, dtype=torch.float64) for n in (3, 3, 4))
    relation = torch.tensor([[0, 1, 1], [2, 2, 0]])
    positive, negative = decoder.scores(kept, relation, other, candidates, end=end)
    for chunk in range(2):
        one = kept[chunk], relation[chunk]
        assert_close(negative[chunk], decoder.against(*one, candidates[chunk], end=end))
        head, tail = (kept, other) if end == "dst" else (other, kept)
        assert_close(positive[chunk], decoder(head[chunk], relation[chunk], tail[chunk], end=end))


@pytest.mark.parametrize("name", EQUATIONS)
def test_gradients(name: str) -> None:
    decoder = build(name)
    inputs = [x.clone().requires_grad_() for x in (HEAD, TAIL, CANDIDATES)]

    def scores(head: Tensor, tail: Tensor, candidates: Tensor) -> tuple[Tensor, ...]:
        return *decoder.scores(head, RELATION, tail, candidates), *decoder.scores(tail, RELATION, head, candidates)

    assert torch.autograd.gradcheck(scores, inputs)
    sum(s.sum() for s in scores(*inputs)).backward()  # pyright: ignore[reportAttributeAccessIssue]
    assert not decoder.num_relations or decoder.relations.grad is not None


@pytest.mark.parametrize("name", ["DistMult", "ComplEx", "TransE, L1", "TransE, L2"])
def test_equals_pyg(name: str) -> None:
    kge = pytest.importorskip("torch_geometric.nn.kge")
    decoder = build(name)
    rows = torch.cat((HEAD, TAIL))
    if name.startswith("TransE"):
        assert isinstance(decoder, wb.nn.TransE)
        theirs = kge.TransE(2 * PAIRS, RELATIONS, DIM, p_norm=decoder.p)
        rows = torch.nn.functional.normalize(rows, p=decoder.p, dim=1)  # which PyG's does itself
    else:
        halved = DIM // 2 if name == "ComplEx" else DIM
        theirs = getattr(kge, name)(2 * PAIRS, RELATIONS, halved)
    theirs = theirs.double()
    tables = {"node_emb": rows, "rel_emb": decoder.relations.detach()}
    if name == "ComplEx":
        tables = {
            f"{key}{part}": half
            for key, x in tables.items()
            for part, half in zip(("", "_im"), x.chunk(2, 1), strict=True)
        }
    theirs.load_state_dict({f"{key}.weight": x for key, x in tables.items()})
    pairs = torch.arange(PAIRS)
    assert_close(decoder(rows[:PAIRS], RELATION, rows[PAIRS:]), theirs(pairs, RELATION, pairs + PAIRS))


def test_distance_of_equal_rows_has_a_gradient() -> None:
    decoder = build("TransE, L2")
    kept = (TAIL - decoder.relations[RELATION]).detach().requires_grad_()
    positive, negative = decoder.scores(kept, RELATION, TAIL, TAIL)
    (positive.sum() + negative.sum()).backward()
    assert torch.isfinite(kept.grad).all() and negative.diagonal().abs().max() < 1e-6  # pyright: ignore


def test_inverse_relations_have_rows_of_their_own() -> None:
    decoder = build("DistMult", inverse=True)
    decoder(HEAD, RELATION, TAIL, end="src").sum().backward()
    assert decoder.relations.grad is not None
    touched = decoder.relations.grad.abs().sum(1) > 0
    assert touched.tolist() == [False] * RELATIONS + [True] * RELATIONS


@pytest.mark.parametrize(
    ("error", "match", "call"),
    [
        (ValueError, "dim is 5; it must be even", lambda: wb.nn.ComplEx(5, num_relations=1)),
        (ValueError, "p is 3; it must be 1 or 2", lambda: wb.nn.TransE(4, num_relations=1, p=3)),
        (ValueError, "std is -1", lambda: wb.nn.DistMult(4, num_relations=1, std=-1)),
        (ValueError, "dim is 0", lambda: wb.nn.DotProduct(0)),
        (ValueError, "end 'tail' is not known", lambda: build("DistMult")(HEAD, RELATION, TAIL, end="tail")),
        (ValueError, "rows have width 4, but the decoder has 6", lambda: build("dot")(HEAD[:, :4], None, TAIL)),
        (TypeError, "relation.*pass relation= to edge_batches", lambda: build("DistMult")(HEAD, None, TAIL)),
        (TypeError, "relation is torch.float32", lambda: build("DistMult")(HEAD, RELATION.float(), TAIL)),
        (IndexError, "relation contains 3, but .* 3 relations", lambda: build("TransE, L1")(HEAD, RELATION + 1, TAIL)),
    ],
)
def test_refusals(error: type[Exception], match: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=match):
        call()
