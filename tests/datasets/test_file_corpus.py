"""Small files as people have them: each is read right, or refused with file, key, what was seen and a remedy.

What is right is written by hand, for 6 nodes, edges 0→1, 1→0, 2→3, 3→2, 4→4, 4→5 and classes 0 1 0 1 -1 2.
"""

import gzip
import re
from typing import Any

import numpy as np
import pytest
import torch

import workbench as wb
from tests.datasets.ogb_folder import EDGES, FEATURES, LABELS, needs_ogb, write_binary_set, write_csv, write_set
from workbench.core.errors import CapacityError, DataError

Y = np.array([0, 1, 0, 1, -1, 2])
NAN_Y = np.where(Y < 0, np.nan, Y)
TWO = np.array([[1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [1, 0, 0]])
ONE_HOT = np.eye(3, dtype=np.int64)[[0, 1, 0, 1, 2, 2]]
EDGE_INDEX = np.array([[0, 1, 2, 3, 4, 4], [1, 0, 3, 2, 4, 5]])
X = np.arange(12).reshape(6, 2)
PARTS = ([0, 1], [2], [3, 5])
BIG = 2**64 - 1

CLASSES = {
    "int64": Y,
    "int8": Y.astype(np.int8),
    "big-endian": Y.astype(">i4"),
    "column": Y[:, None],
    "column of int8": Y[:, None].astype(np.int8),
    "float32": Y.astype(np.float32),
    "float16": Y.astype(np.float16),
    "longdouble": Y.astype(np.longdouble),
    "NaN": NAN_Y,
    "column with NaN, as OGB's": NAN_Y[:, None].astype(np.float32),
    "Fortran order": np.asfortranarray(Y[:, None]),
}
"""The classes above in forms that mean nothing else."""


@pytest.mark.parametrize("y", CLASSES.values(), ids=CLASSES)
def test_classes_are_read(write: Any, y: np.ndarray) -> None:
    write(y=y)
    data = wb.load_dataset("tiny")
    assert data.y.dtype == torch.int64 and data.y.tolist() == [0, 1, 0, 1, -1, 2] and data.num_classes == 3
    logits = torch.zeros(4, 3)
    assert torch.nn.functional.cross_entropy(logits, data.y[:4]).item() == pytest.approx(np.log(3))


def test_two_classes_in_a_column_are_no_labels_of_one_class(write: Any) -> None:
    for y in (Y[:4] > 0, np.array([[0], [1], [0], [1]], np.uint8), np.array([[False], [True], [False], [True]])):
        write(y=y, num_nodes=np.int64(4), edge_index=EDGE_INDEX[:, :4], x=None, test_idx=np.array([3]))
        data = wb.load_dataset("tiny")
        assert data.y.tolist() == [0, 1, 0, 1] and data.num_classes == 2


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float16, np.float64])
def test_several_labels_are_read(write: Any, dtype: Any) -> None:
    write(y=TWO.astype(dtype))
    data = wb.load_dataset("tiny")
    assert data.y.dtype == torch.float32 and data.y.tolist() == TWO.tolist() and data.num_classes == 3


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.float16, np.float64, np.longdouble, ">f4"])
def test_features_are_read(write: Any, dtype: Any) -> None:
    write(x=X.astype(dtype))
    data = wb.load_dataset("tiny")
    expected = (X != 0) if dtype is bool else X
    assert data.x.dtype == torch.float32 and data.x.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32, np.uint64, ">i4", ">i8"])
def test_ids_are_read(write: Any, dtype: Any) -> None:
    ids = {f"{part}_idx": np.array(nodes, dtype) for part, nodes in zip(("train", "val", "test"), PARTS, strict=True)}
    write(edge_index=EDGE_INDEX.astype(dtype), num_nodes=np.array(6, dtype), **ids)
    data = wb.load_dataset("tiny")
    dst = torch.repeat_interleave(torch.arange(6), data.graph.in_degrees())
    pairs = sorted(zip(data.graph.indices.tolist(), dst.tolist(), strict=True))
    assert pairs == sorted(zip(*EDGE_INDEX.tolist(), strict=True))
    assert (data.train_idx.tolist(), data.val_idx.tolist(), data.test_idx.tolist()) == PARTS


