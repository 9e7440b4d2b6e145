"""`KnowledgeGraph`: triples (head, relation, tail), their graph, and the filters of filtered ranking."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from workbench.core.array_store import content_digest
from workbench.core.errors import check_at_least, check_ids, type_name
from workbench.core.graph import Graph
from workbench.core.units import format_bytes, html_table
from workbench.kernels.csr import offsets

_MAX_COUNT = 2**62

_PARTS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class PairIndex:
    """The values of each pair (first, second), with vectorised lookup on any device.

    Args:
        keys: int64 [num_pairs], ascending: first · num_second + second.
        indptr: int64 [num_pairs + 1], offsets of each pair's values.
        values: int64 [any], ascending and distinct within a pair.
        num_second: exclusive upper bound of `second`.
    """

    keys: Tensor
    indptr: Tensor
    values: Tensor
    num_second: int

    @classmethod
    def build(cls, first: Tensor, second: Tensor, value: Tensor, num_second: int) -> "PairIndex":
        """Group values by pair and drop duplicates.

        Args:
            first: int64 [n], first key of each value.
            second: int64 [n], second key of each value.
            value: int64 [n].
            num_second: exclusive upper bound of `second`.
        """
        if first.numel() and (int(first.max()) + 1) * num_second >= 2**63:
            raise OverflowError(
                f"{int(first.max()) + 1} × {num_second} pairs can't be numbered in 63 bits; number both without gaps"
            )
        key = first * num_second + second
        order = torch.argsort(value, stable=True)
        order = order[torch.argsort(key[order], stable=True)]
        key, value = key[order], value[order]
        is_new = torch.ones_like(key, dtype=torch.bool)
        is_new[1:] = (key[1:] != key[:-1]) | (value[1:] != value[:-1])
        keys, counts = torch.unique_consecutive(key[is_new], return_counts=True)
        return cls(keys, offsets(counts), value[is_new], num_second)

    def find(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Look up the values of many pairs.

        Args:
            first: int64 [num_queries].
            second: int64 [num_queries].

        Returns:
            The index of the query and the value of each match, int64, ordered by query, then by value.
        """
        keys = first * self.num_second + second
        slot = torch.searchsorted(self.keys, keys)
        row = slot.clamp(max=len(self.keys) - 1) if len(self.keys) else slot
        known = self.keys[row] == keys if len(self.keys) else torch.zeros_like(keys, dtype=torch.bool)
        query, row = known.nonzero().squeeze(1), row[known]
        counts = self.indptr[row + 1] - self.indptr[row]
        starts = torch.repeat_interleave(self.indptr[row] - offsets(counts)[:-1], counts)
        positions = starts + torch.arange(len(starts), device=starts.device)
        return torch.repeat_interleave(query, counts), self.values[positions]


