import io
import pickle
import random
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from workbench.core.errors import CapacityError, DataError
from workbench.core.knowledge import KnowledgeGraph
from workbench.datasets import npz
from workbench.datasets.archive import read_archive
from workbench.datasets.raw import RawSet, SparseRows


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
def test_labels_of_narrow_integers(write, dtype):
    """The limit of a label, 2⁶³ − 1, would wrap in their dtype."""
    raw = node_set(write(y=np.array([0, 1, 0, 1, -1, 2], dtype)))
    assert raw.y is not None and raw.y.tolist() == [0, 1, 0, 1, -1, 2]
    with pytest.raises(DataError, match=r"y\[4\] is -2; it must lie in \[-1, "):
        read_archive(write(y=np.array([0, 1, 0, 1, -2, 2], dtype)))


def test_narrow_ids_of_a_huge_graph_are_in_range(write):
    edges = np.array([[0, 1, 2], [1, 0, 2**31 - 1]], np.int32)
    reader = npz.Npz(write(edge_index=edges))
    assert reader.ids("edge_index", (2, None), 2**31 + 5).tolist() == edges.tolist()


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


def test_names_of_classes_count_them(write):
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
        ({"edge_index": None}, r"tiny.npz: edge_index missing; it has num_nodes, test_idx"),
        ({"num_nodes": None}, "tiny.npz: num_nodes missing"),
        ({"num_nodes": np.int64(-3)}, "num_nodes is -3; it must be at least 1"),
        ({"num_nodes": np.int64(0)}, "num_nodes is 0"),
        ({"num_nodes": np.float64(6)}, "num_nodes has dtype float64"),
        ({"num_nodes": np.array([6])}, r"num_nodes has dtype int64 and shape \(1,\)"),
        ({"edge_index": np.zeros((3, 2), int)}, r"edge_index has shape \[3, 2\]; it must be \[2, any\]"),
        ({"edge_index": np.zeros(4, int)}, r"edge_index has shape \[4\]"),
        ({"edge_index": np.zeros((2, 0), int)}, "edge_index holds no edge"),
        ({"edge_index": IDS.astype(float)}, "edge_index holds float64; it must hold whole numbers"),
        ({"edge_index": IDS}, r"edge_index\[1, 1\] is 6; it must lie in \[0, 6\)"),
        ({"edge_index": -IDS}, r"edge_index\[0, 1\] is -1"),
        ({"x": np.full((6, 2), np.nan)}, r"x\[0, 0\] is nan; it must be finite"),
        ({"x": np.zeros((5, 2))}, r"x has shape \[5, 2\]; it must be \[6, any\]"),
        ({"x": np.full((6, 2), "a")}, "x holds <U1; it must hold numbers"),
        ({"y": np.zeros(5, int)}, r"y has shape \[5\]; it must be \[6\]"),
        ({"y": np.full(6, -2)}, r"y\[0\] is -2"),
        ({"y": np.zeros(6)}, "y holds float64"),
        ({"train_idx": np.array([1, 6])}, r"train_idx\[1\] is 6"),
        ({"val_idx": None}, "val_idx missing"),
        ({"test_idx": np.array([[1]])}, r"test_idx has shape \[1, 1\]"),
        ({"train_masks": np.ones((1, 6), bool)}, "val_masks, test_masks missing"),
        ({key: np.ones((1, 6)) for key in ("train_masks", "val_masks", "test_masks")}, "train_masks holds float64"),
        ({"x": None, "x_data": np.ones(3)}, "x_indptr, x_indices, x_shape missing"),
        ({"valid_edge": np.ones((2, 2), int)}, "valid_edge_neg, test_edge, test_edge_neg missing"),
        ({"class_names": np.arange(3)}, "class_names has dtype int64"),
        ({"x": None, "gpt_pred": np.zeros((6, 2), int)}, "class_names missing"),
        ({"y": np.array([{}, {}], object)}, "y holds pickled objects, which are never loaded"),
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
        ({"x_indices": np.array([0, 5, 1])}, r"x_indices\[1\] is 5; it must lie in \[0, 5\)"),
        ({"x_indices": np.array([0, 1])}, r"x_indices has shape \[2\]; it must be \[3\]"),
        ({"x_indptr": np.array([0, 2, 1, 3, 3, 3, 3])}, "x_indptr must rise from 0 to the 3 entries"),
        ({"x_indptr": np.array([0, 2, 2, 2, 2, 2, 2])}, "x_indptr must rise"),
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
        ({"train": np.zeros((0, 3), int)}, "train holds no triple"),
        ({"valid": np.zeros((2, 2), int)}, r"valid has shape \[2, 2\]; it must be \[any, 3\]"),
        ({"test": np.array([[0, 2, 1]])}, r"test\[:, 1\] \(relations\) holds 2"),
        ({"test": np.array([[0, 1, 4]])}, r"test\[:, 2\] \(tails\) holds 4"),
        ({"train": np.zeros((1, 3))}, "train holds float64"),
        ({"test": None}, "test missing"),
        ({"entity_names": np.array([b"a"])}, "entity_names has 1 names; there must be 4"),
        ({"relation_names": np.ones(2)}, "relation_names has dtype float64"),
    ],
)
def test_bad_knowledge_graphs_are_refused(write_triples, change, message):
    path = write_triples(**change)
    with pytest.raises(DataError, match=message) as error:
        read_archive(path)
    assert str(error.value).count(str(path)) == 1


