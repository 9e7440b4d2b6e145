"""A graph divided by owner: every part has exactly the rows of its own nodes."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from tests.strategies import edges_by_destination, examples, random_edges, random_graph
from workbench.partition.graph.split_graph import open_part, split_graph, stored_num_parts

OPTIONAL = ("edge_ids", "edge_weight", "edge_type")


def some_graph() -> wb.Graph:
    return random_graph(30, 120, seed=1, edge_weight=torch.float32, num_edge_types=3, num_node_types=2)


def test_parts_of_a_graph_have_the_rows_of_their_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.core.edge_stream.CHUNK_EDGES", 7)
    monkeypatch.setattr("workbench.partition.graph.split_graph.CHUNK_EDGES", 11)
    graph = some_graph()
    owner = wb.partition.partition_stream(graph, 3)
    folders = split_graph(graph, owner, tmp_path / "parts")
    assert [folder.name for folder in folders] == ["part-0", "part-1", "part-2"]
    for part, folder in enumerate(folders):
        found, saved_owner, number = open_part(tmp_path / "parts", part, verify=True)
        assert number == part and torch.equal(saved_owner, owner)
        assert torch.equal(found.indices, wb.Graph.open(folder).indices)
        assert found.num_nodes == graph.num_nodes and found.indices.dtype == graph.indices.dtype
        assert torch.equal(found.in_degrees(), torch.where(owner == part, graph.in_degrees(), 0))
        own = torch.repeat_interleave(owner == part, graph.in_degrees())
        for name in ("indices", *OPTIONAL):
            assert torch.equal(getattr(found, name), getattr(graph, name)[own]), name
        assert found.node_type is not None and torch.equal(found.node_type, graph.node_type)  # type: ignore[arg-type]


@examples(5)
@given(seed=st.integers(0, 99), cut=st.integers(0, 50), parts=st.integers(1, 4))
def test_parts_of_a_stream_for_any_chunks(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cut: int, parts: int
) -> None:
    src, dst = random_edges(9, 50, seed)
    rows = edges_by_destination(9, src, dst)
    owner = torch.arange(9) % parts
    folder = tmp_path_factory.mktemp("parts") / "graph"
    split_graph([(src[:cut], dst[:cut]), (src[cut:], dst[cut:])], owner, folder)
    for part in range(parts):
        graph = open_part(folder, part).graph
        for node in range(9):
            row = slice(int(graph.indptr[node]), int(graph.indptr[node + 1]))
            expected = rows[node] if owner[node] == part else []
            assert graph.indices[row].tolist() == [s for s, _, _ in expected]
            assert graph.edge_ids is not None and graph.edge_ids[row].tolist() == [e for _, _, e in expected]


def test_one_part_is_the_graph(tmp_path: Path) -> None:
    src, dst = random_edges(20, 90, 4)
    expected = wb.Graph.from_edges(src, dst, num_nodes=20)
    split_graph([(src, dst)], torch.zeros(20, dtype=torch.int64), tmp_path / "graph", edge_ids=False)
    found = open_part(tmp_path / "graph", 0).graph
    assert torch.equal(found.indptr, expected.indptr) and torch.equal(found.indices, expected.indices)
    assert found.edge_ids is None and found.indices.dtype == torch.int32


def test_more_parts_than_nodes(tmp_path: Path) -> None:
    graph = wb.Graph.from_edges([0], [1])
    split_graph(graph, torch.tensor([0, 3]), tmp_path / "parts", num_parts=4)
    assert [open_part(tmp_path / "parts", part).graph.num_edges for part in range(4)] == [0, 0, 0, 1]
    with pytest.raises(IndexError, match="owner contains 4; owners are numbered from 0 on and below num_parts, 4"):
        split_graph(graph, torch.tensor([0, 4]), tmp_path / "more", num_parts=4)


def test_samples_of_owned_nodes_are_those_of_the_whole_graph(tmp_path: Path) -> None:
    graph = some_graph()
    owner = wb.partition.partition_stream(graph, 2, method="fennel")
    split_graph(graph, owner, tmp_path / "parts")
    sampler = wb.NeighborSampler([3], seed=2, edge_ids=True)
    for part in range(2):
        seeds = (owner == part).nonzero().view(-1)
        expected, found = (sampler.sample(g, seeds) for g in (graph, open_part(tmp_path / "parts", part).graph))
        assert torch.equal(found.node_ids, expected.node_ids)
        assert torch.equal(found.blocks[0].edge_ids, expected.blocks[0].edge_ids)  # type: ignore[arg-type]


def test_parts_without_edge_ids_neither_exclude_nor_name_edges(tmp_path: Path) -> None:
    """Positions in a part are not ids of the whole graph: other edges would be left out, silently."""
    graph = some_graph()
    for edge_ids in (True, False):
        folder = tmp_path / str(edge_ids)
        split_graph(graph, torch.zeros(30, dtype=torch.int64), folder, edge_ids=edge_ids)
        owned = wb.distributed.open_owned_graph(folder)
        assert owned.knows_edge_ids == edge_ids
    excluded, named = torch.tensor([0]), wb.NeighborSampler([3], edge_ids=True)
    with pytest.raises(ValueError, match=r"exclude_edges needs the ids of edges.*split_graph\(…, edge_ids=True\)"):
        owned.draw(wb.NeighborSampler([3]), torch.arange(3), layer=0, exclude_edges=excluded)
    with pytest.raises(ValueError, match="edge_ids=True needs the ids of edges"):
        owned.edge_values(owned.draw(named, torch.arange(3), layer=0), named)


def test_nothing_is_left_behind_and_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, owner = some_graph(), torch.arange(30) % 2
    target = tmp_path / "parts"

    def fail(done: int) -> None:
        if done > graph.num_edges:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        split_graph(graph, owner, target, progress=fail)
    assert list(tmp_path.iterdir()) == []
    split_graph(graph, owner, target)
    with pytest.raises(FileExistsError, match="pass overwrite=True to replace it"):
        split_graph(graph, owner, target)
    with pytest.raises(KeyboardInterrupt):
        split_graph(graph, owner, target, overwrite=True, progress=fail)
    assert open_part(target, 1, verify=True).graph.num_nodes == 30
    split_graph(graph, torch.arange(30) % 3, target, overwrite=True)
    assert len(list(target.iterdir())) == 4 and [path.name for path in tmp_path.iterdir()] == ["parts"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(FileExistsError, match=r"mine has notes\.txt, so it is not a divided graph and is not replaced"):
        split_graph(graph, owner, tmp_path / "mine", overwrite=True)


@pytest.mark.parametrize("entry", ["notes.txt", "part-0/notes.txt", "part-x/notes.txt", "owner/notes.txt"])
def test_files_of_others_beside_the_parts_are_kept(tmp_path: Path, entry: str) -> None:
    split_graph(some_graph(), torch.arange(30) % 2, tmp_path / "parts")
    (tmp_path / "parts" / entry).parent.mkdir(exist_ok=True)
    (tmp_path / "parts" / entry).write_text("years of work")
    with pytest.raises(FileExistsError, match=rf"parts has {entry.partition('/')[0]}.*, so it is not a divided graph"):
        split_graph(some_graph(), torch.arange(30) % 3, tmp_path / "parts", overwrite=True)
    assert (tmp_path / "parts" / entry).read_text() == "years of work"
    assert open_part(tmp_path / "parts", 1, verify=True).graph.num_nodes == 30


def test_parts_of_rows_are_no_divided_graph(tmp_path: Path) -> None:
    owner = torch.arange(30) % 2
    split_graph(some_graph(), owner, tmp_path / "parts")
    with pytest.raises(FileExistsError, match=r"part-0 has a header\.json that describes no rows but 'graph'"):
        wb.features.split_rows(torch.ones(30, 2), owner, tmp_path / "parts", overwrite=True)


def test_the_number_of_parts_is_read_after_a_call_was_killed_while_replacing_them(tmp_path: Path) -> None:
    split_graph(some_graph(), torch.arange(30) % 2, tmp_path / "parts")
    (tmp_path / "parts").rename(tmp_path / f".parts.{'0' * 32}.old")
    assert stored_num_parts(tmp_path / "parts") == 2


def test_progress_counts_both_passes(tmp_path: Path) -> None:
    seen: list[int] = []
    split_graph([([0], [1]), ([1, 1], [0, 2])], torch.tensor([0, 1, 0]), tmp_path / "parts", progress=seen.append)
    assert seen == [1, 3, 4, 6]


class Changing:
    """Yields one edge more, or another one, in the second pass."""

    def __init__(self, *passes: list[int]) -> None:
        self.passes = list(passes)

    def __iter__(self):  # type: ignore[no-untyped-def]
        dst = self.passes.pop(0)
        yield [0] * len(dst), dst


@pytest.mark.parametrize("second", [[1, 2, 2], [1], [2, 2], [2] * 9])
def test_edges_that_change_between_the_passes_are_refused(tmp_path: Path, second: list[int]) -> None:
    with pytest.raises(ValueError, match="second pass over the edges yields others than the first"):
        split_graph(Changing([1, 2], second), torch.tensor([0, 0, 1]), tmp_path / "parts")
    assert list(tmp_path.iterdir()) == []


def test_parts_may_own_no_node(tmp_path: Path) -> None:
    graph = some_graph()
    owner = torch.where(torch.arange(30) % 3 == 1, 0, torch.arange(30) % 3)  # parts 1, 3 and 4 own none
    folders = split_graph(graph, owner, tmp_path / "parts", num_parts=5)
    parts = [open_part(tmp_path / "parts", part, verify=True) for part in range(5)]
    assert len(folders) == 5 and stored_num_parts(tmp_path / "parts") == 5
    assert [part.graph.num_edges for part in parts] == [int(graph.in_degrees()[owner == p].sum()) for p in range(5)]
    assert parts[3].graph.num_nodes == 30 and parts[3].graph.num_edges == parts[1].graph.num_edges == 0
    with pytest.raises(IndexError, match=r"owner contains 2; owners are numbered from 0 on and below num_parts, 2"):
        split_graph(graph, owner, tmp_path / "few", num_parts=2)
    assert not (tmp_path / "few").exists()


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    graph = some_graph()
    with pytest.raises(ValueError, match=r"num_nodes is 4, but the graph has 30|the graph has 30"):
        split_graph(graph, torch.zeros(4, dtype=torch.int64), tmp_path / "parts")
    with pytest.raises(ValueError, match=r"part 1 of 3 has no node"):
        split_graph([], torch.tensor([0, 2, 0]), tmp_path / "parts")
    with pytest.raises(IndexError, match=r"owner contains -1"):
        split_graph([], torch.tensor([0, -1]), tmp_path / "parts")
    with pytest.raises(ValueError, match=r"edges is a list_iterator, which can be read once"):
        split_graph(iter([]), torch.tensor([0, 0]), tmp_path / "parts")
    with pytest.raises(FileNotFoundError):
        open_part(tmp_path / "parts", 0)