def masks(dtype: Any = bool) -> dict[str, np.ndarray]:
    """Two splits: `PARTS`, and the same nodes in other parts."""
    rows = {f"{part}_masks": np.zeros((2, 6), dtype) for part in ("train", "val", "test")}
    for number in range(2):
        for part, name in enumerate(rows):
            rows[name][number, PARTS[(part + number) % 3]] = 1
    return rows


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.int8])
def test_masks_are_no_ids(write: Any, dtype: Any) -> None:
    write(train_idx=None, val_idx=None, test_idx=None, **masks(dtype))
    for number in range(2):
        data = wb.load_dataset("tiny", split=number)
        found = (data.train_idx.tolist(), data.val_idx.tolist(), data.test_idx.tolist())
        assert found == PARTS[number:] + PARTS[:number]


def csr(**change: Any) -> dict[str, Any]:
    good = {"x_indptr": [0, 2, 2, 3, 3, 3, 3], "x_indices": [0, 4, 1], "x_data": [1.0, 2.0, 3.0], "x_shape": [6, 5]}
    return {"x": None} | {key: np.array(values) for key, values in (good | change).items()}


REFUSED = {
    # labels
    "y of another length": ({"y": Y[:5]}, r"y has shape \[5\]; it must be \[6\]"),
    "y as a row": ({"y": Y[None]}, r"y has shape \[1, 6\]; .*save y\.T"),
    "y of no columns": ({"y": np.zeros((6, 0))}, r"y has shape \[6, 0\]"),
    "y of three dimensions": ({"y": np.zeros((6, 2, 2))}, r"y has shape \[6, 2, 2\]"),
    "y as a number": ({"y": np.int64(1)}, r"y has shape \[\]"),
    "y of strings": ({"y": np.array(list("abcabc"))}, r"y has dtype <U1; .*np\.unique"),
    "y of bytes": ({"y": np.array([b"a"] * 6)}, r"y has dtype \|S1; .*np\.unique"),
    "y of fractions": ({"y": Y + 0.5}, r"y\[0\] is 0\.5; classes are whole numbers"),
    "y of fractions in a column": ({"y": Y[:, None] / 2}, r"y\[1, 0\] is 0\.5; classes are whole numbers"),
    "y infinite": ({"y": np.where(Y == 2, np.inf, Y)}, r"y\[5\] is inf; classes are whole numbers"),
    "y rounded": ({"y": np.where(Y == 2, 2**25, Y).astype(np.float32)}, r"y\[5\] is 33554432\.0"),
    "y of float16 that were rounded": ({"y": np.where(Y == 2, 4096, Y).astype(np.float16)}, r"y\[5\] is 4096\.0"),
    "y below -1": ({"y": np.where(Y < 0, -2, Y)}, r"y\[4\] is -2; it must be in \[-1, "),
    "y below -1 as float": ({"y": np.where(Y < 0, -100.0, Y)}, r"y\[4\] is -100; it must be in \[-1, "),
    "y beyond int64": ({"y": np.array([0, 1, 0, 1, BIG - 1, 2], np.uint64)}, rf"y\[4\] is {BIG - 1}; it must be in"),
    "y beyond class_names": ({"class_names": np.array(["a", "b"])}, r"y\[5\] is 2; it must be in \[-1, 2\)"),
    "y of uint8 that wrapped": ({"y": Y.astype(np.uint8)}, r"y\[4\] is 255, which is -1 in uint8; save y as int64"),
    "y of uint64 that wrapped": ({"y": Y.astype(np.uint64)}, rf"y\[4\] is {BIG}, which is -1 in uint64"),
    "y of complex numbers": ({"y": Y.astype(complex)}, "y has dtype complex128"),
    "y of objects": ({"y": np.array([*"abcde", None], object)}, "y contains pickled objects"),
    "y of dates": ({"y": Y.astype("M8[D]")}, r"y has dtype datetime64\[D\]"),
    "one-hot": ({"y": ONE_HOT}, r"y has exactly one 1 in each of its 6 rows.*save y\.argmax\(1\)"),
    "one-hot bool": ({"y": ONE_HOT.astype(bool)}, "y has exactly one 1 in each of its 6 rows"),
    "one-hot float": ({"y": ONE_HOT.astype(np.float32)}, "y has exactly one 1 in each of its 6 rows"),
    "labels of 7": ({"y": TWO * 7}, r"y\[0, 0\] is 7; several labels per node are 0 or 1"),
    "labels of -5": ({"y": np.where(TWO, TWO, -5.0)}, r"y\[0, 1\] is -5\.0; several labels"),
    "labels of -1": ({"y": TWO - 1}, r"y\[0, 1\] is -1; several labels"),
    "labels of NaN": ({"y": np.where(TWO, np.nan, 1)}, r"y\[0, 0\] is nan; several labels"),
    "labels of .5": ({"y": TWO / 2}, r"y\[0, 0\] is 0\.5; several labels"),
    "labels and names": (
        {"y": TWO, "class_names": np.array(["a", "b"])},
        "y has 3 labels per node; .*one per class, and there are 2",
    ),
    "names that are not UTF-8": (
        {"class_names": np.array([b"a", b"b", b"\xff"])},
        r"class_names contains b'\\xff', which is not UTF-8",
    ),
    # parts of the split
    "bool mask as ids": (
        {"train_idx": np.array([1, 1, 0, 0, 0, 0], bool)},
        r"train_idx has dtype bool, a mask; .*np\.flat",
    ),
    "bool mask, too short": ({"train_idx": np.ones(3, bool)}, "train_idx has dtype bool; it must contain integers"),
    "uint8 mask as ids": (
        {"train_idx": np.array([1, 1, 0, 0, 0, 0], np.uint8)},
        r"train_idx .* a mask; .*np\.flatnonzero",
    ),
    "int mask as ids": ({"test_idx": np.array([0, 0, 0, 0, 0, 1])}, r"test_idx has 6 values of 0 and 1, a mask"),
    "a mask of all nodes": ({"test_idx": np.ones(6, int)}, r"test_idx has 6 values of 0 and 1, a mask"),
    "masks as ids": (
        {"train_idx": np.ones((2, 6), int)},
        r"train_idx .*shape \[2, 6\]; .*save masks .* as train_masks",
    ),
    "masks by node as ids": ({"train_idx": np.ones((6, 2), bool)}, r"train_idx .*shape \[6, 2\]; .*as train_masks"),
    "float mask as ids": ({"train_idx": np.array([1.0, 1, 0, 0, 0, 0])}, "train_idx has dtype float64; .*integers"),
    "float ids": ({"train_idx": np.array([0.0, 1.0])}, r"train_idx has dtype float64; .*\.astype\(np\.int64\)"),
    "ids as text": ({"train_idx": np.array(["0", "1"])}, "train_idx has dtype <U1; it must contain integers"),
    "ids in a column": (
        {"train_idx": np.array([[0], [1]])},
        r"train_idx has shape \[2, 1\]; .*save train_idx\.reshape\(-1\)",
    ),
    "negative ids": ({"train_idx": np.array([0, -1])}, r"train_idx\[1\] is -1; it must be in \[0, 6\)"),
    "ids from 1": ({"test_idx": np.array([5, 6])}, r"test_idx\[1\] is 6; it must be in \[0, 6\)"),
    "ids that wrap": ({"test_idx": np.array([5, 2**64 - 3], np.uint64)}, rf"test_idx\[1\] is {2**64 - 3}"),
    "repeated ids": (
        {"test_idx": np.array([5, 3, 5])},
        r"test_idx contains 5 more than once, at \[0, 2\]; .*np\.unique",
    ),
    "overlapping ids": ({"test_idx": np.array([5, 1])}, "train_idx and test_idx both contain node 1; remove it"),
    "overlapping masks": (masks() | {"val_masks": masks()["train_masks"]}, r"train_masks\[0\] and val_masks\[0\] both"),
    "masks by node": (
        {key: m.T for key, m in masks().items()},
        r"train_masks has shape \[6, 2\]; .*save train_masks\.T",
    ),
    "one mask": ({key: m[0] for key, m in masks().items()}, r"train_masks has shape \[6\]; .*save train_masks\[None\]"),
    "float masks": (masks(np.float32), r"train_masks has dtype float32; it must be bool"),
    "ids as masks": (
        {k: np.array([[0, 1, 2, 3, 4, 5]]) for k in masks()},
        r"train_masks\[0, 2\] is 2; a mask contains",
    ),
    "masks of -1": ({k: -m for k, m in masks(np.int8).items()}, r"train_masks\[0, 0\] is -1; a mask contains"),
    "invalid ids beside masks": (masks() | {"train_idx": np.array([9])}, r"train_idx\[0\] is 9"),
    "PyG's name": ({"train_mask": np.ones(6, bool)}, "unknown key 'train_mask'; .*did you mean 'train_masks'"),
    # edges and the number of nodes
    "float edges": ({"edge_index": EDGE_INDEX.astype(float)}, r"edge_index has dtype float64; .*\.astype\(np\.int64\)"),
    "pairs of edges": ({"edge_index": EDGE_INDEX.T}, r"edge_index has shape \[6, 2\]; .*save edge_index\.T"),
    "edges and weights": (
        {"edge_index": np.ones((3, 6), int)},
        r"edge_index has shape \[3, 6\]; it must be \[2, any\]",
    ),
    "ids beyond the nodes": ({"edge_index": EDGE_INDEX + 1}, r"edge_index\[0, 4\] is 5|edge_index\[1, 5\] is 6"),
    "negative edges": ({"edge_index": EDGE_INDEX - 1}, r"edge_index\[0, 0\] is -1; it must be in \[0, 6\)"),
    "edges that wrap": ({"edge_index": np.full((2, 2), BIG, np.uint64)}, rf"edge_index\[0, 0\] is {BIG}"),
    "bool edges": ({"edge_index": np.ones((2, 3), bool)}, "edge_index has dtype bool"),
    "an adjacency matrix": ({"edge_index": np.eye(6, dtype=int)}, r"edge_index has shape \[6, 6\]"),
    "no nodes": ({"num_nodes": None}, "num_nodes missing; .*save it"),
    "float nodes": ({"num_nodes": np.float64(6)}, r"num_nodes has dtype float64 .*one integer: num_nodes=np\.int64"),
    "nodes as a vector": ({"num_nodes": np.array([6])}, r"num_nodes has .*shape \(1,\); it must be one integer"),
    "nodes as text": ({"num_nodes": np.array("6")}, "num_nodes has dtype <U1"),
    "too many nodes": ({"num_nodes": np.uint64(BIG)}, rf"num_nodes is {BIG}; .*below 2\*\*63"),
    "negative nodes": ({"num_nodes": np.int64(-6)}, "num_nodes is -6; it must be at least 1"),
    # features
    "x with NaN": ({"x": np.where(X == 3, np.nan, X)}, r"x\[1, 1\] is nan; it must be finite: replace"),
    "x with inf": ({"x": np.where(X == 3, -np.inf, X)}, r"x\[1, 1\] is -inf; it must be finite"),
    "x beyond float32": ({"x": np.where(X == 3, 1e300, X)}, r"x\[1, 1\] is 1e\+300; it must be finite in float32"),
    "x of too many rows": ({"x": np.ones((7, 2))}, r"x has shape \[7, 2\]; it must be \[6, any\], a row per node"),
    "x as columns": ({"x": np.ones((2, 6))}, r"x has shape \[2, 6\]; .*save x\.T"),
    "x as a vector": ({"x": np.ones(6)}, r"x has shape \[6\]; .*save x\[:, None\]"),
    "x of images": ({"x": np.ones((6, 2, 2))}, r"x has shape \[6, 2, 2\]; .*save x\.reshape\(6, -1\)"),
    "x of complex numbers": ({"x": X.astype(np.complex64)}, "x has dtype complex64 .* real numbers"),
    "x of objects": ({"x": X.astype(object)}, r"x contains pickled objects, .*save an array of numbers"),
    "x of strings": ({"x": X.astype(str)}, "x has dtype <U"),
    "two forms of x": ({"x": X} | csr() | {"x": X}, "x and x_indptr, x_indices, x_data, x_shape are both features"),
    "a part of a CSR": ({"x": None, "x_data": np.ones(2)}, "x_indptr, x_indices, x_shape missing"),
    "a CSR of float indices": (csr(x_indices=[0.0, 4, 1]), "x_indices has dtype float64"),
    "a CSR of other columns": (csr(x_shape=[6, 4]), r"x_indices\[1\] is 4; it must be in \[0, 4\)"),
    "a CSR of other rows": (csr(x_shape=[5, 5]), r"x_shape is \[5, 5\]; it must be \[6, columns\]"),
    "a CSR of too few offsets": (csr(x_indptr=[0, 2, 3]), r"x_indptr has shape \[3\]; it must be \[7\]"),
    "a CSR that ends early": (csr(x_indptr=[0, 1, 1, 2, 2, 2, 2]), "x_indptr must be non-decreasing from 0 to 3"),
    "a CSR that decreases": (csr(x_indptr=[0, 3, 1, 3, 3, 3, 3]), "x_indptr must be non-decreasing from 0 to 3"),
    "a CSR with more values": (csr(x_data=[1.0] * 4), r"x_indices has shape \[3\]; it must be \[4\]"),
    "a CSR with NaN": (csr(x_data=[1.0, np.nan, 1.0]), r"x_data\[1\] is nan; it must be finite"),
    "a CSR beyond float32": (csr(x_data=[1.0, 1e39, 1.0]), r"x_data\[1\] is 1e\+39; it must be finite in float32"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(write: Any, change: dict[str, Any], message: str) -> None:
    path = write(**change)
    with pytest.raises(DataError, match=message) as error:
        wb.load_dataset("tiny")
    assert str(error.value).startswith(f"{path}: ")


def test_empty_parts_and_all_classes_of_a_dtype(write: Any) -> None:
    write(val_idx=np.array([], np.int32), test_idx=np.array([], np.int64))
    data = wb.load_dataset("tiny")
    assert (data.train_idx.tolist(), data.val_idx.tolist(), data.test_idx.tolist()) == ([0, 1], [], [])
    write(y=np.array([254, 255, 0, 1, 2, 3], np.uint8))
    assert wb.load_dataset("tiny").num_classes == 256


def test_more_nodes_than_memory_are_refused(write: Any) -> None:
    write(num_nodes=np.int64(10**13), x=None, y=None)
    with pytest.raises(CapacityError, match=r"a graph of 10,000,000,000,000 nodes needs .* TiB"):
        wb.load_dataset("tiny")


LINKS: dict[str, Any] = dict.fromkeys(("valid_edge", "valid_edge_neg", "test_edge", "test_edge_neg"), EDGE_INDEX[:, :3])


@pytest.mark.parametrize("key", LINKS)
def test_links(write: Any, key: str) -> None:
    path = write(**LINKS | {key: LINKS[key].astype(np.uint64)})
    links = wb.load_dataset("tiny").link_split
    assert links is not None and getattr(links, key).tolist() == LINKS[key].tolist()
    bad = {
        rf"{key} has shape \[3, 2\]; .*save {key}\.T": LINKS[key].T,
        f"{key} has dtype float32": LINKS[key].astype(np.float32),
        rf"{key}\[0, 2\] is 6; it must be in \[0, 6\)": np.array([[0, 1, 6], [1, 2, 3]]),
        rf"{key}\[1, 0\] is {BIG}": np.array([[0], [BIG]], np.uint64),
    }
    for message, values in bad.items():
        write(**LINKS | {key: values})
        with pytest.raises(DataError, match=message) as error:
            wb.load_dataset("tiny")
        assert str(error.value).startswith(f"{path}: ")


TRIPLES = np.array([[0, 0, 1], [1, 1, 2], [3, 0, 2]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": TRIPLES.astype(float)}, r"train has dtype float64; .*\.astype\(np\.int64\)"),
        ({"train": TRIPLES[:2].T}, r"train has shape \[3, 2\]; .*save train\.T"),
        ({"valid": TRIPLES[:, :2]}, r"valid has shape \[3, 2\]; it must be \[any, 3\]"),
        ({"test": np.array([[BIG, 0, 1]], np.uint64)}, rf"test\[0, 0\] is {BIG}"),
        ({"test": np.array([[0, 2, 1]])}, r"test\[:, 1\] \(relations\) contains 2; .*columns are head, relation, tail"),
        ({"test": np.array([[0, -1, 1]])}, r"test\[:, 1\] \(relations\) contains -1"),
        ({"test": np.array([["a", "r", "b"]])}, "test has dtype <U1; it must contain integers: number the names"),
        ({"num_entities": np.float64(4)}, "num_entities has dtype float64"),
        ({"num_entities": None}, "num_entities missing"),
        ({"num_relations": np.array([2])}, r"num_relations has .*shape \(1,\)"),
        (
            {"entity_names": np.array([b"a", b"b", b"c", b"\xe4"])},
            r"entity_names contains b'\\xe4', which is not UTF-8",
        ),
    ],
)
def test_knowledge_graphs(write_triples: Any, change: dict[str, Any], message: str) -> None:
    path = write_triples(**change)
    with pytest.raises(DataError, match=message) as error:
        wb.load_dataset("facts")
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, ">i4"])
def test_triples_are_read(write_triples: Any, dtype: Any) -> None:
    write_triples(train=TRIPLES.astype(dtype))
    assert wb.load_dataset("facts").train.tolist() == TRIPLES.tolist()


