"""Untrusted `.npz` archives: every inconsistency and every damage is detected."""

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
from workbench.datasets import archive as npz
from workbench.datasets.archive import read_archive
from workbench.datasets.raw import RawSet
from workbench.links.knowledge_graph import KnowledgeGraph


def test_narrow_ids_of_a_huge_graph_are_in_range(write):
    edges = np.array([[0, 1, 2], [1, 0, 2**31 - 1]], np.int32)
    reader = npz.Npz(write(edge_index=edges))
    assert reader.read("edge_index").ids((2, None), 2**31 + 5).tolist() == edges.tolist()


def test_files_that_are_not_archives(folder):
    path = folder / "no.npz"
    for content in (b"", b"no zip at all", pickle.dumps({"edge_index": 1})):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"no\.npz is not a complete zip archive"):
            read_archive(path)


def test_truncated_and_corrupt_archives(write):
    path = write(x=np.random.default_rng(0).random((6, 300)))
    whole = path.read_bytes()
    path.write_bytes(whole[:-50])
    with pytest.raises(DataError, match="not a complete zip archive"):
        read_archive(path)
    middle = whole.index(b"x.npy") + 2000
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :])
    with pytest.raises(DataError, match=r"x can't be read .* damaged"):
        read_archive(path)


def test_exceeding_memory_is_refused_before_reading(write, monkeypatch):
    path = write()
    monkeypatch.setattr(npz, "available_bytes", lambda: 100)
    with pytest.raises(CapacityError, match=r"tiny.npz requires about .* of memory to read, but 100 B are free"):
        read_archive(path)


def header(**change):
    """Write the header of a `.npy` without data; arguments replace its entries."""
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
        (header(shape=(2**50,)), r"x should have 8192\.00 TiB, but has 0 B in the file; the file is damaged"),
        (header(shape=(2**200, 2**200)) + bytes(8), "x should have .* but has 8 B in the file"),
        (header(shape=(0,)) + bytes(8), "x should have 0 B, but has 8 B in the file"),
        (header(shape=(-2, -3)) + bytes(48), r"x has dtype float64 and shape \[-2, -3\]; it must contain real numbers"),
        (header(shape=(2**60,), descr="<U0"), "x has dtype <U0 and shape"),
        (header(descr="|V8") + bytes(24), r"x has dtype \|V8 and shape"),
        (header(descr="<M8[s]") + bytes(24), "x has dtype datetime64"),
        (header(descr=("<f4", (2,))) + bytes(24), "x has dtype"),
        (header(descr="|O") + bytes(24), "x contains pickled objects, which are never loaded"),
        (header(shape=[3]) + bytes(24), "x can't be read"),
        (header()[:-40], "x can't be read"),
        (header().replace(b"{", b"("), "x can't be read"),
        (header().replace(b"\x93NUMPY\x01", b"\x93NUMPY\x09"), "x can't be read"),
        (b"", "x can't be read"),
        (b"no array", "x can't be read"),
    ],
)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_inconsistent_headers_are_refused(write, content, message, method):
    path = with_entry(write(x=None), "x.npy", content, method)
    with pytest.raises(DataError, match=message):
        read_archive(path)


def test_entries_that_are_not_arrays(write):
    with pytest.raises(DataError, match=r"the entry 'readme\.txt' is duplicated or not an array"):
        read_archive(with_entry(write(), "readme.txt", b"hello"))
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = with_entry(write(), "x.npy", header() + bytes(24))
    with pytest.raises(DataError, match=r"the entry 'x\.npy' is duplicated or not an array"):
        read_archive(path)
    with pytest.raises(DataError, match=r"x\.npy is compressed by method 12; it must be stored or deflated"):
        read_archive(with_entry(write(x=None), "x.npy", header() + bytes(24), zipfile.ZIP_BZIP2))


def directory_entry(path, name):
    """Find where an entry begins in the archive's central directory."""
    return path.read_bytes().rindex(name) - 46


def test_impossible_compression_ratios_are_refused_before_reading(write):
    path = write()
    field = directory_entry(path, b"y.npy") + 24
    content = path.read_bytes()
    path.write_bytes(content[:field] + (2**32 - 2).to_bytes(4, "little") + content[field + 4 :])
    with pytest.raises(DataError, match=r"y should have 4\.00 GiB, but has .* compressed in the file"):
        read_archive(path)


def test_entries_hidden_by_a_wrong_length_are_detected(write):
    """After one flipped bit in the length of an entry's comment zipfile reads the following entries as the comment."""
    path = write()
    content = bytearray(path.read_bytes())
    content[directory_entry(path, b"num_nodes.npy") + 33] ^= 1 << 4
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"tiny\.npz lists 2 of its 7 entries; it is damaged"):
        read_archive(path)


def test_names_that_differ_between_entry_and_directory(write):
    path = write()
    content = path.read_bytes()
    path.write_bytes(content.replace(b"val_idx.npy", b"val_idy.npy", 1))
    with pytest.raises(DataError, match=r"val_idx can't be read \(File name in directory .* differ"):
        read_archive(path)


def contents(value):
    """Convert a result to a value that can be compared."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.tolist()
    if isinstance(value, KnowledgeGraph):
        return value.fingerprint, value.entity_names, value.relation_names
    if isinstance(value, RawSet):
        return tuple(map(contents, vars(value).values()))
    return tuple(map(contents, value)) if isinstance(value, tuple) else value


def damage(path: Path, intact: bytes, generator: random.Random) -> None:
    """Flip one bit, or truncate the file."""
    content, position = bytearray(intact), generator.randrange(len(intact))
    content[position] ^= 1 << generator.randrange(8)
    path.write_bytes(intact[:position] if generator.random() < 0.1 else content)


@pytest.mark.parametrize("attempts", [200, pytest.param(2500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["nodes", "sparse", "triples"])
def test_damage_is_always_detected(write, write_triples, kind, attempts):
    masks = {f"{part}_masks": np.eye(6, k=k, dtype=bool)[:2] for k, part in enumerate(("train", "val", "test"))}
    sparse = {"x_indptr": np.arange(7), "x_indices": np.arange(6), "x_data": np.ones(6), "x_shape": np.array([6, 7])}
    path = {
        "nodes": lambda: write(class_names=np.array(["a", "b", "c"]), node_year=np.zeros(6, np.int16)),
        "sparse": lambda: write(x=None, **sparse, **masks, gpt_pred=None),
        "triples": lambda: write_triples(relation_names=np.array(["r", "s"])),
    }[kind]()
    intact, expected = path.read_bytes(), contents(read_archive(path))
    loaded = 0
    for seed in range(attempts):
        damage(path, intact, random.Random(seed))
        with suppress(DataError):
            assert contents(read_archive(path)) == expected, seed
            loaded += 1
    assert 0 < loaded < attempts / 2
