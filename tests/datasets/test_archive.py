"""Data sets and knowledge graphs in archives, and their validation."""

import numpy as np
import pytest
import torch

from workbench.core.errors import DataError
from workbench.datasets.archive import read_archive
from workbench.datasets.raw import RawSet, SparseRows
from workbench.links.knowledge_graph import KnowledgeGraph


def node_set(path):
    raw = read_archive(path)
    assert isinstance(raw, RawSet)
    return raw


def test_reads_what_was_written(write):
    raw = node_set(write())
    assert raw.src.tolist() == [0, 1, 2, 3, 4, 4] and raw.dst.tolist() == [1, 0, 3, 2, 4, 5]
    assert isinstance(raw.x, torch.Tensor) and raw.x.tolist() == [[2.0 * i, 2.0 * i + 1] for i in range(6)]
    assert raw.y is not None and raw.y.tolist() == [0, 1, 0, 1, -1, 2]
    assert [ids.tolist() for ids in raw.splits[0]] == [[0, 1], [2], [5, 3]]
    assert (raw.num_nodes, raw.stored_once, raw.num_classes, raw.link_split) == (6, False, None, None)


@pytest.mark.parametrize("dtype", [np.int32, np.int16, np.int8])
def test_labels_of_narrow_dtypes(write, dtype):
    """The upper bound of a label, 2⁶³ - 1, would overflow in their dtype."""
    raw = node_set(write(y=np.array([0, 1, 0, 1, -1, 2], dtype)))
    assert raw.y is not None and raw.y.tolist() == [0, 1, 0, 1, -1, 2]
    with pytest.raises(DataError, match=r"y\[4\] is -2; it must be in \[-1, "):
        read_archive(write(y=np.array([0, 1, 0, 1, -2, 2], dtype)))


def test_sparse_features(write):
    indptr, indices = np.array([0, 2, 2, 3, 3, 3, 3]), np.array([0, 4, 1])
    raw = node_set(
        write(x=None, x_indptr=indptr, x_indices=indices, x_data=np.ones(3, np.float32), x_shape=np.array([6, 5]))
    )
    assert isinstance(raw.x, SparseRows) and raw.x.indices.tolist() == [0, 4, 1] and raw.x.width == 5


def test_several_splits_and_several_labels(write):
    masks = np.zeros((3, 2, 6), bool)
    masks[0, 0, [0, 2]] = masks[1, 0, 1] = masks[2, 0, 3] = masks[0, 1, 5] = masks[1, 1, 4] = masks[2, 1, 0] = True
    raw = node_set(write(train_masks=masks[0], val_masks=masks[1], test_masks=masks[2], y=np.eye(6, 4, dtype=np.int8)))
    assert [[ids.tolist() for ids in split] for split in raw.splits] == [[[0, 2], [1], [3]], [[5], [4], [0]]]
    assert raw.y is not None and raw.y.dtype == torch.float32 and raw.y.shape == (6, 4)


def test_class_names_determine_the_number_of_classes(write):
    assert node_set(write(class_names=np.array(["a", "b", "c", "never seen"]))).num_classes == 4


def test_link_split(write):
    pairs = {key: np.array([[0, 1], [2, 3]], np.int32) for key in ("valid_edge", "valid_edge_neg", "test_edge")}
    links = node_set(write(**pairs, test_edge_neg=np.array([[5], [0]]))).link_split
    assert links is not None and links.train_edge.tolist() == [[0, 1, 2, 3, 4, 4], [1, 0, 3, 2, 4, 5]]
    assert links.test_edge_neg.tolist() == [[5], [0]]


def test_knowledge_graph(write_triples):
    kg = read_archive(write_triples())
    assert isinstance(kg, KnowledgeGraph)
    assert (kg.num_entities, kg.num_relations, kg.name) == (4, 2, "facts")
    assert kg.train.tolist() == [[0, 0, 1], [1, 1, 2], [0, 0, 2]]
    assert kg.entity_names == ["a", "b", "c", "d"] and kg.relation_names is None