OGB = {
    "edge": ([[0, 1], [1.5, 2], [2, 0], [3, 4], [3, 5]], "edge has dtype float64; it must contain integers"),
    "edge of another number": ([[0, 1], [1, 2]], r"edge has shape \[2, 2\]; it must be \[5, 2\]"),
    "edge of two rows": (EDGES, r"edge has shape \[2, 5\]; it must be \[5, 2\]: save edge\.T"),
    "num-node-list": ([6, 6], "num-node-list has 2 numbers of nodes; it must have one"),
    "num-edge-list": ([4], r"edge has shape \[5, 2\]; it must be \[4, 2\]"),
    "num-node-list of fractions": ([6.5], "num-node-list has dtype float64"),
    "node-feat of more rows": (np.ones((7, 3)), r"node-feat has shape \[7, 3\]; it must be \[6, any\]"),
    "node-feat": (np.full((6, 3), 1e39), r"node-feat\[0, 0\] is 1e\+39; it must be finite in float32"),
    "node-label": (np.ones((6, 2)), r"node-label has shape \[6, 2\]; ogbn-arxiv has one class per node"),
    "node-label below -1": ([0, 1, -2, 3, 4, 5], r"node-label\[2, 0\] is -2; it must be in \[-1, 40\)"),
    "split/time/train": ([[0, 3], [1, 2]], r"train has shape \[2, 2\]; it must be \[any\]"),
    "split/time/valid": ([1, 1], r"valid contains 1 more than once, at \[0, 1\]"),
    "split/time/test": ([0, 0, 0, 0, 0, 1], "test has 6 values of 0 and 1, a mask"),
}


