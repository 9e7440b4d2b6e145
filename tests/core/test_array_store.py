import hashlib
import json
import multiprocessing
import random
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from tests.killed import killed_at_each_operation
from tests.strategies import random_graph
from workbench.core.array_store import HEADER, content_digest, open_arrays, save_arrays
from workbench.core.errors import CorruptFileError
from workbench.core.graph import Graph


def example() -> Graph:
    return random_graph(9, 30, edge_weight=torch.bfloat16, num_edge_types=3, num_node_types=2)


def assert_same(left: Graph, right: Graph) -> None:
    for name, tensor in left._tensors().items():
        other = getattr(right, name)
        assert (tensor is None) == (other is None), name
        assert tensor is None or (tensor.dtype == other.dtype and torch.equal(tensor, other)), name


@pytest.fixture
def saved(tmp_path):
    example().save(tmp_path / "below" / "graph")
    return tmp_path / "below" / "graph"


def rewrite_header(folder, change, *, sign=True):
    """Change the header and, with `sign`, its checksum accordingly."""
    header = json.loads((folder / HEADER).read_text())
    change(header)
    if sign:
        rest = {key: value for key, value in header.items() if key != "sha256"}
        header["sha256"] = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    (folder / HEADER).write_text(json.dumps(header))


@pytest.mark.parametrize("graph", [example(), random_graph(5, 0), Graph.from_edges([], [])])
@pytest.mark.parametrize("verify", [False, True])
def test_round_trip_without_warnings(tmp_path, graph, verify):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.save(tmp_path / "graph")
        assert_same(Graph.open(tmp_path / "graph", verify=verify), graph)
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


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


@pytest.mark.parametrize(("method", "inherit"), [("fork", True), ("spawn", False)])
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
