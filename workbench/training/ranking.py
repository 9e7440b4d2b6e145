"""Link prediction evaluated by ranks: the true end of every triple among all nodes, or among sampled ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_at_least, check_choice, check_ids, check_type
from workbench.core.graph import Graph
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.links.negatives import sample_negatives
from workbench.nn.decoders import ENDS, Decoder
from workbench.training.evaluate import full_neighbour_logits
from workbench.training.row_parts import as_parts
from workbench.training.triple_scores import Ranking, rank_among

_CHUNK_BYTES = 128 << 20
_LEAST_CHUNK_BYTES = 1 << 16

Candidates = int | Tensor | Mapping[str, Tensor] | None


@dataclass(frozen=True)
class LinkMetrics:
    """Means over all ranked ends of all triples.

    Args:
        mrr: mean reciprocal rank.
        hits_at_1: share of ranks up to 1; a rank between 1 and 2, from a tie, is none of them.
        hits_at_3: share of ranks up to 3.
        hits_at_10: share of ranks up to 10.
        num_ranked: number of ranks.
    """

    mrr: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float
    num_ranked: int

    @classmethod
    def of(cls, ranks: Tensor) -> "LinkMetrics":
        """Average ranks.

        Args:
            ranks: floating, of any shape, from 1.

        Raises:
            ValueError: no rank, or one that is NaN or below 1.

        >>> LinkMetrics.of(torch.tensor([1.0, 4.0])).mrr
        0.625
        """
        if not ranks.numel():
            raise ValueError("there is no rank to average; pass at least one triple")
        ranks = ranks.double()
        if not bool((ranks >= 1).all()):
            bad = float(ranks[~(ranks >= 1)][0])
            raise ValueError(f"ranks contain {bad}; a rank is 1 or more, such as those of score_ranks or rank_triples")
        hits = [float((ranks <= k).double().mean()) for k in (1, 3, 10)]
        return cls(float((1 / ranks).mean()), *hits, num_ranked=ranks.numel())


def score_ranks(positive: Tensor, negative: Tensor) -> Tensor:
    """Rank scores among those of their negatives: the mean of the optimistic and the pessimistic rank.

    Args:
        positive: floating [n], finite.
        negative: floating [n, k], or [k]: the same for all. −∞ for those that do not compete.

    Returns:
        float64 [n]: 1 + the number of higher scores + half the number of equal ones.

    Raises:
        ValueError: shapes that do not match, NaN or +∞ among the scores, or a positive one of −∞.

    Source: ranks of the Open Graph Benchmark's evaluators (Hu et al., NeurIPS 2020).

    >>> score_ranks(torch.tensor([2.0]), torch.tensor([[3.0, 2.0, 1.0]]))
    tensor([2.5000], dtype=torch.float64)
    """
    shapes = tuple(positive.shape), tuple(negative.shape)
    if positive.dim() != 1 or negative.dim() not in (1, 2) or (negative.dim() == 2 and len(negative) != len(positive)):
        raise ValueError(f"positive has shape {shapes[0]} and negative {shapes[1]}; pass [n] and [n, k] or [k]")
    _check_scores(positive, negative)
    higher = (negative > positive[:, None]).sum(1)
    equal = (negative == positive[:, None]).sum(1)
    return 1 + higher.double() + equal.double() / 2


def hits_above(positive: Tensor, negative: Tensor, k: int) -> float:
    """Share of positive scores above the k-th highest score of one set of negatives; 1 if there are fewer.

    Args:
        positive: floating [n], finite.
        negative: floating [m], scores of negative pairs that all positive ones are compared with. −∞ for those that do
            not compete.
        k: from 1.

    Raises:
        ValueError: `k` below 1, scores that are not vectors, no positive one, NaN or +∞ among them, or a positive one
            of −∞.

    Source: Hits@K of ogbl-ddi (K = 20), ogbl-collab and ogbl-ppa (Hu et al., NeurIPS 2020).

    >>> hits_above(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 1.0]), 1)
    0.5
    """
    check_at_least("k", k, 1)
    if positive.dim() != 1 or negative.dim() != 1:
        shapes = tuple(positive.shape), tuple(negative.shape)
        raise ValueError(f"positive has shape {shapes[0]} and negative {shapes[1]}; pass [n] and [m]")
    if not positive.numel():
        raise ValueError("there is no positive score; pass at least one")
    _check_scores(positive, negative)
    return 1.0 if len(negative) < k else float((positive > negative.topk(k).values[-1]).double().mean())


def _check_scores(positive: Tensor, negative: Tensor) -> None:
    """Refuse scores that would make a rank better than it is."""
    for name, scores, valid in (
        ("positive", positive, positive.isfinite()),
        ("negative", negative, negative.isfinite() | negative.isneginf()),
    ):
        if not bool(valid.all()):
            raise ValueError(
                f"scores contain {float(scores[~valid][0])} ({name}, {scores.dtype}); compute them in a wider dtype "
                "(rows.float(), rows.double()) if they overflow, or lower the learning rate if training diverged"
            )


def evaluate_links(
    encoder: nn.Module | None,
    decoder: Decoder,
    rows: Any,
    triples: Tensor,
    *,
    graph: Graph | None = None,
    known: KnowledgeGraph | None = None,
    negatives: Candidates = None,
    ends: Sequence[str] = ENDS,
    chunk_bytes: int = _CHUNK_BYTES,
    seed: int = 0,
) -> LinkMetrics:
    """Rank triples with a model: MRR and Hits@1, 3 and 10 over all ends.

        wb.training.evaluate_links(encoder, decoder, rows, kg.test, graph=kg.graph(inverse=True), known=kg)

    Args:
        encoder: a model of `workbench.build_model`, which computes the rows to score from those of all in-neighbours;
            None: `rows` are scored themselves.
        decoder: scores triples.
        rows: `LearnedRows` or features by raw-graph id, on any device; without an encoder, as for `rank_triples`.
        triples: as for `rank_triples`.
        graph: edges of the encoder; not needed without one.
        known: as for `rank_triples`.
        negatives: as for `rank_triples`.
        ends: as for `rank_triples`.
        chunk_bytes: as for `rank_triples`.
        seed: as for `rank_triples`.

    Raises:
        ValueError: an encoder without a graph, no triple, or as `rank_triples`.
        TypeError: as `rank_triples`.
        IndexError: as `rank_triples`.
    """
    if encoder is not None and graph is None:
        raise ValueError("an encoder needs a graph; pass that of the training triples: graph=kg.graph(inverse=True)")
    h = rows if encoder is None or graph is None else full_neighbour_logits(encoder, graph, rows)
    options: dict[str, Any] = {"known": known, "negatives": negatives, "ends": ends}
    return LinkMetrics.of(rank_triples(decoder, h, triples, **options, chunk_bytes=chunk_bytes, seed=seed))


@torch.no_grad()
def rank_triples(
    decoder: Decoder,
    rows: Any,
    triples: Tensor,
    *,
    known: KnowledgeGraph | None = None,
    negatives: Candidates = None,
    ends: Sequence[str] = ENDS,
    chunk_bytes: int = _CHUNK_BYTES,
    seed: int = 0,
) -> Tensor:
    """Rank the true end of every triple among candidates in its place.

    Ranks are exact: those of the decoder's `query` and `compare` in float64 on rows and relations as they are, whatever
    their dtype and scale. Rows in half precision so have the ranks of `rows.double()`, without ties from rounding.
    Matrix products decide what is beyond their error; the rest is scored pair by pair. So nodes with equal rows tie,
    and ranks depend neither on chunks nor on the partition that a candidate is in. A decoder with a `compare` of its
    own is scored pair by pair throughout, which takes longer.

    Args:
        decoder: scores triples.
        rows: [num_nodes, dim] by raw-graph id: a tensor, a store with `read`, or `RowParts`, of which one part is in
            memory at a time.
        triples: int64 or int32 [n, 3]: head, relation, tail; or [n, 2] for a decoder without relations.
        known: true triples: candidates that make one of them do not compete (the filtered setting). None: all do.
        negatives: the candidates. None: all nodes. A number: as many nodes per end, drawn uniformly and shared by all
            triples. Ids [k], shared; or [n, k], of each triple. A mapping from "src" and "dst" to ids. The true node
            never competes with itself.
        ends: which ends to predict, "src" (heads) and "dst" (tails).
        chunk_bytes: limit of the memory that candidates, scores and the triples' own rows take at a time, at least
            64 KiB. With `RowParts` every chunk of triples passes over all parts twice.
        seed: of drawn candidates.

    Returns:
        float64 [len(ends), n]: 1 + the number of higher scores + half the number of equal ones.

    Raises:
        TypeError: an argument of another type.
        ValueError: triples of another shape, an unknown end, too small a chunk, rows with NaN or infinity, or a score
            that is NaN or outside the range of the dtype that rows and decoder promote to (65,504 for float16).
        IndexError: an id out of range.

    Source: Bordes et al., "Translating embeddings for modeling multi-relational data" (NIPS 2013), section 4.2; ties as
    in Berrendorf et al., "On the ambiguity of rank-based evaluation of entity alignment or link prediction methods"
    (2020).
    """
    check_type("decoder", decoder, Decoder, "pass a decoder such as wb.nn.DistMult(dim, num_relations=…)")
    check_at_least("chunk_bytes", chunk_bytes, _LEAST_CHUNK_BYTES)
    parts = as_parts(rows)
    triples = _checked(triples, parts.num_rows, decoder, known)
    for end in ends:
        check_choice("end", end, ENDS)
    candidates = {end: _candidates(negatives, end, len(triples), parts.num_rows, seed) for end in ends}
    ranks = [
        rank_among(Ranking(decoder, parts, chunk, known, tuple(ends), chunk_bytes), _cut(candidates, at))
        for chunk, at in _chunks(triples, decoder.dim, chunk_bytes)
    ]
    return torch.cat(ranks, 1) if ranks else torch.empty(len(ends), 0, dtype=torch.float64)


def _chunks(triples: Tensor, dim: int, chunk_bytes: int) -> list[tuple[Tensor, slice]]:
    """Cut triples so that their rows, of both ends, and their counts take a quarter of the chunk."""
    size = max(1, chunk_bytes // 4 // (16 * dim + 64))
    cuts = [slice(start, start + size) for start in range(0, len(triples), size)]
    return [(triples[cut], cut) for cut in cuts]


def _cut(candidates: Mapping[str, Tensor | None], at: slice) -> dict[str, Tensor | None]:
    return {end: ids if ids is None or ids.dim() == 1 else ids[at] for end, ids in candidates.items()}


def _candidates(given: Candidates, end: str, num_triples: int, num_nodes: int, seed: int) -> Tensor | None:
    """The ids of the candidates of one end, [k] or [n, k]; None: all nodes."""
    if given is None:
        return None
    if isinstance(given, int):
        return sample_negatives(num_nodes, (1, given), end=end, seed=seed)[0]
    ids = given[end] if isinstance(given, Mapping) else given
    check_type("negatives", ids, Tensor, "pass a number, ids [k] or [n, k], or a mapping from ends to ids")
    if ids.dim() not in (1, 2) or (ids.dim() == 2 and len(ids) != num_triples):
        raise ValueError(f"negatives have shape {tuple(ids.shape)}; they must be [k] or [{num_triples}, k]")
    return check_ids("negatives", ids.reshape(-1), num_nodes).view(ids.shape)


def _checked(triples: Tensor, num_nodes: int, decoder: Decoder, known: KnowledgeGraph | None) -> Tensor:
    """Check triples and return them as int64 [n, 3]; relation 0 where there are none."""
    check_type("triples", triples, Tensor, "pass a tensor [n, 3], such as kg.test")
    wide = 3 if decoder.num_relations or known is not None else 2
    if triples.dim() != 2 or triples.shape[1] not in (wide, 3):
        raise ValueError(f"triples have shape {tuple(triples.shape)}; pass [n, 3]: head, relation, tail")
    head, tail = (check_ids("triples", triples[:, column], num_nodes) for column in (0, -1))
    relation = torch.zeros_like(head)
    if triples.shape[1] == 3 and (limit := decoder.num_relations or (known.num_relations if known else 0)):
        relation = check_ids("relations", triples[:, 1], limit)
    if known is not None and known.num_entities != num_nodes:
        raise ValueError(
            f"known has {known.num_entities} entities, but there are {num_nodes} rows; pass a row for each"
        )
    return torch.stack((head, relation, tail), 1).cpu()
