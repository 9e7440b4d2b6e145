"""`KnowledgeGraph`: triples (head, relation, tail) in three parts, their graph, and what a filtered ranking skips."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from workbench.core.array_store import content_digest
from workbench.core.errors import check_at_least, check_ids, kind_of
from workbench.core.graph import Graph
from workbench.core.pair_index import PairIndex
from workbench.core.units import format_bytes

_MOST = 2**62
_PARTS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False, repr=False)
class KnowledgeGraph:
    """Triples to learn, to choose by and to test; `KnowledgeGraph.build` checks and signs them.

    Args:
        train: int64 [any, 3]: head, relation, tail.
        valid: like `train`.
        test: like `train`.
        num_entities: heads and tails lie in [0, num_entities).
        num_relations: relations lie in [0, num_relations).
        name: for people and for runs.
        fingerprint: sha256 over the triples.
        entity_names: one an entity, where the source gives them.
        relation_names: one a relation.

    Raises:
        TypeError: triples that are not int64.
        ValueError: triples that are not three numbers each, names of another number.
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

    def __post_init__(self) -> None:
        for part, triples in self._tensors().items():
            if not isinstance(triples, Tensor) or triples.dtype != torch.int64:
                raise TypeError(
                    f"{part} must be int64 triples, not {kind_of(triples)}; convert with torch.as_tensor({part}).long()"
                )
            if triples.dim() != 2 or triples.shape[1] != 3:
                raise ValueError(f"{part} has shape {tuple(triples.shape)}; it must be [number of triples, 3]")
        for field, count in (("num_entities", self.num_entities), ("num_relations", self.num_relations)):
            check_at_least(field, count, 0, most=_MOST)
        for field, count in (("entity_names", self.num_entities), ("relation_names", self.num_relations)):
            names = getattr(self, field)
            if names is not None and len(names) != count:
                raise ValueError(f"{field} has {len(names)} names; there must be {count}")

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
    ) -> "KnowledgeGraph":
        """Check the triples, all of them read once, and compute the fingerprint.

        Args:
            train: int32 or int64 [any, 3]; see `KnowledgeGraph`, like the rest.
            valid: like `train`.
            test: like `train`.
            num_entities: entities.
            num_relations: relations.
            name: for people and for runs.
            entity_names: one an entity.
            relation_names: one a relation.

        Raises:
            TypeError: triples that are not whole numbers.
            ValueError: another shape.
            IndexError: an entity or a relation out of range.
        """
        triples = [t.to(torch.int64) if kind_of(t) == "torch.int32" else t for t in (train, valid, test)]
        graph = cls(
            *triples,
            num_entities=num_entities,
            num_relations=num_relations,
            name=name,
            fingerprint="",
            entity_names=entity_names,
            relation_names=relation_names,
        )
        return replace(graph.validate(), fingerprint=content_digest(graph._tensors()))

    def validate(self) -> "KnowledgeGraph":
        """Read all of it and return it.

        Raises:
            IndexError: an entity or a relation out of range.
        """
        limits = {"heads": self.num_entities, "relations": self.num_relations, "tails": self.num_entities}
        for part, triples in self._tensors().items():
            for column, (role, limit) in enumerate(limits.items()):
                check_ids(f"{part}[:, {column}] ({role})", triples[:, column], limit)
        return self

    def graph(self, *, inverse: bool = False) -> Graph:
        """The graph of the training triples: head → tail, `edge_type` the relation, `edge_ids` the row of `train`.

        Args:
            inverse: add tail → head for every triple, of relation r + num_relations and id e + len(train).
        """
        head, relation, tail = self.train.unbind(1)
        if inverse:
            head, tail = torch.cat((head, tail)), torch.cat((tail, head))
            relation = torch.cat((relation, relation + self.num_relations))
        return Graph.from_edges(head, tail, num_nodes=self.num_entities, edge_type=relation)

    def known_tails(self, head: int, relation: int) -> Tensor:
        """int64, ascending: every tail that follows (head, relation) in any of the three parts."""
        return self.tail_filter(torch.tensor([head]), torch.tensor([relation]))[1]

    def known_heads(self, relation: int, tail: int) -> Tensor:
        """int64, ascending: every head that precedes (relation, tail) in any of the three parts."""
        return self.head_filter(torch.tensor([relation]), torch.tensor([tail]))[1]

    def tail_filter(self, head: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Positions of all known tails in a matrix of scores with one row a query and one column an entity.

        The filtered ranking of Bordes et al. (NIPS 2013): `scores[kg.tail_filter(h, r)] = -inf`, after the true tail's
        own score was read.

        Args:
            head: int64 or int32 [queries].
            relation: int64 or int32 [queries].

        Returns:
            Row and column of each known tail, int64, by row, then ascending.

        Raises:
            IndexError: an entity or a relation out of range.
        """
        heads, relations = self._queries(head, relation)
        return self._tails.find(heads, relations)

    def head_filter(self, relation: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
        """`tail_filter` for heads: row and column of every known head of (relation, tail)."""
        tails, relations = self._queries(tail, relation)
        return self._heads.find(tails, relations)

    def _queries(self, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        entities = check_ids("entities", entity, self.num_entities)
        relations = check_ids("relations", relation, self.num_relations)
        if len(entities) != len(relations):
            raise ValueError(f"{len(entities)} entities and {len(relations)} relations; pass one of each a query")
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
        train, valid, test = (f"{len(triples):,}" for triples in self._tensors().values())
        return {
            "entities": f"{self.num_entities:,}",
            "relations": f"{self.num_relations:,}",
            "train / valid / test": f"{train} / {valid} / {test}",
            "bytes": format_bytes(sum(t.numel() * t.element_size() for t in self._tensors().values())),
        }

    def __repr__(self) -> str:
        return (
            f"KnowledgeGraph({self.name}: " + ", ".join(f"{key} {value}" for key, value in self._sizes().items()) + ")"
        )

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{key}</th><td>{value}</td></tr>" for key, value in self._sizes().items())
        return f"<table><caption>{html.escape(self.name)}</caption><tbody>{rows}</tbody></table>"
