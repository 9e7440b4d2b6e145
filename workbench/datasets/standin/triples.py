"""The knowledge-graph stand-in: triples with given counts of heads, tails and relations.

Entities stand in an order that is their hidden type. A group of relations has its heads in one stretch of that order
and its tails in another, so that (head, relation) tells something about the tail.
"""

import torch
from torch import Tensor

from workbench.core.knowledge import KnowledgeGraph
from workbench.core.randomness import permutation, uniform
from workbench.datasets.standin.degrees import degree_sequence
from workbench.datasets.standin.spec import KnowledgeStandIn, scaled, scaled_splits
from workbench.datasets.standin.streams import Draw, key_of
from workbench.kernels.csr import offsets
from workbench.kernels.hash import hash_index_torch

# In FB15k-237 a relation has 394 different heads and 237 tails on average, where one stretch each would give fewer.
_GROUP = 4
# Of an entity's triples at most so many, and of the rest this share, belong to the relations of its type: were all of a
# hub's in one relation, they would repeat.
_OF_TYPE, _LOOSE = 16, 0.3
_ROUNDS = 40


def entity_degrees(spec: KnowledgeStandIn, scale: float) -> tuple[Tensor, Tensor]:
    """How often entities are to be heads, and how often tails: int64 [entities] each, ascending."""
    entities, total = scaled(spec.entities, scale), scaled(sum(spec.splits), scale)
    head, tail = (
        degree_sequence(law, entities, total, least=0, neighbours=4 * entities) for law in (spec.heads, spec.tails)
    )
    return head, tail


def _dealt_degrees(name: str, seed: int, heads: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
    """Deal both sequences, `heads` ascending, to the entities at random, but none that has neither heads nor tails."""
    count, silent = len(heads), int((heads == 0).sum())
    dealt = tails[permutation(key_of(name, seed, Draw.ENTITY, 1), count)]
    idle = (dealt[:silent] == 0).nonzero()[:, 0]
    busy = silent + (dealt[silent:] > 0).nonzero()[: len(idle), 0]
    dealt[idle[: len(busy)]], dealt[busy] = dealt[busy], 0
    order = permutation(key_of(name, seed, Draw.ENTITY, 2), count)
    return heads[order], dealt[order]


def _relation_counts(spec: KnowledgeStandIn, total: int, key: int) -> Tensor:
    """int64 [relations]: triples of each relation, in proportion to those of the full graph."""
    full = degree_sequence(spec.relation_counts, spec.relations, sum(spec.splits), neighbours=None)
    ends = (full[permutation(key, spec.relations)].cumsum(0).double() * (total / sum(spec.splits))).round().long()
    return ends.diff(prepend=ends.new_zeros(1))


def _stretches(counts: Tensor, order: Tensor) -> Tensor:
    """int64 [relations, 2]: where each relation's group begins and ends among the stubs; `order` deals them."""
    groups = torch.arange(len(counts)) // _GROUP
    sizes = torch.zeros(int(groups[-1]) + 1, dtype=torch.int64).index_add_(0, groups, counts)
    starts = torch.empty_like(sizes)
    starts[order] = offsets(sizes[order])[:-1]
    return torch.stack([starts, starts + sizes], 1)


def _stubs(degrees: Tensor, key: int) -> Tensor:
    """int64 [sum of degrees]: every entity as often as its degree, in order of type but for the loose ones."""
    stubs = torch.arange(len(degrees)).repeat_interleave(degrees)
    place = torch.arange(len(stubs)) - offsets(degrees)[stubs]
    loose = ((place >= _OF_TYPE) | (uniform(key, torch.arange(len(stubs))) < _LOOSE)).nonzero()[:, 0]
    stubs[loose] = stubs[loose[permutation(key, len(loose))]]
    return stubs


def _dealt(degrees: Tensor, counts: Tensor, key: int) -> Tensor:
    """Entities in order of relation: each group of relations takes its stretch of the stubs, in random order."""
    stubs = _stubs(degrees, key)
    groups = (len(counts) + _GROUP - 1) // _GROUP
    stretches = _stretches(counts, permutation(key, groups))
    parts = []
    for group, (start, end) in enumerate(stretches.tolist()):
        part = stubs[start:end]
        parts.append(part[permutation(key + 1 + group, len(part))])
    return torch.cat(parts)


def _repeats(triples: Tensor) -> Tensor:
    """bool [triples]: whether an equal triple stands before."""
    head, relation, tail = triples.unbind(1)
    entities = 1 + int(triples[:, ::2].max())
    keys, order = torch.sort((relation * entities + head) * entities + tail, stable=True)
    again = torch.zeros(len(triples), dtype=torch.bool)
    again[order[1:]] = keys[1:] == keys[:-1]
    return again


def _without_repeats(triples: Tensor, key: int) -> Tensor:
    """Shuffle the tails of repeated triples with those of others of the relation until none is left; counts stay.

    Args:
        triples: int64 [any, 3], by relation.
        key: of the random stream.
    """
    relation = triples[:, 1].contiguous()
    for turn in range(_ROUNDS):
        again = _repeats(triples).nonzero()[:, 0]
        if not len(again):
            return triples
        first, end = (torch.searchsorted(relation, relation[again], right=right) for right in (False, True))
        others = first + hash_index_torch(key + turn, again).remainder(end - first)
        chosen = torch.unique(torch.cat([again, others]))
        order = permutation(key + turn, len(chosen))
        order = order[torch.argsort(relation[chosen[order]], stable=True)]
        triples[chosen, 2] = triples[chosen[order], 2]
    return triples[~_repeats(triples)]


def knowledge_graph(spec: KnowledgeStandIn, scale: float, seed: int) -> KnowledgeGraph:
    """Triples of a knowledge graph; all relations stay at every scale.

    Args:
        spec: what to copy.
        scale: in (0, 1].
        seed: any whole number.

    Raises:
        ValueError: too small a scale for the degrees.
    """
    entities, total, name = scaled(spec.entities, scale), scaled(sum(spec.splits), scale), spec.name
    heads, tails = _dealt_degrees(name, seed, *entity_degrees(spec, scale))
    counts = _relation_counts(spec, total, key_of(name, seed, Draw.RELATION))
    head, tail = (
        _dealt(degrees, counts, key_of(name, seed, Draw.RELATION, role))
        for role, degrees in enumerate((heads, tails), 1)
    )
    relation = torch.arange(spec.relations).repeat_interleave(counts)
    triples = _without_repeats(torch.stack([head, relation, tail], 1), key_of(name, seed, Draw.RELATION, 3))
    names = permutation(key_of(name, seed, Draw.NODE_ID), entities)
    triples = torch.stack([names[triples[:, 0]], triples[:, 1], names[triples[:, 2]]], 1)
    triples = triples[permutation(key_of(name, seed, Draw.SPLIT), len(triples))]
    train, valid, test = triples.split(list(scaled_splits(spec.splits, len(triples) / sum(spec.splits), len(triples))))
    return KnowledgeGraph.build(train, valid, test, num_entities=entities, num_relations=spec.relations, name=name)
