"""Edge lists on disk: each format gives the same edges, and damaged files are refused."""

import gzip
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from tests.strategies import random_edges
from workbench.core.edge_file import EdgeFile

SRC, DST = (np.array(ends) for ends in random_edges(20, 50, 0))
PAIRS = np.stack([SRC, DST])


def edges_of(file: EdgeFile) -> np.ndarray:
    chunks = list(file)
    assert all(1 <= len(src) <= file.chunk_edges for src, _ in chunks)
    return np.concatenate([np.stack(chunk) for chunk in chunks], axis=1)


def lines(separator: str, end: str = "") -> str:
    return "".join(f"{s}{separator}{d}{end}\n" for s, d in PAIRS.T)


@pytest.mark.parametrize("chunk_edges", [1, 7, 1000])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_binary_formats(tmp_path: Path, dtype: str, chunk_edges: int) -> None:
    np.save(tmp_path / "rows.npy", PAIRS.astype(dtype))
    np.save(tmp_path / "columns.npy", PAIRS.T.astype(dtype))
    (tmp_path / "pairs.bin").write_bytes(np.ascontiguousarray(PAIRS.T.astype(dtype)).tobytes())
    for name, given in (("rows.npy", None), ("columns.npy", None), ("pairs.bin", dtype)):
        file = EdgeFile(tmp_path / name, given, chunk_edges)
        assert file.num_edges == 50
        assert np.array_equal(edges_of(file), PAIRS) and np.array_equal(edges_of(file), PAIRS)  # read twice
        assert next(iter(file))[0].dtype == dtype


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "# Nodes: 20\n# From To\n" + lines("\t")),
        ("a.edges", "% a comment\n" + lines(" ")),
        ("a.csv", lines(",")),
        ("a.tsv", lines("  ;")),
    ],
)
def test_text_formats(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    for path in (tmp_path / name, tmp_path / f"{name}.gz"):
        file = EdgeFile(path, chunk_edges=7)
        assert file.num_edges is None
        assert np.array_equal(edges_of(file), PAIRS)


def test_partition_of_a_file_is_that_of_its_edges(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", PAIRS)
    (tmp_path / "edges.txt").write_text(lines(" "))
    expected = wb.partition.partition_stream([(SRC, DST)], 3, num_nodes=20, method="fennel")
    found = wb.partition.partition_stream(
        EdgeFile(tmp_path / "edges.npy", chunk_edges=7), 3, num_nodes=20, method="fennel"
    )
    text = EdgeFile(tmp_path / "edges.txt", chunk_edges=9)
    assert found.tolist() == expected.tolist()
    assert (
        wb.partition.partition_stream(text, 3, num_nodes=20, method="fennel", num_edges=50).tolist()
        == expected.tolist()
    )
    wb.partition.split_graph(text, expected, tmp_path / "parts")
    assert sum(wb.partition.open_part(tmp_path / "parts", part).graph.num_edges for part in range(3)) == 50


def test_empty_files(tmp_path: Path) -> None:
    (tmp_path / "a.bin").touch()
    np.save(tmp_path / "a.npy", np.empty((2, 0), np.int64))
    (tmp_path / "a.txt").touch()
    (tmp_path / "b.txt").write_text("# nothing\n")
    for name, dtype in (("a.bin", "int32"), ("a.npy", None), ("a.txt", None), ("b.txt", None)):
        assert list(EdgeFile(tmp_path / name, dtype)) == []


@pytest.mark.parametrize(
    "text", ["1 2\n3\n", "1 2\n3 x\n", "1 2.5\n", "1\n2\n", "1 2\n3 4 5 6\n7 99999999999999999999\n"]
)
def test_odd_text_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(wb.DataError, match=r"a\.txt is not an edge list .*two whole numbers"):
        list(EdgeFile(tmp_path / "a.txt"))


def test_odd_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\0" * 20)
    with pytest.raises(wb.DataError, match=r"a\.bin has 20 bytes, no multiple of 8, a pair of int32"):
        EdgeFile(tmp_path / "a.bin", "int32")
    with pytest.raises(ValueError, match=r'dtype is None for a\.bin; pass dtype="int32" or "int64"'):
        EdgeFile(tmp_path / "a.bin")
    with pytest.raises(ValueError, match=r"'int16' is not known"):
        EdgeFile(tmp_path / "a.bin", "int16")
    np.save(tmp_path / "a.npy", PAIRS.astype(np.float32))
    with pytest.raises(wb.DataError, match=r"a\.npy is float32 \(2, 50\)"):
        EdgeFile(tmp_path / "a.npy")
    with pytest.raises(ValueError, match=r"dtype is 'int32' for a\.npy; only"):
        EdgeFile(tmp_path / "a.npy", "int32")
    (tmp_path / "b.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-9])
    with pytest.raises(wb.DataError, match=r"b\.npy is not a \.npy file"):
        EdgeFile(tmp_path / "b.npy")
    with pytest.raises(FileNotFoundError, match=r"no\.txt is not a file"):
        EdgeFile(tmp_path / "no.txt")
    with pytest.raises(ValueError, match=r"chunk_edges is 0"):
        EdgeFile(tmp_path / "a.npy", chunk_edges=0)


@pytest.mark.parametrize("name", ["a.mtx", "a.metis"])
def test_the_number_of_nodes_behind_long_comments(tmp_path: Path, name: str) -> None:
    comment = "% " + "x" * 98 + "\n"
    head = {
        "a.mtx": "%%MatrixMarket matrix coordinate pattern general\n" + comment * 2000 + "3 3 1\n1 2\n",
        "a.metis": comment * 2000 + "3 1\n2\n1\n\n",
    }
    (tmp_path / name).write_text(head[name])
    assert EdgeFile(tmp_path / name).num_nodes == 3
