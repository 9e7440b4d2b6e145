"""The knowledge-graph stand-in: triples with given numbers of occurrences of heads, tails and relations.

The order of the entities is a latent type. A group of relations draws its heads from one segment of that order and its
tails from another, so that (head, relation) is informative of the tail.
"""

import torch
from torch import Tensor

from workbench.core.randomness import permutation, uniform
from workbench.kernels.csr import offsets
from workbench.kernels.hash import hash_index_torch
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.standin.degree_law import degree_sequence
from workbench.standin.stand_in import KnowledgeStandIn, scaled, scaled_splits
from workbench.standin.streams import Draw, key_of

# In FB15k-237 a relation has 394 distinct heads and 237 tails on average; a segment per relation would give fewer.
_GROUP = 4
# At most this many of an entity's stubs, minus a random share, keep the entity's type; the others are shuffled over all
# types, because a hub whose triples all have the same relation would duplicate them.
_MAX_TYPED, _UNTYPED_SHARE = 16, 0.3
_ROUNDS = 40


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
        key: key of the random stream.

    Returns:
        int64 [any, 3], distinct triples; the numbers of occurrences are the same.
    """
    relation = triples[:, 1].contiguous()
    for turn in range(_ROUNDS):
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