@dataclass(frozen=True, eq=False, repr=False)
class KnowledgeGraph:
    """Training, validation and test triples; `KnowledgeGraph.build` validates them and computes the fingerprint.

    Args:
        train: int64 [num_train, 3]: head, relation, tail.
        valid: int64 [num_valid, 3]: head, relation, tail.
        test: int64 [num_test, 3]: head, relation, tail.
        num_entities: exclusive upper bound of heads and tails.
        num_relations: exclusive upper bound of relations.
        name: name for display and for recorded runs.
        fingerprint: sha256 over the triples.
        entity_names: one per entity, if published.
        relation_names: one per relation, if published.
        notes: what its reader kept or dropped that a comparison with other results must know.

    Raises:
        TypeError: if triples are not int64.
        ValueError: if triples do not have three columns, or the number of names is wrong.
    """

    train: Tensor
    valid: Tensor
    test: Tensor
    num_entities: int
    num_relations: int
    name: str
    fingerprint: str
    entity_names: Sequence[str] | None = None
    relation_names: Sequence[str] | None = None
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for part, triples in self._tensors().items():
            if not isinstance(triples, Tensor) or triples.dtype != torch.int64:
                raise TypeError(
                    f"{part} must be int64 triples, not {type_name(triples)}; convert with "
                    f"torch.as_tensor({part}).long()"
                )
            if triples.dim() != 2 or triples.shape[1] != 3:
                raise ValueError(f"{part} has shape {tuple(triples.shape)}; it must be [number of triples, 3]")
        for field, count in (("num_entities", self.num_entities), ("num_relations", self.num_relations)):
            check_at_least(field, count, 0, most=_MAX_COUNT)
        for field, count in (("entity_names", self.num_entities), ("relation_names", self.num_relations)):
            names = getattr(self, field)
            if names is not None and len(names) != count:
                raise ValueError(f"{field} has {len(names)} names; it must have {count}")

    @classmethod
    def build(
        cls,
        train: Tensor,
        valid: Tensor,
        test: Tensor,
        *,
        num_entities: int,
        num_relations: int,
        name: str = "unnamed",
        entity_names: Sequence[str] | None = None,
        relation_names: Sequence[str] | None = None,
        notes: Sequence[str] = (),
    ) -> "KnowledgeGraph":
        """Validate the triples and compute the fingerprint.

        Args:
            train: int32 or int64 [num_train, 3]: head, relation, tail.
            valid: int32 or int64 [num_valid, 3]: head, relation, tail.
            test: int32 or int64 [num_test, 3]: head, relation, tail.
            num_entities: exclusive upper bound of heads and tails.
            num_relations: exclusive upper bound of relations.
            name: name for display and for recorded runs.
            entity_names: one per entity, if published.
            relation_names: one per relation, if published.
            notes: as of the record.

        Raises:
            TypeError: if triples are not integers.
            ValueError: if triples have another shape.
            IndexError: if an entity or a relation is out of range.
        """
        triples = [t.to(torch.int64) if type_name(t) == "torch.int32" else t for t in (train, valid, test)]
        names: dict[str, Any] = {"name": name, "notes": tuple(notes)}
        names |= {"entity_names": _searchable(entity_names), "relation_names": _searchable(relation_names)}
        graph = cls(*triples, num_entities=num_entities, num_relations=num_relations, fingerprint="", **names)
        return replace(graph.validate(), fingerprint=content_digest(graph._tensors()))

    def validate(self) -> "KnowledgeGraph":
        """Check every triple and return the knowledge graph.

        Raises:
            IndexError: if an entity or a relation is out of range.
        """
        limits = {"heads": self.num_entities, "relations": self.num_relations, "tails": self.num_entities}
        for part, triples in self._tensors().items():
            for column, (role, limit) in enumerate(limits.items()):
                check_ids(f"{part}[:, {column}] ({role})", triples[:, column], limit)
        return self

    def graph(self, *, inverse: bool = False) -> Graph:
        """Build the graph of the training triples, with an edge head → tail per triple.

        `edge_type` is the relation, `edge_ids` the row in `train`.

        Args:
            inverse: add an edge tail → head per triple, with relation r + num_relations and edge id e + len(train).
        """
        head, relation, tail = self.train.unbind(1)
        types = {"edge_type": relation, "num_edge_types": self.num_relations or None}
        return Graph.from_edges(
            head, tail, num_nodes=self.num_entities, undirected="multi" if inverse else False, **types
        )

    def entity(self, name: str) -> int:
        """Return the id of an entity.

        Args:
            name: as in `entity_names`.

        Raises:
            KeyError: no entity has this name; the message names similar ones.
            ValueError: entities have no names.
        """
        return _id_of(name, self.entity_names, "entity")

    def relation(self, name: str) -> int:
        """Return the id of a relation.

        Args:
            name: as in `relation_names`.

        Raises:
            KeyError: no relation has this name; the message names similar ones.
            ValueError: relations have no names.
        """
        return _id_of(name, self.relation_names, "relation")

    def known_tails(self, head: int, relation: int) -> Tensor:
        """Return every tail of (head, relation) in any of the three parts, int64, ascending."""
        return self.tail_filter(torch.tensor([head]), torch.tensor([relation]))[1]

    def known_heads(self, relation: int, tail: int) -> Tensor:
        """Return every head of (relation, tail) in any of the three parts, int64, ascending."""
        return self.head_filter(torch.tensor([relation]), torch.tensor([tail]))[1]

    def tail_filter(self, head: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions of all known tails in a score matrix [num_queries, num_entities].

        For filtered ranking, save the score of the true tail and set `scores[kg.tail_filter(h, r)] = -inf`.

        Args:
            head: int64 or int32 [num_queries].
            relation: int64 or int32 [num_queries].

        Returns:
            Row and column of each known tail, int64, ordered by row, then by column.

        Raises:
            IndexError: if an entity or a relation is out of range.

        Source: Bordes et al., Translating embeddings for modeling multi-relational data (NIPS 2013).
        """
        heads, relations = self._queries(head, relation)
        return self._tails.find(heads, relations)

    def head_filter(self, relation: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions of all known heads in a score matrix [num_queries, num_entities].

        Args:
            relation: int64 or int32 [num_queries].
            tail: int64 or int32 [num_queries].

        Returns:
            Row and column of each known head, int64, ordered by row, then by column.

        Raises:
            IndexError: if an entity or a relation is out of range.
        """
        tails, relations = self._queries(tail, relation)
        return self._heads.find(tails, relations)

    def _queries(self, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        entities = check_ids("entities", entity, self.num_entities)
        relations = check_ids("relations", relation, self.num_relations)
        if len(entities) != len(relations):
            raise ValueError(f"{len(entities)} entities and {len(relations)} relations; pass one of each per query")
        return entities, relations

    @cached_property
    def _tails(self) -> PairIndex:
        head, relation, tail = torch.cat((self.train, self.valid, self.test)).unbind(1)
        return PairIndex.build(head, relation, tail, self.num_relations)

    @cached_property
    def _heads(self) -> PairIndex:
        head, relation, tail = torch.cat((self.train, self.valid, self.test)).unbind(1)
        return PairIndex.build(tail, relation, head, self.num_relations)

    def _tensors(self) -> dict[str, Tensor]:
        return {part: getattr(self, part) for part in _PARTS}

    def _sizes(self) -> dict[str, str]:
        return {
            "entities": f"{self.num_entities:,}",
            "relations": f"{self.num_relations:,}",
            "train / valid / test": " / ".join(f"{len(triples):,}" for triples in self._tensors().values()),
            "bytes": format_bytes(sum(t.numel() * t.element_size() for t in self._tensors().values())),
        } | ({"notes": "; ".join(self.notes)} if self.notes else {})

    def __repr__(self) -> str:
        return (
            f"KnowledgeGraph({self.name}: " + ", ".join(f"{key} {value}" for key, value in self._sizes().items()) + ")"
        )

    def _repr_html_(self) -> str:
        return html_table(self.name, self._sizes())


def _searchable(names: Sequence[str] | None) -> Sequence[str] | None:
    """Return names as they are, or as a list if they are an array."""
    return names if names is None or isinstance(names, list | tuple) else list(names)


def _id_of(name: str, names: Sequence[str] | None, kind: str) -> int:
    if names is None:
        raise ValueError(f"the {kind} names are not known; pass {kind}_names= to KnowledgeGraph.build, or use the id")
    if name not in names:
        similar = get_close_matches(name, names, n=3)
        raise KeyError(
            f"no {kind} is named {name!r}; " + (f"similar ones: {', '.join(similar)}" if similar else "check it")
        )
    return names.index(name)
