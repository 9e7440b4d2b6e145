"""NeighborSampler: consistency with the graph, invariances of a batch, and validation of arguments."""

import subprocess
import sys
from collections.abc import Iterable

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from tests.sampling.stars import rows_of, star
from tests.strategies import graphs, random_graph
from workbench.core.graph import Graph
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.sampling.neighbor import FullNeighborSampler, NeighborSampler


@given(
    graph=graphs(max_nodes=12, max_edges=60),
    fanouts=st.lists(st.sampled_from([-1, 1, 2, 3]), min_size=1, max_size=3),
    data=st.data(),
)
def test_a_batch_is_consistent_with_its_graph(graph: Graph, fanouts: list[int], data: st.DataObject) -> None:
    """Rows are sub-multisets of the in-edges of the right size; ids are in order of first appearance."""
    seeds = torch.tensor(data.draw(st.permutations(range(graph.num_nodes)))[:4], dtype=torch.int64)
    mb = NeighborSampler(fanouts, edge_ids=True).sample(graph, seeds, step=2)
    assert mb.step == 2
    assert mb.seeds.tolist() == seeds.tolist()
    assert mb.node_ids.unique().numel() == mb.num_inputs
    for block, fanout in zip(mb.blocks, fanouts, strict=True):
        block.validate()
        assert block.edge_ids is not None
        positions = graph.edge_positions(block.edge_ids)
        assert torch.equal(graph.indices[positions].long(), mb.node_ids[block.indices.long()])
        owner = torch.searchsorted(graph.indptr, positions, right=True) - 1
        assert torch.equal(owner, mb.node_ids[block.destinations.long()])
        assert positions.unique().numel() == positions.numel()
        degrees = graph.in_degrees()[mb.node_ids[: block.num_dst]]
        assert torch.equal(block.in_degrees(), degrees if fanout < 0 else degrees.clamp(max=fanout))
        seen = torch.cat([torch.arange(block.num_dst), block.indices.long()]).tolist()
        assert list(dict.fromkeys(seen)) == list(range(block.num_src))


def test_full_sampler_keeps_rows_in_order() -> None:
    graph = random_graph(30, 200, seed=4)
    mb = FullNeighborSampler(2).sample(graph, torch.tensor([3, 0]))
    ends = graph.indptr.tolist()
    for block, rows in zip(mb.blocks, (rows_of(mb, 0), rows_of(mb, 1)), strict=True):
        for node, row in zip(mb.node_ids[: block.num_dst].tolist(), rows, strict=True):
            assert row == graph.indices[ends[node] : ends[node + 1]].tolist()


def big_graph(num_nodes: int = 30_000) -> Graph:
    """Build a graph of average degree 20, by default large enough for several threads in every kernel."""
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, num_nodes, (2, 20 * num_nodes), generator=generator)
    weight = torch.rand(20 * num_nodes, generator=generator)
    return Graph.from_edges(src, dst, num_nodes=num_nodes, edge_weight=weight, edge_type=(src * dst) % 3)


def same(a: wb.MiniBatch, b: wb.MiniBatch) -> bool:
    def content(mb: wb.MiniBatch) -> list[object]:
        tensors = [
            mb.node_ids,
            *(t for b in mb.blocks for t in (b.indptr, b.indices, b.edge_ids, b.edge_weight, b.edge_type)),
        ]
        return [None if t is None else t.tolist() for t in tensors]

    return content(a) == content(b)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"replace": True},
        {"weighted": True},
        {"fanouts": [{0: 2, 1: 3, 2: -1}, 6]},
        {"dependence": wb.Smoothed(4)},
    ],
)
def test_threads_do_not_change_the_batch(options: dict) -> None:
    graph, before = big_graph(), get_num_threads()
    seeds, exclude = torch.arange(0, 30_000, 3), torch.arange(0, 600_000, 7)
    results = []
    try:
        for threads in (1, 2, 7):
            set_num_threads(threads)
            sampler = NeighborSampler(**{"fanouts": [4, 6], "edge_ids": True, **options})
            results.append(sampler.sample(graph, seeds, step=5, exclude_edges=exclude))
    finally:
        set_num_threads(before)
    assert same(results[0], results[1])
    assert same(results[0], results[2])


