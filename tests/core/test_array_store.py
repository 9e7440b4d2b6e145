"""Folders of arrays: round trips, replacement, kills, arrays larger than memory."""

import multiprocessing
import sys
import warnings

import numpy as np
import psutil
import pytest
import torch

from tests.core.stored_graphs import assert_same, example, rewrite_header, saved_in
from tests.killed import killed_at_each_operation
from tests.open_files import few_open_files
from tests.strategies import random_graph
from workbench.core.array_store import HEADER, content_digest, open_arrays, save_arrays
from workbench.core.graph import Graph


@pytest.fixture
def saved(tmp_path):
    return saved_in(tmp_path)


@pytest.mark.parametrize("graph", [example(), random_graph(5, 0), Graph.from_edges([], [])])
@pytest.mark.parametrize("verify", [False, True])
def test_round_trip_without_warnings(tmp_path, graph, verify):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.save(tmp_path / "graph")
        assert_same(Graph.open(tmp_path / "graph", verify=verify), graph)
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_vectors_of_no_value_or_one_have_any_stride(tmp_path):
    given = {"none": torch.from_numpy(np.zeros(0, np.int64)), "one": torch.arange(9)[::9], "scalar": torch.tensor(7)}
    assert [array.stride() for array in given.values()] == [(0,), (9,), ()]
    save_arrays(tmp_path / "arrays", given, kind="test")
    found = open_arrays(tmp_path / "arrays", kind="test", verify=True)
    assert {name: (a.tolist(), a.dtype) for name, a in found.items()} == {
        "none": ([], torch.int64), "one": ([0], torch.int64), "scalar": (7, torch.int64),
    }  # fmt: skip
    assert content_digest(given) == content_digest(found)


def test_file_is_raw_little_endian(saved):
    indptr = example().indptr
    assert (saved / "indptr.bin").read_bytes() == b"".join(int(v).to_bytes(8, "little") for v in indptr)


def test_writing_to_a_tensor_leaves_the_file(saved):
    before = (saved / "indices.bin").read_bytes()
    graph = Graph.open(saved)
    graph.indices.zero_()
    assert graph.indices.sum() == 0
    assert (saved / "indices.bin").read_bytes() == before
    assert_same(Graph.open(saved, verify=True), example())


def test_opens_from_read_only_files(saved):
    for path in saved.iterdir():
        path.chmod(0o444)
    assert_same(Graph.open(saved), example())


def _send_degrees(folder, graph, queue):
    queue.put((Graph.open(folder) if graph is None else graph).in_degrees().tolist())


@pytest.mark.parametrize(
    ("method", "inherit"), [("fork", True), ("fork", False), pytest.param("spawn", False, marks=pytest.mark.slow)]
)
def test_opens_in_another_process(saved, method, inherit):
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    with warnings.catch_warnings():  # Python warns that the kernels' threads do not survive the fork
        warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
        process = context.Process(target=_send_degrees, args=(saved, Graph.open(saved) if inherit else None, queue))
        process.start()
    assert queue.get() == example().in_degrees().tolist()
    process.join()
    assert process.exitcode == 0


def test_existing_folder_is_kept_without_overwrite(saved):
    with pytest.raises(FileExistsError, match="graph exists; pass overwrite=True"):
        random_graph(3, 3).save(saved)
    opened = Graph.open(saved)
    random_graph(3, 3).save(saved, overwrite=True)
    assert_same(opened, example())  # the old pages stay mapped
    assert_same(Graph.open(saved, verify=True), random_graph(3, 3))
    assert [path.name for path in saved.parent.iterdir()] == ["graph"]


def test_overwrite_keeps_other_folders(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"has no header\.json"):
        example().save(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").exists()


OURS = '{"kind": "graph", "version": 1, "byte_order": "little", "arrays": {}, "sha256": ""}'


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"header.json": "{}"}, "has a header.json that describes no graph"),
        ({"header.json": '["graph"]'}, "has a header.json that describes no graph"),
        ({"header.json": OURS, "notes.txt": "years of work"}, "also has notes.txt"),
        ({"header.json": OURS, ".hidden": ""}, r"also has \.hidden"),
        ({"header.json": OURS, "chapters.bin/one.txt": ""}, "also has chapters.bin"),
        ({"graph.bin": "0"}, "has no header.json"),
    ],
)
def test_overwrite_keeps_what_others_wrote(tmp_path, entries, message):
    target = tmp_path / "mine"
    for name, text in entries.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text)
    with pytest.raises(FileExistsError, match=rf"mine {message}, so .*is not replaced; pass another folder"):
        example().save(target, overwrite=True)
    assert {name: (target / name).read_text() for name in entries} == entries
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_overwrite_keeps_records_of_another_kind(tmp_path):
    rows = torch.arange(6.0).view(3, 2)
    save_arrays(tmp_path / "saved", {"rows": rows}, kind="rows")
    with pytest.raises(FileExistsError, match=r"has a header\.json that describes no graph but 'rows'"):
        example().save(tmp_path / "saved", overwrite=True)
    assert torch.equal(open_arrays(tmp_path / "saved", kind="rows", verify=True)["rows"], rows)
    save_arrays(tmp_path / "saved", {"rows": rows + 1}, kind="rows", overwrite=True)


@pytest.mark.parametrize("damage", ["", "{", "\x00\xff", None])
def test_overwrite_replaces_a_damaged_graph(saved, damage):
    (saved / "indices.bin").unlink()
    (saved / HEADER).write_bytes(OURS.encode() if damage is None else damage.encode("latin-1"))
    example().save(saved, overwrite=True)
    assert_same(Graph.open(saved, verify=True), example())


def test_empty_folder_is_used(tmp_path):
    (tmp_path / "graph").mkdir()
    example().save(tmp_path / "graph")
    assert_same(Graph.open(tmp_path / "graph"), example())


