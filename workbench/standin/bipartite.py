"""Stand-ins with several types of nodes or edges: bipartite matching of stubs, authors of papers, knowledge graphs."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.randomness import permutation, uniform
from workbench.kernels.csr import offsets
from workbench.kernels.hash import derive_key, hash_index_torch
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.standin.stand_in import (
    Authorship,
    Draw,
    KnowledgeStandIn,
    StandIn,
    degree_sequence,
    key_of,
    scaled,
    scaled_splits,
)
from workbench.standin.topology import class_sizes

_ROUNDS = 12


class Side(NamedTuple):
    """The nodes of one side.

    Args:
        degrees: int64 [nodes].
        classes: int64 [nodes].
    """

    degrees: Tensor
    classes: Tensor


def shuffled_stubs(degrees: Tensor, key: int) -> Tensor:
    """Repeat every node by its degree and shuffle: int64 [sum of degrees]."""
    stubs = torch.arange(len(degrees)).repeat_interleave(degrees)
    return stubs[permutation(key, len(stubs))]


def _rank_in_class(classes: Tensor) -> Tensor:
    """Count the entries of the same class before each entry: int64."""
    order = torch.argsort(classes, stable=True)
    ordered = classes[order]
    starts = torch.searchsorted(ordered, ordered)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - starts
    return rank


def _match_stubs(left: Tensor, right: Tensor, left_side: Side, right_side: Side, share: float) -> tuple[Tensor, Tensor]:
    """Match the first `share` of the left stubs with right stubs of their class, if there are any, others at random."""
    count = min(len(left), len(right))
    wanted = torch.full_like(left, -1)
    num_same = int(share * count)
    wanted[:num_same] = left_side.classes[left[:num_same]]
    offered = right_side.classes[right]
    classes = 1 + int(torch.maximum(wanted.max(), offered.max())) if count else 1
    supply = torch.bincount(offered, minlength=classes)
    demand_rank, supply_rank = _rank_in_class(wanted), _rank_in_class(offered)
    demand = torch.bincount(wanted[wanted >= 0], minlength=classes)
    served = (wanted >= 0) & (demand_rank < supply[wanted.clamp(min=0)])
    taken = supply_rank < demand[offered]
    by_left = torch.argsort(left_side.classes[left[served]], stable=True)
    by_right = torch.argsort(offered[taken], stable=True)
    rest = min(int((~served).sum()), int((~taken).sum()))
    lefts = torch.cat([left[served][by_left], left[~served][:rest]])
    return lefts, torch.cat([right[taken][by_right], right[~taken][:rest]])


def bipartite_edges(left: Side, right: Side, *, share: float, key: int) -> tuple[Tensor, Tensor]:
    """Match the stubs of both sides; duplicate edges are dropped and their stubs matched again, for up to 12 rounds.

    Args:
        right: nodes of the other side, whose degrees have the same sum.
        share: share of the edges within a class, as far as the other side has stubs of the class.

    Returns:
        int64 [edges] each: left and right ends of distinct edges, sorted by left end.
    """
    keys = torch.empty(0, dtype=torch.int64)
    width = len(right.degrees)
    for turn in range(_ROUNDS):
        ends = torch.div(keys, width, rounding_mode="floor"), keys % width
        deficit = [
            side.degrees - torch.bincount(matched, minlength=len(side.degrees))
            for side, matched in zip((left, right), ends, strict=True)
        ]
        if not int(deficit[0].sum()):
            break
        stubs = [shuffled_stubs(degrees, derive_key(key, turn, i)) for i, degrees in enumerate(deficit)]
        lefts, rights = _match_stubs(*stubs, left, right, share if turn == 0 else 0.0)
        keys = torch.unique(torch.cat([keys, lefts * width + rights]))
    return torch.div(keys, width, rounding_mode="floor"), keys % width


PAPER, AUTHOR, INSTITUTION = range(3)

CITES, WRITES, AFFILIATED = range(3)


def _shuffled_degrees(degrees: Tensor, key: int) -> Tensor:
    return degrees[permutation(key, len(degrees))]


def _classes(name: str, seed: int, draw: Draw, nodes: int, spec: StandIn) -> Tensor:
    sizes = class_sizes(nodes, spec.classes, spec.shape.class_skew)
    return torch.arange(spec.classes).repeat_interleave(sizes)[permutation(key_of(name, seed, draw), nodes)]


def _writes(
    spec: StandIn, parts: Authorship, seed: int, scale: float, papers: Tensor, authors: Tensor
) -> tuple[Tensor, Tensor]:
    """Return author and paper of every edge."""
    total, name = scaled(parts.writes, scale), spec.name
    per_author = degree_sequence(parts.papers_per_author, len(authors), total, max_neighbours=len(papers))
    per_paper = degree_sequence(parts.authors_per_paper, len(papers), total, max_neighbours=len(authors))
    left = Side(_shuffled_degrees(per_author, key_of(name, seed, Draw.AUTHOR, 1)), authors)
    right = Side(_shuffled_degrees(per_paper, key_of(name, seed, Draw.AUTHOR, 2)), papers)
    return bipartite_edges(left, right, share=spec.shape.homophily, key=key_of(name, seed, Draw.AUTHOR, 3))


def _affiliations(spec: StandIn, parts: Authorship, seed: int, scale: float, authors: int) -> tuple[Tensor, Tensor]:
    """Return author and institution of every edge; an author has at most one institution, which has no class."""
    count, institutions = scaled(parts.affiliations, scale), scaled(parts.institutions, scale)
    members = degree_sequence(parts.authors_per_institution, institutions, count, max_neighbours=None)
    members = _shuffled_degrees(members, key_of(spec.name, seed, Draw.INSTITUTION, 1))
    affiliated = permutation(key_of(spec.name, seed, Draw.INSTITUTION), authors)[:count]
    return affiliated, torch.arange(institutions).repeat_interleave(members)


def typed_graph(spec: StandIn, cites: Graph, papers: Tensor, seed: int, scale: float) -> tuple[Graph, Tensor]:
    """Add authors and institutions to the papers' citation graph.

    Node ids are papers, then authors, then institutions, in random order within a type. `node_type` is `PAPER`,
    `AUTHOR` or `INSTITUTION`, `edge_type` is `CITES`, `WRITES` or `AFFILIATED`; each edge is stored once, as published:
    citing → cited, author → paper, author → institution.

    Args:
        spec: a stand-in with `authors`.
        cites: citation graph of the papers.
        papers: int64 [papers], their classes.

    Returns:
        The graph, and int64 [nodes], the class of every node for its features (random for institutions).
    """
    parts = spec.authors
    assert parts is not None
    num_papers, num_authors = len(papers), scaled(parts.authors, scale)
    num_institutions = scaled(parts.institutions, scale)
    authors = _classes(spec.name, seed, Draw.AUTHOR, num_authors, spec)
    writers, written = _writes(spec, parts, seed, scale, papers, authors)
    members, institutions = _affiliations(spec, parts, seed, scale, num_authors)
    src = torch.cat([cites.indices.long(), writers + num_papers, members + num_papers])
    cited = torch.arange(num_papers).repeat_interleave(cites.in_degrees())
    dst = torch.cat([cited, written, institutions + num_papers + num_authors])
    kinds = torch.tensor([CITES, WRITES, AFFILIATED], dtype=torch.uint8)
    sizes = torch.tensor([cites.num_edges, len(writers), len(members)])
    nodes = torch.tensor([num_papers, num_authors, num_institutions])
    node_type = torch.tensor([PAPER, AUTHOR, INSTITUTION], dtype=torch.uint8).repeat_interleave(nodes)
    graph = Graph.from_edges(
        src, dst, num_nodes=int(nodes.sum()), edge_type=kinds.repeat_interleave(sizes), node_type=node_type
    )
    key = key_of(spec.name, seed, Draw.INSTITUTION, 2)
    random_classes = (uniform(key, torch.arange(num_institutions)) * spec.classes).long()
    graph = Graph(graph.indptr, graph.indices, edge_type=graph.edge_type, node_type=node_type)
    return graph, torch.cat([papers, authors, random_classes])


# In FB15k-237 a relation has 394 distinct heads and 237 tails on average; a segment per relation would give fewer.
_GROUP = 4

# At most this many of an entity's stubs, minus a random share, keep the entity's type; the others are shuffled over all
# types, because a hub whose triples all have the same relation would duplicate them.
_MAX_TYPED, _UNTYPED_SHARE = 16, 0.3

_TRIPLE_ROUNDS = 40


def entity_degrees(spec: KnowledgeStandIn, scale: float) -> tuple[Tensor, Tensor]:
    """Compute how often entities occur as heads and as tails: int64 [entities] each, ascending."""
    entities, total = scaled(spec.entities, scale), scaled(sum(spec.splits), scale)
    head, tail = (
        degree_sequence(law, entities, total, min_degree=0, max_neighbours=4 * entities)
        for law in (spec.heads, spec.tails)
    )
    return head, tail


def _assign_degrees(name: str, seed: int, heads: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
    """Assign both sequences (`heads` ascending) to the entities at random, but avoid entities without any triple."""
    count, num_headless = len(heads), int((heads == 0).sum())
    assigned = tails[permutation(key_of(name, seed, Draw.ENTITY, 1), count)]
    unused = (assigned[:num_headless] == 0).nonzero()[:, 0]
    donors = num_headless + (assigned[num_headless:] > 0).nonzero()[: len(unused), 0]
    assigned[unused[: len(donors)]], assigned[donors] = assigned[donors], 0
    order = permutation(key_of(name, seed, Draw.ENTITY, 2), count)
    return heads[order], assigned[order]


def _relation_counts(spec: KnowledgeStandIn, total: int, key: int) -> Tensor:
    """Compute the number of triples per relation, proportional to those of the full graph: int64 [relations]."""
    full = degree_sequence(spec.relation_counts, spec.relations, sum(spec.splits), max_neighbours=None)
    ends = (full[permutation(key, spec.relations)].cumsum(0).double() * (total / sum(spec.splits))).round().long()
    return ends.diff(prepend=ends.new_zeros(1))


def _segments(counts: Tensor, order: Tensor) -> Tensor:
    """Return where every group of relations begins and ends among the stubs, in `order`: int64 [groups, 2]."""
    groups = torch.arange(len(counts)) // _GROUP
    sizes = torch.zeros(int(groups[-1]) + 1, dtype=torch.int64).index_add_(0, groups, counts)
    starts = torch.empty_like(sizes)
    starts[order] = offsets(sizes[order])[:-1]
    return torch.stack([starts, starts + sizes], 1)


def _stubs(degrees: Tensor, key: int) -> Tensor:
    """Repeat every entity by its degree, in order of type except for untyped stubs: int64 [sum of degrees]."""
    stubs = torch.arange(len(degrees)).repeat_interleave(degrees)
    rank = torch.arange(len(stubs)) - offsets(degrees)[stubs]
    untyped = ((rank >= _MAX_TYPED) | (uniform(key, torch.arange(len(stubs))) < _UNTYPED_SHARE)).nonzero()[:, 0]
    stubs[untyped] = stubs[untyped[permutation(key, len(untyped))]]
    return stubs


def _draw_entities(degrees: Tensor, counts: Tensor, key: int) -> Tensor:
    """Draw the entities in order of relation: every group of relations shuffles its segment of the stubs."""
    stubs = _stubs(degrees, key)
    groups = (len(counts) + _GROUP - 1) // _GROUP
    segments = _segments(counts, permutation(key, groups))
    parts = []
    for group, (start, end) in enumerate(segments.tolist()):
        part = stubs[start:end]
        parts.append(part[permutation(key + 1 + group, len(part))])
    return torch.cat(parts)


def _duplicates(triples: Tensor) -> Tensor:
    """Mark triples that are equal to an earlier one: bool [triples]."""
    head, relation, tail = triples.unbind(1)
    entities = 1 + int(triples[:, ::2].max())
    # Keys of the largest graphs wrap around. Two of 5 · 10⁸ triples then have the same key with a probability of 1 %.
    keys, order = torch.sort((relation * entities + head) * entities + tail, stable=True)
    duplicate = torch.zeros(len(triples), dtype=torch.bool)
    duplicate[order[1:]] = keys[1:] == keys[:-1]
    return duplicate


def _remove_duplicates(triples: Tensor, key: int) -> Tensor:
    """Shuffle the tails of duplicates with those of other triples of the relation until none is left.

    Args:
        triples: int64 [any, 3], sorted by relation; modified.

    Returns:
        int64 [any, 3], distinct triples; the numbers of occurrences are the same.
    """
    relation = triples[:, 1].contiguous()
    for turn in range(_TRIPLE_ROUNDS):
        duplicates = _duplicates(triples).nonzero()[:, 0]
        if not len(duplicates):
            return triples
        first, end = (torch.searchsorted(relation, relation[duplicates], right=right) for right in (False, True))
        others = first + hash_index_torch(key + turn, duplicates).remainder(end - first)
        chosen = torch.unique(torch.cat([duplicates, others]))
        order = permutation(key + turn, len(chosen))
        order = order[torch.argsort(relation[chosen[order]], stable=True)]
        triples[chosen, 2] = triples[chosen[order], 2]
    return triples[~_duplicates(triples)]


def knowledge_graph(spec: KnowledgeStandIn, scale: float, seed: int) -> KnowledgeGraph:
    """Generate a knowledge graph, which has all relations at every scale.

    Args:
        spec: the stand-in.
        scale: in (0, 1].
        seed: a 64-bit integer.

    Returns:
        The triples of the three splits.

    Raises:
        ValueError: the scale is too small for the degrees.
    """
    entities, total, name = scaled(spec.entities, scale), scaled(sum(spec.splits), scale), spec.name
    heads, tails = _assign_degrees(name, seed, *entity_degrees(spec, scale))
    counts = _relation_counts(spec, total, key_of(name, seed, Draw.RELATION))
    head, tail = (
        _draw_entities(degrees, counts, key_of(name, seed, Draw.RELATION, role))
        for role, degrees in enumerate((heads, tails), 1)
    )
    relation = torch.arange(spec.relations).repeat_interleave(counts)
    triples = _remove_duplicates(torch.stack([head, relation, tail], 1), key_of(name, seed, Draw.RELATION, 3))
    names = permutation(key_of(name, seed, Draw.NODE_ID), entities)
    triples = torch.stack([names[triples[:, 0]], triples[:, 1], names[triples[:, 2]]], 1)
    triples = triples[permutation(key_of(name, seed, Draw.SPLIT), len(triples))]
    train, valid, test = triples.split(list(scaled_splits(spec.splits, len(triples) / sum(spec.splits), len(triples))))
    return KnowledgeGraph.build(train, valid, test, num_entities=entities, num_relations=spec.relations, name=name)