@pytest.mark.cuda
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"replace": True},
        {"weighted": True},
        {"weighted": True, "replace": True},
        {"dependence": wb.Smoothed(4)},
        {"weighted": True, "replace": True, "dependence": wb.Smoothed(4)},
    ],
)
@pytest.mark.parametrize("fanouts", [[4, 6], [{0: 2, 1: 3, 2: -1}, {0: 1, 1: 0, 2: 2}]])
def test_a_gpu_gives_the_same_batch(options: dict, fanouts: list) -> None:
    graph, seeds, exclude = big_graph(3000), torch.arange(0, 3000, 30), torch.arange(0, 60_000, 7)
    sampler = NeighborSampler(fanouts, edge_ids=True, **options)
    on_cpu = sampler.sample(graph, seeds, step=5, exclude_edges=exclude)
    assert same(on_cpu, sampler.sample(graph.to("cuda"), seeds, step=5, exclude_edges=exclude).to("cpu"))


def test_rows_are_independent_of_other_seeds() -> None:
    graph = big_graph()
    seeds = torch.arange(5000)
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(1))
    sampler = NeighborSampler([5])
    straight, shuffled = (rows_of(sampler.sample(graph, s, step=1)) for s in (seeds, seeds[order]))
    assert [straight[i] for i in order.tolist()] == shuffled
    assert rows_of(sampler.sample(graph, seeds[40:41], step=1)) == [straight[40]]


def test_batches_share_no_state() -> None:
    """The relabelling scratch is reused: batches in other orders, of other graphs and in other threads agree."""
    big, small, sampler = big_graph(), random_graph(50, 300, seed=1), NeighborSampler([3, 3])
    seeds = {id(big): torch.arange(100, 400), id(small): torch.arange(20)}
    first = {(id(g), s): sampler.sample(g, seeds[id(g)], step=s) for g in (big, small) for s in range(4)}

    def stream(graph: Graph) -> Iterable[wb.MiniBatch]:
        return wb.prefetch(sampler.sample(graph, seeds[id(graph)], step=step) for step in range(4))

    streams = [stream(graph) for graph in (small, big, small)]
    for step, batches in enumerate(zip(*streams, strict=True)):
        for graph, mb in zip((small, big, small), batches, strict=True):
            assert same(mb, first[id(graph), step])


def test_blocks_contain_weights_and_types() -> None:
    graph = random_graph(20, 200, seed=5, edge_weight=torch.float32, num_edge_types=3)
    block = NeighborSampler([4], edge_ids=True).sample(graph, torch.arange(20)).blocks[0]
    assert block.edge_ids is not None
    assert graph.edge_weight is not None
    assert graph.edge_type is not None
    positions = graph.edge_positions(block.edge_ids)
    assert block.edge_weight is not None
    assert torch.equal(block.edge_weight, graph.edge_weight[positions])
    assert block.edge_type is not None
    assert torch.equal(block.edge_type, graph.edge_type[positions])
    assert NeighborSampler([4], weighted=True).sample(graph, torch.arange(20)).blocks[0].edge_weight is None


def test_degenerate_batches() -> None:
    """No seeds, no in-edges, self loops, multi-edges, int64 indices."""
    empty = NeighborSampler([3, 2]).sample(random_graph(5, 9), torch.empty(0, dtype=torch.int64))
    assert empty.num_inputs == empty.num_seeds == empty.num_edges == 0
    isolated = NeighborSampler([3], replace=True).sample(star(3), torch.tensor([2, 3]))
    assert isolated.num_edges == 0
    assert isolated.blocks[0].in_degrees().tolist() == [0, 0]
    looped = Graph(torch.tensor([0, 4]), torch.zeros(4, dtype=torch.int64))
    mb = NeighborSampler([3]).sample(looped, torch.tensor([0], dtype=torch.int32))
    assert rows_of(mb) == [[0, 0, 0]]
    assert mb.num_inputs == 1
    assert mb.blocks[0].indices.dtype == torch.int32