@pytest.mark.parametrize("existing", [False, True])
def test_failed_save_keeps_the_previous_graph(tmp_path, monkeypatch, existing):
    if existing:
        example().save(tmp_path / "graph")

    def fail(name):
        raise OSError("disk full")

    monkeypatch.setattr("workbench.core.array_store.os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        random_graph(3, 3).save(tmp_path / "graph", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == (["graph"] if existing else [])
    if existing:
        assert_same(Graph.open(tmp_path / "graph", verify=True), example())


@pytest.mark.slow
def test_killed_while_replacing_a_graph(tmp_path):
    """After a kill, a load sees the old graph or the new one, and the next save removes hidden leftovers."""
    target, new, found = tmp_path / "graph", random_graph(3, 3), []
    example().save(target)
    for _ in killed_at_each_operation(lambda: new.save(target, overwrite=True), tmp_path):
        opened = Graph.open(target, verify=True)
        found.append(opened.num_nodes)
        assert_same(opened, example() if opened.num_nodes == 9 else new)
        example().save(target, overwrite=True)
        assert [path.name for path in tmp_path.iterdir()] == ["graph"]
    assert len(found) > 8 and set(found) == {9, 3}
    assert_same(Graph.open(target, verify=True), new)


@pytest.mark.slow
def test_killed_while_saving_a_first_graph(tmp_path):
    target, moments = tmp_path / "graph", 0
    for _ in killed_at_each_operation(lambda: example().save(target), tmp_path):
        if target.exists():
            assert_same(Graph.open(target, verify=True), example())
        else:
            with pytest.raises(FileNotFoundError, match="does not exist; save the graph first"):
                Graph.open(target)
        example().save(target, overwrite=True)
        assert [path.name for path in tmp_path.iterdir()] == ["graph"]
        target.rename(tmp_path.parent / f"moved {moments}")
        moments += 1
    assert moments > 6


def test_matrices_and_views(tmp_path):
    wide = torch.arange(12, dtype=torch.float16).view(3, 4)
    arrays = {"wide": wide, "columns": wide.T, "none": None, "truth": torch.tensor([True, False])}
    save_arrays(tmp_path / "arrays", arrays, kind="test")
    opened = open_arrays(tmp_path / "arrays", kind="test", verify=True)
    assert list(opened) == ["wide", "columns", "truth"]
    assert all(torch.equal(opened[name], tensor) for name, tensor in arrays.items() if tensor is not None)


def test_rows_in_pieces(tmp_path):
    """As if they were one tensor, checksum included; none of the pieces needs rows."""
    rows = torch.arange(24, dtype=torch.int32).view(6, 2, 2)
    for name, pieces in {"whole": rows, "pieces": iter(rows.split([0, 1, 3, 2]))}.items():
        save_arrays(tmp_path / name, {"rows": pieces}, kind="test")
        assert torch.equal(open_arrays(tmp_path / name, kind="test", verify=True)["rows"], rows)
    headers = [(tmp_path / name / HEADER).read_text() for name in ("whole", "pieces")]
    assert headers[0] == headers[1]


@pytest.mark.parametrize(
    ("pieces", "error", "message"),
    [
        ([], ValueError, "array 'rows' has no tensors"),
        ([torch.ones(2, 3), torch.ones(2, 4)], ValueError, r"rows of \[4\] torch.float32 after rows of \[3\]"),
        ([torch.ones(2), torch.ones(2).int()], ValueError, "int32 after rows of"),
        ([torch.ones(2), torch.tensor(1.0)], ValueError, "continues with"),
        ([[1.0]], TypeError, "array 'rows' is a list"),
        (
            torch.ones(2, dtype=torch.complex64),
            TypeError,
            "is torch.complex64; convert it to one of int64",
        ),
    ],
)
def test_pieces_that_do_not_fit_leave_nothing(tmp_path, pieces, error, message):
    with pytest.raises(error, match=message):
        save_arrays(tmp_path / "arrays", {"rows": pieces}, kind="test")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("more", range(4))
def test_too_many_open_arrays_name_the_limit(saved, more):
    """Wherever the last descriptor is used: for the folder, its header or an array."""
    kept, words = [], "graph can't be opened: .* the limit of {} open files.*; raise it with ulimit -n, or open"
    with few_open_files(saved / HEADER, 10 + more) as most, pytest.raises(OSError, match=words.format(most)):
        kept.extend(Graph.open(saved) for _ in range(100))
    kept.clear()
    assert_same(Graph.open(saved), example())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sparse files")
def test_arrays_larger_than_memory_are_opened(tmp_path):
    save_arrays(tmp_path / "arrays", {"rows": torch.arange(6.0).view(3, 2)}, kind="test")
    rows = (psutil.virtual_memory().total + psutil.swap_memory().total) // 8 + 1
    with (tmp_path / "arrays" / "rows.bin").open("r+b") as file:
        file.truncate(8 * rows)  # a hole, which takes no space
    rewrite_header(tmp_path / "arrays", lambda h: h["arrays"]["rows"].update(shape=[rows, 2], bytes=8 * rows))
    opened = open_arrays(tmp_path / "arrays", kind="test")["rows"]
    assert opened[2].tolist() == [4, 5] and opened[-1].tolist() == [0, 0]


def test_content_digest_sees_names_shapes_and_dtypes():
    ones = torch.ones(6, dtype=torch.int64)
    same = content_digest({"a": ones, "b": None})
    assert content_digest({"a": torch.ones(12, dtype=torch.int64)[::2]}) == same
    others = [{"b": ones}, {"a": ones.view(2, 3)}, {"a": ones.int()}, {"a": ones + 1}]
    assert len({same, *(content_digest(other) for other in others)}) == 5