IDS = np.array([[0, 1], [1, 6]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge_index": None}, r"tiny.npz: edge_index missing; the archive contains num_nodes, test_idx"),
        ({"num_nodes": None}, "tiny.npz: num_nodes missing"),
        ({"num_nodes": np.int64(-3)}, "num_nodes is -3; it must be at least 1"),
        ({"num_nodes": np.int64(0)}, "num_nodes is 0"),
        ({"num_nodes": np.float64(6)}, "num_nodes has dtype float64"),
        ({"num_nodes": np.array([6])}, r"num_nodes has dtype int64 and shape \(1,\)"),
        ({"edge_index": np.zeros((3, 2), int)}, r"edge_index has shape \[3, 2\]; it must be \[2, any\]"),
        ({"edge_index": np.zeros(4, int)}, r"edge_index has shape \[4\]"),
        ({"edge_index": np.zeros((2, 0), int)}, "edge_index has no edges"),
        ({"edge_index": IDS.astype(float)}, "edge_index has dtype float64; it must contain integers"),
        ({"edge_index": IDS}, r"edge_index\[1, 1\] is 6; it must be in \[0, 6\)"),
        ({"edge_index": -IDS}, r"edge_index\[0, 1\] is -1"),
        ({"x": np.full((6, 2), np.nan)}, r"x\[0, 0\] is nan; it must be finite"),
        ({"x": np.zeros((5, 2))}, r"x has shape \[5, 2\]; it must be \[6, any\]"),
        ({"x": np.full((6, 2), "a")}, "x has dtype <U1; it must contain numbers"),
        ({"y": np.zeros(5, int)}, r"y has shape \[5\]; it must be \[6\]"),
        ({"y": np.full(6, -2)}, r"y\[0\] is -2"),
        ({"y": np.full(6, 0.5)}, r"y\[0\] is 0.5; classes are whole numbers"),
        ({"train_idx": np.array([1, 6])}, r"train_idx\[1\] is 6"),
        ({"val_idx": None}, "val_idx missing"),
        ({"test_idx": np.array([[1]])}, r"test_idx has shape \[1, 1\]"),
        ({"train_masks": np.ones((1, 6), bool)}, "val_masks, test_masks missing"),
        ({key: np.ones((1, 6)) for key in ("train_masks", "val_masks", "test_masks")}, "train_masks has dtype float64"),
        ({"x": None, "x_data": np.ones(3)}, "x_indptr, x_indices, x_shape missing"),
        ({"valid_edge": np.ones((2, 2), int)}, "valid_edge_neg, test_edge, test_edge_neg missing"),
        ({"class_names": np.arange(3)}, "class_names has dtype int64"),
        ({"x": None, "gpt_pred": np.zeros((6, 2), int)}, "class_names missing"),
        ({"y": np.array([{}, {}], object)}, "y contains pickled objects, which are never loaded"),
    ],
)
def test_refused_with_file_key_and_value(write, change, message):
    path = write(**change)
    with pytest.raises(DataError, match=message) as error:
        read_archive(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_data": np.array([1, np.inf, 1])}, r"x_data\[1\] is inf"),
        ({"x_indices": np.array([0, 5, 1])}, r"x_indices\[1\] is 5; it must be in \[0, 5\)"),
        ({"x_indices": np.array([0, 1])}, r"x_indices has shape \[2\]; it must be \[3\]"),
        ({"x_indptr": np.array([0, 2, 1, 3, 3, 3, 3])}, "x_indptr must be non-decreasing from 0 to 3"),
        ({"x_indptr": np.array([0, 2, 2, 2, 2, 2, 2])}, "x_indptr must be non-decreasing"),
        ({"x_shape": np.array([7, 5])}, r"x_shape is \[7, 5\]; it must be \[6, columns\]"),
        ({"x_shape": np.array([6, -1])}, r"x_shape is \[6, -1\]"),
    ],
)
def test_bad_sparse_features_are_refused(write, change, message):
    good = {
        "x_indptr": np.array([0, 2, 2, 3, 3, 3, 3]),
        "x_indices": np.array([0, 4, 1]),
        "x_data": np.ones(3),
        "x_shape": np.array([6, 5]),
    }
    with pytest.raises(DataError, match=message):
        read_archive(write(x=None, **good | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_relations": np.int64(-1)}, "num_relations is -1"),
        ({"train": np.zeros((0, 3), int)}, "train has no triples"),
        ({"valid": np.zeros((2, 2), int)}, r"valid has shape \[2, 2\]; it must be \[any, 3\]"),
        ({"test": np.array([[0, 2, 1]])}, r"test\[:, 1\] \(relations\) contains 2"),
        ({"test": np.array([[0, 1, 4]])}, r"test\[:, 2\] \(tails\) contains 4"),
        ({"train": np.zeros((1, 3))}, "train has dtype float64"),
        ({"test": None}, "test missing"),
        ({"entity_names": np.array([b"a"])}, "entity_names has 1 names; it must have 4"),
        ({"relation_names": np.ones(2)}, "relation_names has dtype float64"),
    ],
)
def test_bad_knowledge_graphs_are_refused(write_triples, change, message):
    path = write_triples(**change)
    with pytest.raises(DataError, match=message) as error:
        read_archive(path)
    assert str(error.value).count(str(path)) == 1


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("w", r"tiny\.npz: unknown key 'w'; rename or drop it \(known: edge_index, num_nodes, x, .*node_year\)"),
        ("train_idy", r"unknown key 'train_idy'"),
        ("train", r"unknown key 'train'"),
        ("num_entitiez", r"unknown key 'num_entitiez'"),
    ],
)
def test_unknown_keys_are_refused(write, key, message):
    with pytest.raises(DataError, match=message):
        read_archive(write(**{key: np.zeros(2)}))


def test_unknown_keys_of_knowledge_graphs_are_refused(write_triples):
    with pytest.raises(DataError, match=r"unknown key 'y'; rename or drop it \(known: train, valid, test, "):
        read_archive(write_triples(y=np.zeros(2)))


def test_ignored_keys_are_accepted(write):
    assert node_set(write(node_year=np.zeros(6, np.int16))).num_nodes == 6