@pytest.mark.slow
def test_sampling_in_a_forked_process() -> None:
    """As in a DataLoader with workers: thread pool and scratch memory were used before the fork."""
    program = """
import os, torch, workbench as wb
src, dst = torch.randint(0, 9000, (2, 200000), generator=torch.Generator().manual_seed(0))
graph = wb.Graph.from_edges(src, dst, num_nodes=9000)
checksum = lambda: wb.NeighborSampler([5, 5]).sample(graph, torch.arange(9000)).node_ids.sum().item()
before = checksum()
child = os.fork()
if child == 0:
    os._exit(0 if checksum() == before else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and checksum() == before
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NeighborSampler([]), "one per layer"),
        (lambda: NeighborSampler([3, 0]), r"\[3, 0\]"),
        (lambda: NeighborSampler([-2]), r"at least 1 \(and at most .*\), or -1 for all"),
        (lambda: FullNeighborSampler(0), "num_layers is 0; it must be a whole number of at least 1"),
        (lambda: FullNeighborSampler(10**12), "num_layers is 1000000000000; .* from 1 to 1000"),
        (lambda: NeighborSampler([99999999999999999999, 5]), "fanouts are .99999999999999999999, 5."),
        (lambda: NeighborSampler([2], seed=1.5), r"seed is 1\.5; it must be a whole number"),  # pyright: ignore
        (lambda: NeighborSampler([2], seed="7"), "seed is '7'; it must be a whole number"),  # pyright: ignore
        (lambda: NeighborSampler([2], seed=2**64), r"seed is 18446744073709551616; it must be in \[-2\*\*63"),
        (lambda: NeighborSampler([2]).sample(star(3), torch.tensor([1]), step=0.5), "step is 0.5"),  # pyright: ignore
        (lambda: NeighborSampler([2]).sample(star(3), torch.tensor([1, 2, 1])), "1 more than once"),
        (lambda: NeighborSampler([2], weighted=True).sample(star(3), torch.tensor([0])), "edge_weight.*missing"),
        (
            lambda: NeighborSampler([2], weighted=True).sample(star(2, [1.0, -1.0]), torch.tensor([0])),
            "-1.0 at CSR position 1",
        ),
        (lambda: NeighborSampler([2], weighted=True).sample(star(2, [1.0, float("nan")]), torch.tensor([0])), "nan"),
    ],
)
def test_bad_values_are_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("fanouts", ["10,25", 10, [True], ["3"], None, [[3]]])
def test_fanouts_of_another_type_are_refused(fanouts) -> None:
    with pytest.raises(TypeError, match=r"fanouts are .*; pass a list of integers, input layer first: \[10, 25\]"):
        NeighborSampler(fanouts)


def test_draws_that_exceed_memory_are_refused() -> None:
    typed = Graph(star(3).indptr, star(3).indices, edge_type=torch.tensor([0, 1, 0]))
    for fanout, graph in ((2**61, star(3)), ({0: 2**61, 1: -1}, typed)):
        sampler = NeighborSampler([fanout], replace=True)
        with pytest.raises(MemoryError, match=r"neighbours of . nodes .* with replacement needs .* replace=False"):
            sampler.sample(graph, torch.tensor([0]))
    assert NeighborSampler([{0: 2, 1: 2, 5: 2**61}], replace=True).sample(typed, torch.tensor([0])).num_edges == 4


def test_wrong_types_are_refused() -> None:
    with pytest.raises(TypeError, match="graph is an object; pass a Graph"):
        NeighborSampler([2]).sample(object(), torch.tensor([0]))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="exclude_edges must be an int64 or int32 tensor, not list"):
        NeighborSampler([2]).sample(star(3), torch.tensor([0]), exclude_edges=[1])  # pyright: ignore


def test_bad_ids_are_refused() -> None:
    sampler = NeighborSampler([2])
    with pytest.raises(IndexError, match=r"seeds contains 4; .*\[0, 4\)"):
        sampler.sample(star(3), torch.tensor([4]))
    with pytest.raises(IndexError, match="-1"):
        sampler.sample(star(3), torch.tensor([-1]))
    with pytest.raises(TypeError, match="float32"):
        sampler.sample(star(3), torch.tensor([1.0]))
    with pytest.raises(IndexError, match="edge_ids contains 3"):
        sampler.sample(star(3), torch.tensor([0]), exclude_edges=torch.tensor([3]))
    assert sampler.sample(star(3), torch.tensor([0])).num_seeds == 1  # the scratch memory is clean after an error


def test_options_are_keyword_only_and_fanouts_integers() -> None:
    with pytest.raises(TypeError, match="positional"):
        NeighborSampler([2], True)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="float"):
        NeighborSampler([2.9])  # pyright: ignore[reportArgumentType]
