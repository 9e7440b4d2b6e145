import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from workbench.links.knowledge_graph import KnowledgeGraph

ENTITIES, RELATIONS = 5, 3
TRIPLES = st.lists(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)), max_size=12
)


def knowledge(train, valid=(), test=(), **more):
    parts = (torch.tensor(list(part), dtype=torch.int32).reshape(-1, 3) for part in (train, valid, test))
    return KnowledgeGraph.build(*parts, num_entities=ENTITIES, num_relations=RELATIONS, **more)


@given(TRIPLES, TRIPLES, TRIPLES)
def test_filters_equal_a_search_of_all_triples(train, valid, test):
    kg = knowledge(train, valid, test)
    facts = {*train, *valid, *test}
    queries = [(e, r) for e in range(ENTITIES) for r in range(RELATIONS)]
    entity, relation = torch.tensor(queries).T
    tails, heads = kg.tail_filter(entity, relation), kg.head_filter(relation, entity)
    for row, (e, r) in enumerate(queries):
        wanted_tails = sorted({t for h, q, t in facts if (h, q) == (e, r)})
        wanted_heads = sorted({h for h, q, t in facts if (q, t) == (r, e)})
        assert kg.known_tails(e, r).tolist() == wanted_tails == tails[1][tails[0] == row].tolist()
        assert kg.known_heads(r, e).tolist() == wanted_heads == heads[1][heads[0] == row].tolist()
    assert tails[0].tolist() == sorted(tails[0].tolist())


def test_filter_is_an_index_into_scores():
    kg = knowledge([(0, 1, 2), (0, 1, 3)], [(0, 1, 4)], [(2, 0, 0)])
    head, relation, tail = torch.tensor([0, 2, 0, 1]), torch.tensor([1, 0, 1, 1]), torch.tensor([3, 0, 2, 1])
    scores = torch.arange(4.0 * ENTITIES).view(4, ENTITIES)
    own = scores[torch.arange(4), tail]
    scores[kg.tail_filter(head, relation)] = -torch.inf
    ranks = 1 + (scores > own[:, None]).sum(1)
    assert ranks.tolist() == [1, 5, 1, 4]  # by hand: entities 0, 1 compete in rows 0 and 2, all but 0 in row 1


def test_graph_of_training_triples():
    kg = knowledge([(0, 1, 2), (2, 0, 0), (0, 2, 2)], [(1, 1, 1)])
    graph = kg.graph()
    assert graph.edge_type is not None and graph.edge_ids is not None
    assert graph.num_nodes == ENTITIES and graph.num_edges == 3
    edges = zip(graph.indices.tolist(), graph.edge_type.tolist(), graph.edge_ids.tolist(), strict=True)
    assert list(edges) == [(2, 0, 1), (0, 1, 0), (0, 2, 2)]


def test_inverse_relations_follow_the_others():
    kg = knowledge([(0, 1, 2), (2, 0, 0)])
    graph = kg.graph(inverse=True)
    assert graph.edge_type is not None and graph.edge_ids is not None
    dst = torch.repeat_interleave(torch.arange(ENTITIES), graph.in_degrees())
    edges = {
        (h, r, t): e
        for h, r, t, e in zip(
            graph.indices.tolist(), graph.edge_type.tolist(), dst.tolist(), graph.edge_ids.tolist(), strict=True
        )
    }
    assert edges == {(0, 1, 2): 0, (2, 0, 0): 1, (2, 1 + RELATIONS, 0): 2, (0, 0 + RELATIONS, 2): 3}


def test_repr_and_fingerprint():
    kg = knowledge([(0, 1, 2)], name="<facts>")
    assert repr(kg) == "KnowledgeGraph(<facts>: entities 5, relations 3, train / valid / test 1 / 0 / 0, bytes 24 B)"
    assert "<caption>&lt;facts&gt;</caption>" in kg._repr_html_()
    assert kg.fingerprint == knowledge([(0, 1, 2)]).fingerprint
    assert len({kg.fingerprint, knowledge([(0, 1, 3)]).fingerprint, knowledge([], [(0, 1, 2)]).fingerprint}) == 3


def test_ids_beyond_32_bits():
    size = 2**40
    triples = torch.tensor([[size - 1, 1, 7], [size - 1, 1, size - 2], [0, 0, 0]])
    kg = KnowledgeGraph.build(triples, triples[:0], triples[:0], num_entities=size, num_relations=2)
    assert kg.known_tails(size - 1, 1).tolist() == [7, size - 2]
    assert kg.known_tails(1, 0).tolist() == []
    huge = KnowledgeGraph.build(triples, triples[:0], triples[:0], num_entities=size, num_relations=2**30)
    with pytest.raises(OverflowError, match="63 bits"):
        huge.known_tails(0, 0)


def test_names_may_be_an_array():
    names = {"entity_names": np.array(list("abcde")), "relation_names": np.array(["r", "s", "t"])}
    kg = knowledge([(0, 1, 2)], **names)
    assert (kg.entity("c"), kg.relation("t")) == (2, 2) and kg.entity_names == list("abcde")
    with pytest.raises(KeyError, match="no relation is named 'u'"):
        kg.relation("u")
    given = list("abcde")
    assert knowledge([(0, 1, 2)], entity_names=given).entity_names is given, "large graphs have many names"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"train": torch.zeros(2, 3)}, TypeError, "train must be int64 triples, not torch.float32"),
        ({"valid": torch.zeros(2, 2, dtype=torch.int64)}, ValueError, r"valid has shape \(2, 2\)"),
        ({"test": torch.tensor([[0, 3, 0]])}, IndexError, r"test\[:, 1\] \(relations\) contains 3"),
        ({"test": torch.tensor([[-1, 0, 0]])}, IndexError, r"test\[:, 0\] \(heads\) contains -1"),
        ({"num_entities": -1}, ValueError, "num_entities is -1"),
        ({"relation_names": ["a"]}, ValueError, "relation_names has 1 names; it must have 3"),
    ],
)
def test_invalid_arguments_are_rejected(change, error, message):
    none = torch.zeros(0, 3, dtype=torch.int64)
    good = {"train": none, "valid": none, "test": none, "num_entities": 5, "num_relations": 3}
    with pytest.raises(error, match=message):
        KnowledgeGraph.build(**good | change)


def test_invalid_queries_are_rejected():
    kg = knowledge([(0, 1, 2)])
    with pytest.raises(IndexError, match="entities contains 5"):
        kg.known_tails(5, 0)
    with pytest.raises(ValueError, match="2 entities and 1 relations"):
        kg.tail_filter(torch.tensor([0, 1]), torch.tensor([0]))
