"""Edge lists as people have them are read right, or refused with file, line, what was seen and what to pass."""

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse

import workbench as wb
from tests.core.text_corpus import BANNER, CASES, EDGES, LINES, Case, csv, matrix


def edges_in(file: wb.EdgeFile) -> list[tuple[int, int]]:
    return [edge for src, dst in file for edge in zip(src.tolist(), dst.tolist(), strict=True)]


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    return file.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zip": lambda data: zipped(edges_txt=data),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_corpus(tmp_path: Path, case: Case) -> None:
    paths = [tmp_path / case.name, *(tmp_path / f"{case.name}{end}" for end in PACKED)]
    for path, pack in zip(paths, [bytes, *PACKED.values()], strict=True):
        if len(case.data) > 100_000 and path.suffix not in (".adjlist", ".gz"):
            continue
        path.write_bytes(pack(case.data))
        if isinstance(case.expected, str):
            with pytest.raises(wb.DataError, match=case.expected) as refused:
                edges_in(wb.EdgeFile(path, **case.options))
            assert path.name in str(refused.value)
            continue
        for chunk_edges in (1, 3, 1000):
            file = wb.EdgeFile(path, chunk_edges=chunk_edges, **case.options)
            found = edges_in(file)
            matrix_of = case.name.endswith(".mtx") or case.name.startswith("named otherwise")
            assert (sorted(found) if matrix_of and not case.options else found) == case.expected
            assert [len(src) for src, _ in file][:-1] == [chunk_edges] * ((len(found) - 1) // chunk_edges)


def test_binary_files_are_named(tmp_path: Path) -> None:
    import pickle

    import pandas as pd
    import torch

    array, archive, table, tensor = (io.BytesIO() for _ in range(4))
    np.save(array, np.array(EDGES))
    np.savez(archive, edge_index=np.array(EDGES))
    pd.DataFrame(EDGES, columns=["a", "b"]).to_parquet(table)
    torch.save(torch.tensor(EDGES), tensor)
    packed = gzip.compress(LINES.encode())
    cases = {
        r"a NumPy array.*numpy.load": array.getvalue(),
        r"NumPy archive \(.npz\).*wb.load_dataset": archive.getvalue(),
        r"a Parquet file.*pandas.read_parquet": table.getvalue(),
        r"torch.save.*torch.load": tensor.getvalue(),
        r"a pickle": pickle.dumps(EDGES),
        r"a PDF": b"%PDF-1.7\n" + LINES.encode(),
        r"compressed by Zstandard.*zstd -d": b"\x28\xb5\x2f\xfd\0\0",
        r"a 7-Zip archive": b"7z\xbc\xaf\x27\x1c\0",
        r"compressed twice": gzip.compress(packed),
        r"can't be decompressed.*incomplete": packed[:-9],
        r"can't be decompressed.*damaged": packed[:12] + b"\xff\xff" + packed[14:],
        r"ZIP archive of 2 files \(a.txt, b.txt\)": zipped(a_txt=b"0 1", b_txt=b"0 1"),
        r"ZIP archive without files": zipped(),
        r"NUL bytes: it is a binary file": bytes(range(256)),
        r"line 3: a NUL byte": b"0 1\n" + b"0 " + b"1" * 70_000 + b"\n0 1\0\n",
    }
    for number, (words, content) in enumerate(cases.items()):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(content)
        with pytest.raises(wb.DataError, match=words) as refused:
            list(wb.EdgeFile(path))
        assert path.name in str(refused.value)


def test_what_compresses_is_known_by_its_contents(tmp_path: Path) -> None:
    for name, content in (("a.txt", gzip.compress(LINES.encode())), ("b.txt.gz", LINES.encode())):
        (tmp_path / name).write_bytes(content)
        assert edges_in(wb.EdgeFile(tmp_path / name)) == EDGES


def test_long_files_are_read_in_blocks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 10**12, (100_000, 2))
    for end in ("\n", "\r\n", "\r"):
        text = f"# a{end}" * 20_000 + "".join(f"{s}\t{d}{end}" for s, d in pairs.tolist())
        for encoding in ("utf-8", "utf-16"):
            (tmp_path / "a.txt").write_bytes(text.encode(encoding))
            found = np.concatenate([np.stack(chunk, 1) for chunk in wb.EdgeFile(tmp_path / "a.txt", chunk_edges=7000)])
            assert np.array_equal(found, pairs), (end, encoding)


def test_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((4, 4)) * 10.0 ** rng.integers(-200, 200, (4, 4))
    matrices = {"general": values, "symmetric": values + values.T, "skew": values - values.T, "pattern": values}
    for name, dense in matrices.items():
        path = tmp_path / f"{name}.mtx"
        path.write_text(matrix(dense, **({"field": "pattern"} if name == "pattern" else {"precision": 17})))
        file, expected = (
            wb.EdgeFile(path, chunk_edges=3),
            np.asarray(scipy.sparse.coo_array(scipy.io.mmread(path)).todense()),
        )
        found = np.zeros((4, 4))
        for src, dst, weight in file.with_weights():
            found[src, dst] = weight
        assert np.array_equal(found, expected) and file.num_nodes == 4
    path = tmp_path / "a.csv"
    path.write_text("when,source,target,w\n0,1,2,0.1\n0,2,3,1e-3\n")
    (chunk,) = wb.EdgeFile(path, columns=("source", "target", "w")).with_weights()
    assert [part.tolist() for part in chunk] == [[1, 2], [2, 3], [0.1, 1e-3]]
    with pytest.raises(ValueError, match=r"no column of .*a\.csv is known to have weights; pass it as the third"):
        list(wb.EdgeFile(path).with_weights())
    path.write_text("0 1 2\n# a\n\n0 1 x\n")
    with pytest.raises(wb.DataError, match=r"a\.csv, line 4: '0 1 x' has no number in column 3"):
        list(wb.EdgeFile(path, columns=(0, 1, 2)).with_weights())