def test_no_archive(folder):
    path = folder / "no.npz"
    for content in (b"", b"no zip at all", pickle.dumps({"edge_index": 1})):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"no\.npz is no complete zip archive"):
            read_archive(path)


def test_truncated_and_altered_archives(write):
    path = write(x=np.random.default_rng(0).random((6, 300)))
    whole = path.read_bytes()
    path.write_bytes(whole[:-50])
    with pytest.raises(DataError, match="no complete zip archive"):
        read_archive(path)
    middle = whole.index(b"x.npy") + 2000
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :])
    with pytest.raises(DataError, match=r"x can't be read .* damaged"):
        read_archive(path)


def test_more_than_memory_is_refused_unread(write, monkeypatch):
    path = write()
    monkeypatch.setattr(npz, "available_bytes", lambda: 100)
    with pytest.raises(CapacityError, match=r"tiny.npz needs about .* of memory to read, 100 B is free"):
        read_archive(path)


def header(**change):
    """The header of a `.npy` as NumPy writes it, with what is given instead; nothing follows it."""
    stream = io.BytesIO()
    entries = {"descr": "<f8", "fortran_order": False, "shape": (3,)} | change
    np.lib.format.write_array_header_1_0(stream, entries)
    return stream.getvalue()


def with_entry(path, name, content, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "a", method) as archive:
        archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header(shape=(2**50,)), r"x claims 8192\.00 TiB, but 0 B are there; the file is damaged"),
        (header(shape=(2**200, 2**200)) + bytes(8), "x claims .* but 8 B are there"),
        (header(shape=(0,)) + bytes(8), "x claims 0 B, but 8 B are there"),
        (header(shape=(-2, -3)) + bytes(48), r"x has dtype float64 and shape \[-2, -3\]; it must hold numbers"),
        (header(shape=(2**60,), descr="<U0"), "x has dtype <U0 and shape"),
        (header(descr="|V8") + bytes(24), r"x has dtype \|V8 and shape"),
        (header(descr="<M8[s]") + bytes(24), "x has dtype datetime64"),
        (header(descr=("<f4", (2,))) + bytes(24), "x has dtype"),
        (header(descr="|O") + bytes(24), "x holds pickled objects, which are never loaded"),
        (header(shape=[3]) + bytes(24), "x can't be read"),
        (header()[:-40], "x can't be read"),
        (header().replace(b"{", b"("), "x can't be read"),
        (header().replace(b"\x93NUMPY\x01", b"\x93NUMPY\x09"), "x can't be read"),
        (b"", "x can't be read"),
        (b"no array", "x can't be read"),
    ],
)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_headers_that_can_not_be_true(write, content, message, method):
    path = with_entry(write(x=None), "x.npy", content, method)
    with pytest.raises(DataError, match=message):
        read_archive(path)


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