@needs_ogb
@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(("name", "values", "message"), [(name, *case) for name, case in OGB.items()], ids=OGB)
def test_folders_of_ogb(folder: Any, name: str, values: Any, message: str) -> None:
    written = write_set(folder, "ogbn-arxiv", "time", LABELS)
    assert wb.load_dataset("ogbn-arxiv").y.tolist() == LABELS
    stem = name.partition(" ")[0]
    path = written / f"{stem if '/' in stem else 'raw/' + stem}.csv.gz"
    write_csv(path, values)
    with pytest.raises(DataError, match=message) as error:
        wb.load_dataset("ogbn-arxiv")
    assert re.match(f"{written}/(raw|split/time)/", str(error.value))


@needs_ogb
@pytest.mark.usefixtures("no_network")
def test_words_in_tables_and_binary_folders_of_ogb(folder: Any) -> None:
    written = write_set(folder, "ogbn-arxiv", "time", LABELS)
    (written / "raw" / "node-label.csv.gz").unlink()
    with gzip.open(written / "raw" / "node-label.csv.gz", "wt") as file:
        file.write("label\n" + "".join(f"{label}\n" for label in LABELS))
    with pytest.raises(DataError, match=r"node-label has dtype (object|str); "):
        wb.load_dataset("ogbn-arxiv")
    raw = write_binary_set(folder) / "raw"
    arrays = {"edge_index": EDGES, "num_nodes_list": np.array([6]), "num_edges_list": np.array([5])}
    for change, message in (
        ({"edge_index": EDGES + 0.5}, "edge_index has dtype float64"),
        ({"edge_index": EDGES.T}, r"edge_index has shape \[5, 2\]; it must be \[2, 5\]: save edge_index\.T"),
        ({"node_feat": FEATURES * np.nan}, r"node_feat\[0, 0\] is nan"),
        ({"num_nodes_list": np.array([3, 3])}, "num_nodes_list has 2 numbers"),
    ):
        contents: dict[str, Any] = {"node_feat": FEATURES} | arrays | change
        np.savez(raw / "data.npz", **contents)
        with pytest.raises(DataError, match=message) as error:
            wb.load_dataset("ogbn-papers100M")
        assert str(error.value).startswith(f"{raw / 'data.npz'}: ")