@pytest.mark.parametrize("separator", [",", ";", "\t", " "])
@pytest.mark.parametrize("columns", [("source", "target", "weight"), ("source", "weight", "target")])
def test_quoted_weights_are_those_that_pandas_reads(tmp_path: Path, separator: str, columns: tuple[str, ...]) -> None:
    table, path = pd.DataFrame({"source": [0, 3], "target": [1, 2], "weight": [0.5, -1e-3]})[[*columns]], tmp_path / "a"
    path.write_text(csv(table, index=False, sep=separator, quoting=1))
    expected = pd.read_csv(path, sep=separator)
    (chunk,) = wb.EdgeFile(path, columns=("source", "target", "weight")).with_weights()
    assert [part.tolist() for part in chunk] == [expected[name].tolist() for name in ("source", "target", "weight")]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ('" 0.5 "', 0.5),
        ('"0.5" ', 0.5),
        (' "0.5"\t', 0.5),
        (f'"{0.5:.46f}"', 0.5),
        (f'"{0.5:.47f}"', "has no weight of at most 48 characters in column 3"),
        ('""', "has no weight of at most 48 characters in column 3"),
        ('" "', "has no number in column 3"),
        ('"0.5"1', "has no number in column 3"),
        ('""0.5""', "has no number in column 3"),
        ('"0.5', "has a quote .*that does not end"),
    ],
)
def test_quotes_around_a_weight(tmp_path: Path, field: str, expected: float | str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"0,1,1,4\n2,3,{field},4\n")
    read = wb.EdgeFile(path, columns=(0, 1, 2)).with_weights()
    if isinstance(expected, str):
        with pytest.raises(wb.DataError, match=expected):
            list(read)
    else:
        (chunk,) = read
        assert [part.tolist() for part in chunk] == [[0, 2], [1, 3], [1.0, expected]]


def test_ids_from_one_are_not_answered_with_a_larger_number_of_nodes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1 2\n2 3\n3 1\n")
    with pytest.raises(IndexError, match=r"contains 3.*subtract 1 .*base=1.*a\.txt, line 2: '2 3'") as refused:
        wb.partition.partition_stream(wb.EdgeFile(path), 2, num_nodes=3)
    assert "num_nodes=4" not in str(refused.value)
    with pytest.raises(IndexError, match="number the nodes from 0: the smallest id so far is 1") as refused:
        wb.Graph.from_edges([1, 2, 3], [2, 3, 1], num_nodes=3)
    assert "4" not in str(refused.value)
    with pytest.raises(IndexError, match="number the types from 0: the smallest is 1"):
        wb.Graph.from_edges([0, 1], [1, 0], edge_type=[1, 2], num_edge_types=2)
    assert len(wb.partition.partition_stream(wb.EdgeFile(path, base=1), 2, num_nodes=3)) == 3


def test_a_matrix_tells_its_number_of_nodes(tmp_path: Path) -> None:
    path = tmp_path / "a.mtx"
    path.write_text(f"{BANNER}pattern symmetric\n5 5 2\n2 1\n3 2\n")
    owner = wb.partition.partition_stream(wb.EdgeFile(path), 2)
    assert len(owner) == 5
    with pytest.raises(ValueError, match="num_nodes is 6, but the graph has 5 nodes"):
        wb.partition.partition_stream(wb.EdgeFile(path), 2, num_nodes=6)
    wb.partition.split_graph(wb.EdgeFile(path), owner, tmp_path / "parts")
    parts = [wb.partition.open_part(tmp_path / "parts", part).graph for part in range(2)]
    assert sum(part.num_edges for part in parts) == 4


def test_arguments_of_text(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array(EDGES))
    (tmp_path / "a.txt").write_text(LINES)
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"columns": (0, 0)}, r"columns is \(0, 0\); it must be"),
        ({"columns": "01"}, r"columns is '01'"),
        ({"columns": (0,)}, r"columns is \(0,\)"),
        ({"columns": (0, -1)}, r"columns is -1"),
        ({"skip": -1}, r"skip is -1"),
        ({"base": 2}, r"base is 2"),
        ({"encoding": "no such"}, r"encoding is 'no such'"),
    )
    for options, words in cases:
        with pytest.raises(ValueError, match=words):
            wb.EdgeFile(tmp_path / "a.txt", **options)
    with pytest.raises(ValueError, match=r"skip is 1, but a\.npy is not text; omit it"):
        wb.EdgeFile(tmp_path / "a.npy", skip=1)
    assert edges_in(wb.EdgeFile(tmp_path / "a.txt", columns=tuple(np.arange(2).tolist()))) == EDGES


@pytest.mark.slow
def test_edge_lists_of_networkx_and_numpy_at_random(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for seed in range(200):
        rng = np.random.default_rng(seed)
        graph = nx.gnp_random_graph(int(rng.integers(2, 30)), 0.2, seed=seed, directed=True)
        mark = str(rng.choice([" ", ",", ";", "\t", "|"]))
        nx.write_edgelist(graph, path, data=False, delimiter=mark)
        assert edges_in(wb.EdgeFile(path, chunk_edges=int(rng.integers(1, 20)), skip=0)) == list(graph.edges)
        np.savetxt(path, np.array(graph.edges).reshape(-1, 2), fmt="%d", delimiter=mark)
        assert edges_in(wb.EdgeFile(path, skip=0)) == list(graph.edges)
