"""Damaged, incomplete and foreign folders are refused."""

import random
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.core.stored_graphs import assert_same, example, rewrite_header, saved_in
from workbench.core.array_store import HEADER, save_arrays
from workbench.core.errors import CorruptFileError
from workbench.core.graph import Graph


@pytest.fixture
def saved(tmp_path):
    return saved_in(tmp_path)


def test_invalid_names_are_rejected(tmp_path):
    for name in ("../x", "a/b", "", "a b"):
        with pytest.raises(ValueError, match="is not an identifier; use letters"):
            save_arrays(tmp_path / "arrays", {name: torch.ones(1)}, kind="test")
    assert list(tmp_path.iterdir()) == []


def test_truncated_file(saved):
    path = saved / "indices.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptFileError, match=r"indices.bin has 119 bytes, but its header says 120"):
        Graph.open(saved)


def test_modified_file(saved):
    path = saved / "edge_type.bin"
    path.write_bytes(bytes(1) * 239 + b"\1")
    Graph.open(saved)
    with pytest.raises(CorruptFileError, match=r"edge_type.bin has sha256 \w{64}, but its header says \w{64}"):
        Graph.open(saved, verify=True)


def test_modified_ends_are_detected_when_opening(saved):
    path = saved / "indptr.bin"
    path.write_bytes(path.read_bytes()[:-8] + (29).to_bytes(8, "little"))
    with pytest.raises(CorruptFileError, match="indptr runs from 0 to 29"):
        Graph.open(saved)


@pytest.mark.parametrize("name", [HEADER, "indices.bin"])
def test_missing_file(saved, name):
    (saved / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} is missing"):
        Graph.open(saved)


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist; save the graph first"):
        Graph.open(tmp_path / "nowhere")


def test_file_instead_of_folder(saved):
    with pytest.raises(CorruptFileError, match=r"header.json is a file; a saved graph is a folder"):
        Graph.open(saved / HEADER)


@pytest.mark.parametrize(
    ("change", "sign", "message"),
    [
        (lambda h: h.update(version=2), True, "has version 2, not 1; save the graph again"),
        (lambda h: h.update(version=2), False, "has version 2, not 1"),
        (lambda h: h.update(kind="features"), True, "has kind 'features', not 'graph'"),
        (lambda h: h.update(byte_order="big"), True, "has byte_order 'big'"),
        (lambda h: h["arrays"]["indices"].update(bytes=4), False, "was modified: its sha256 is not"),
        (lambda h: h.pop("sha256"), False, "is not a header of arrays"),
        (lambda h: h["arrays"].pop("indices"), True, "does not describe a valid graph"),
        (
            lambda h: h["arrays"]["indices"].update(dtype="float32"),
            True,
            "does not describe a valid graph: indices must be a tensor",
        ),
        (
            lambda h: h["arrays"]["indices"].update(dtype="complex64"),
            True,
            r"array 'indices' as .*complex64",
        ),
        (lambda h: h["arrays"]["indices"].update(shape=[7]), True, r"array 'indices' as .*\[7\]"),
        (
            lambda h: h["arrays"]["indices"].update(shape=[-3, -10]),
            True,
            r"array 'indices' as .*\[-3, -10\]",
        ),
        (lambda h: h["arrays"]["indices"].update(shape=[30.0]), True, r"array 'indices' as .*\[30.0\]"),
        (lambda h: h["arrays"]["indices"].update(shape=[True, 30]), True, "array 'indices' as "),
        (lambda h: h["arrays"]["indices"].update(shape=30), True, "array 'indices' as "),
        (lambda h: h["arrays"]["indices"].update(shape=["30"]), True, "array 'indices' as "),
        (lambda h: h["arrays"]["indices"].update(shape=[0, 2**62, 2**62], bytes=0), True, "'indices' as "),
        (lambda h: h["arrays"]["indices"].update(shape=[2**50], bytes=2**52), True, "indices.bin has 120 bytes, but"),
        (lambda h: h["arrays"]["indices"].update(bytes=120.0), True, "array 'indices' as "),
        (lambda h: h["arrays"]["indices"].update(dtype=["int32"]), True, "array 'indices' as "),
        (lambda h: h["arrays"]["indices"].update(sha256=7), True, "array 'indices' as "),
        (lambda h: h["arrays"]["indices"].pop("sha256"), True, "array 'indices' as "),
        (lambda h: h["arrays"]["indices"].update(offset=1), True, "array 'indices' as "),
        (lambda h: h["arrays"].update(indices=7), True, "array 'indices' as "),
        (lambda h: h.update(arrays=[1, 2]), True, r"has arrays \[1, 2\], not a description by name"),
        (lambda h: h.pop("arrays"), True, "has arrays None, not a description by name"),
        (
            lambda h: h["arrays"].update({"../indices": h["arrays"]["indices"]}),
            True,
            r"array '../indices' as .*, which is invalid",
        ),
    ],
)
def test_modified_header(saved, change, sign, message):
    rewrite_header(saved, change, sign=sign)
    with pytest.raises(CorruptFileError, match=message):
        Graph.open(saved)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00\xff"])
def test_invalid_header(saved, text):
    (saved / HEADER).write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptFileError, match="is not a header of arrays"):
        Graph.open(saved)


def damage_at_random(folder: Path, generator: random.Random) -> None:
    """Flip one bit of one file, or truncate it."""
    path = generator.choice([path for path in sorted(folder.iterdir()) if path.stat().st_size])
    content = bytearray(path.read_bytes())
    position = generator.randrange(len(content))
    if generator.random() < 0.1:
        path.write_bytes(content[:position])
    else:
        content[position] ^= 1 << generator.randrange(8)
        path.write_bytes(content)


@pytest.mark.parametrize("attempts", [400, pytest.param(6000, marks=pytest.mark.slow)])
def test_damage_is_always_detected(saved, attempts):
    intact = {path: path.read_bytes() for path in saved.iterdir()}
    for seed in range(attempts):
        damage_at_random(saved, random.Random(seed))
        with suppress(CorruptFileError):
            assert_same(Graph.open(saved, verify=True), example())
        for path, content in intact.items():
            path.write_bytes(content)