def test_key_that_is_known_and_not_read(write):
    assert node_set(write(node_year=np.zeros(6, np.int16))).num_nodes == 6


def test_entries_that_are_no_arrays(write):
    with pytest.raises(DataError, match=r"it has an entry 'readme\.txt'"):
        read_archive(with_entry(write(), "readme.txt", b"hello"))
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = with_entry(write(), "x.npy", header() + bytes(24))
    with pytest.raises(DataError, match=r"it has an entry 'x\.npy', or has it twice"):
        read_archive(path)
    with pytest.raises(DataError, match=r"x\.npy is compressed by method 12; it must be stored or deflated"):
        read_archive(with_entry(write(x=None), "x.npy", header() + bytes(24), zipfile.ZIP_BZIP2))


def table_of_contents(path, name):
    """Where an entry begins in the table of contents."""
    return path.read_bytes().rindex(name) - 46


def test_size_that_no_compression_reaches_is_refused_unread(write):
    path = write()
    field = table_of_contents(path, b"y.npy") + 24
    content = path.read_bytes()
    path.write_bytes(content[:field] + (2**32 - 2).to_bytes(4, "little") + content[field + 4 :])
    with pytest.raises(DataError, match=r"y claims 4\.00 GiB, but .* compressed are there"):
        read_archive(path)


def test_entries_hidden_by_a_length_are_missed(write):
    """One bit of the length of an entry's comment, and zipfile takes the entries that follow for that comment."""
    path = write()
    content = bytearray(path.read_bytes())
    content[table_of_contents(path, b"num_nodes.npy") + 33] ^= 1 << 4
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"tiny\.npz lists 2 of its 7 entries; it is damaged"):
        read_archive(path)


def test_names_that_differ_between_entry_and_table_of_contents(write):
    path = write()
    content = path.read_bytes()
    path.write_bytes(content.replace(b"val_idx.npy", b"val_idy.npy", 1))
    with pytest.raises(DataError, match=r"val_idx can't be read \(File name in directory .* differ"):
        read_archive(path)


def contents(found):
    """All values of what was read, as one that can be compared."""
    if isinstance(found, torch.Tensor):
        return str(found.dtype), tuple(found.shape), found.tolist()
    if isinstance(found, KnowledgeGraph):
        return found.fingerprint, found.entity_names, found.relation_names
    if isinstance(found, RawSet):
        return tuple(map(contents, vars(found).values()))
    return tuple(map(contents, found)) if isinstance(found, tuple) else found


def damage(path: Path, intact: bytes, generator: random.Random) -> None:
    """Flip one bit, or cut the end off."""
    content, position = bytearray(intact), generator.randrange(len(intact))
    content[position] ^= 1 << generator.randrange(8)
    path.write_bytes(intact[:position] if generator.random() < 0.1 else content)


@pytest.mark.parametrize("attempts", [200, pytest.param(2500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["nodes", "sparse", "triples"])
def test_damage_never_goes_unnoticed(write, write_triples, kind, attempts):
    masks = {f"{part}_masks": np.eye(6, dtype=bool)[:2] for part in ("train", "val", "test")}
    sparse = {"x_indptr": np.arange(7), "x_indices": np.arange(6), "x_data": np.ones(6), "x_shape": np.array([6, 7])}
    path = {
        "nodes": lambda: write(class_names=np.array(["a", "b", "c"]), node_year=np.zeros(6, np.int16)),
        "sparse": lambda: write(x=None, **sparse, **masks, gpt_pred=None),
        "triples": lambda: write_triples(relation_names=np.array(["r", "s"])),
    }[kind]()
    intact, wanted = path.read_bytes(), contents(read_archive(path))
    loaded = 0
    for seed in range(attempts):
        damage(path, intact, random.Random(seed))
        with suppress(DataError):
            assert contents(read_archive(path)) == wanted, seed
            loaded += 1
    assert 0 < loaded < attempts / 2
