"""Loaders as objects: each loop is a new epoch, one epoch can be fixed or resumed, and repeated ones are noticed."""

import warnings
from itertools import islice

import pytest
import torch

import workbench as wb
from tests.strategies import random_graph

GRAPH = random_graph(40, 300, seed=3)
IDS = torch.arange(2, 39)
SAMPLER = wb.NeighborSampler([2, 2])
OPTIONS = {"sampler": SAMPLER, "batch_size": 8}
PAIRS = torch.stack([torch.arange(30), torch.arange(30).flip(0)])


def loader(graph: wb.Graph = GRAPH, **options) -> wb.sampling.Batches[tuple[int, wb.MiniBatch]]:
    return wb.batches(graph, IDS, **OPTIONS | options)


def contents(batches) -> list[tuple[int, list[int], list[int]]]:
    """Step, nodes and edges of every batch, so that equal lists mean equal samples."""
    return [(step, mb.node_ids.tolist(), mb.blocks[0].indices.tolist()) for step, mb in batches]


def same(left: torch.Tensor | None, right: torch.Tensor | None) -> bool:
    return left is not None and right is not None and torch.equal(left, right)


def in_order(batches) -> list[int]:
    return [node for _, mb in batches for node in mb.seeds.tolist()]


def test_each_loop_is_the_next_epoch() -> None:
    batches = loader()
    assert len(batches) == 5
    for epoch in range(3):
        assert batches.next_epoch == epoch
        assert contents(batches) == contents(loader(epoch=epoch))
    orders = [in_order(batches.epoch(epoch)) for epoch in range(3)]
    assert all(sorted(order) == IDS.tolist() for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    assert batches.next_epoch == 3


def test_steps_go_on_through_the_epochs() -> None:
    batches = loader()
    expected = [item for epoch in range(3) for item in contents(loader(epoch=epoch))]
    assert contents(batches.steps(12)) == expected[:12]
    assert batches.next_epoch == 3 and contents(batches.steps(2)) == contents(loader(epoch=3))[:2]
    assert contents(batches.steps(0)) == [] and batches.next_epoch == 4
    assert contents(batches.epoch(1).steps(5)) == expected[5:10]


@pytest.mark.parametrize(
    ("batches", "count", "message"),
    [
        (loader(), -1, "count is -1; it must be a whole number of at least 0"),
        (loader(epoch=2), 6, "count is 6, but the only epoch has 5 batches; omit epoch="),
        (loader(batch_size=100, drop_last=True), 1, "count is 1, but an epoch has 0 batches; .* lower batch_size"),
    ],
)
def test_steps_that_do_not_exist_are_refused(batches, count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batches.steps(count)


def test_neighbours_differ_between_epochs_without_shuffling() -> None:
    batches = loader(shuffle=False)
    first, second = contents(batches), contents(batches)
    assert in_order(batches) == in_order(batches) == IDS.tolist()
    assert [step for step, _, _ in first + second] == list(range(10))
    assert [edges for _, _, edges in first] != [edges for _, _, edges in second]


def test_a_given_epoch_is_repeated() -> None:
    batches = loader(epoch=2)
    assert contents(batches) == contents(batches) == contents(loader().epoch(2))
    assert batches.next_epoch == 2
    with pytest.raises(ValueError, match=r"of epoch 2 alone, which epoch=2 chose; omit epoch= .* or call \.epoch\(e\)"):
        batches.set_epoch(3)
    with pytest.raises(ValueError, match="epoch is -1"):
        loader().epoch(-1)


def test_a_loop_that_was_left_early_ends_its_epoch() -> None:
    batches = loader()
    next(iter(batches))
    assert contents(batches) == contents(loader(epoch=1))


def test_a_run_resumes_in_the_middle_of_an_epoch() -> None:
    class Counting(wb.NeighborSampler):
        def sample(self, graph, seeds, **options):
            steps.append(options["step"])
            return super().sample(graph, seeds, **options)

    steps: list[int] = []
    resumed = loader(sampler=Counting([2, 2]))
    resumed.set_epoch(3, skip=2)
    assert contents(resumed) == contents(islice(loader(epoch=3), 2, None))
    assert steps == [17, 18, 19]  # the first two are not sampled
    assert contents(resumed) == contents(loader(epoch=4))
    resumed.set_epoch(0)
    assert contents(resumed) == contents(loader(epoch=0))
    with pytest.raises(ValueError, match="skip is 6; it must be a whole number from 0 to 5"):
        resumed.set_epoch(0, skip=6)


@pytest.mark.parametrize(("drop_last", "length"), [(False, 5), (True, 4)])
def test_length_is_the_number_of_batches(drop_last: bool, length: int) -> None:
    batches = loader(drop_last=drop_last)
    assert len(batches) == len(list(batches)) == length
    assert len(wb.batches(GRAPH, IDS[:0], **OPTIONS)) == 0
    assert repr(batches) == f"Batches({length} per epoch, 37 ids, batch_size=8; next is epoch 1)"
    assert repr(batches.epoch(7)) == f"Batches({length} per epoch, 37 ids, batch_size=8; epoch 7)"


def test_prefetched_batches_are_a_new_epoch_per_loop() -> None:
    batches = loader()
    ahead = wb.prefetch(batches)
    assert len(ahead) == 5
    for epoch in range(2):
        assert contents(ahead) == contents(loader(epoch=epoch))
    batches.set_epoch(5)
    assert contents(ahead) == contents(loader(epoch=5))
    with pytest.raises(TypeError, match="no len"):
        len(wb.prefetch(iter([1])))


def test_pairs_have_epochs_too() -> None:
    batches = wb.edge_batches(GRAPH, PAIRS, **OPTIONS, negatives=wb.links.Negatives(2))
    assert len(batches) == 4
    for epoch in range(2):
        fixed = wb.edge_batches(GRAPH, PAIRS, **OPTIONS, negatives=wb.links.Negatives(2), epoch=epoch)
        for (step, pairs, mb), (other_step, other_pairs, other) in zip(batches, fixed, strict=True):
            assert step == other_step and torch.equal(mb.node_ids, other.node_ids)
            assert torch.equal(pairs.src, other_pairs.src) and same(pairs.neg_dst, other_pairs.neg_dst)
    assert batches.next_epoch == 2
    assert isinstance(batches, wb.sampling.Batches)


def test_a_loader_created_in_the_loop_over_epochs_is_noticed() -> None:
    graph = random_graph(40, 300, seed=3)
    for _ in range(2):
        list(wb.batches(graph, torch.arange(20), **OPTIONS))
    with pytest.warns(RuntimeWarning, match="3 loaders with the same arguments .* Create the loader once") as caught:
        list(wb.batches(graph, torch.arange(20), **OPTIONS))
    assert caught[0].filename == __file__
    graph = random_graph(40, 300, num_edge_types=2)
    equal = [wb.NeighborSampler([{0: 2, 1: 1}]) for _ in range(3)]  # have no hash
    with pytest.warns(RuntimeWarning, match="3 loaders"):
        _ = [list(wb.batches(graph, torch.arange(20), sampler=by_type, batch_size=8)) for by_type in equal]
    with pytest.warns(RuntimeWarning, match="3 loaders"):
        _ = [list(wb.edge_batches(graph, PAIRS, **OPTIONS)) for _ in range(3)]


def test_no_warning_for_other_epochs_arguments_and_fixed_epochs() -> None:
    graph, typed = random_graph(40, 300, seed=3), random_graph(40, 300, num_edge_types=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in range(5):
            list(loader(graph, epoch=epoch))
            list(loader(graph, epoch=0))
            list(loader(graph, seed=epoch + 1))
            list(loader(graph, sampler=wb.NeighborSampler([2, 2], seed=epoch + 1)))
            list(wb.batches(graph, torch.arange(20 + epoch), **OPTIONS))
            list(loader(graph, shuffle=False))  # an evaluation
            list(loader(graph).epoch(0))
        for seed in range(12):  # without a hash; later ones may have the address of one that is gone
            list(loader(typed, sampler=wb.NeighborSampler([{0: 2, 1: 2}, 2], seed=seed)))
        for _ in range(4):  # a notebook's cell that is run again
            batches = loader(graph)
            for _ in range(2):
                list(batches)
        for _ in range(4):
            batches = loader(graph)
            batches.set_epoch(0)
            list(batches)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"epoch": -1}, ValueError, "epoch is -1"),
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        (
            {"sampler": wb.NeighborSampler},
            TypeError,
            r"sampler is <class .*pass a sampler, such as wb\.NeighborSampler",
        ),
        ({"sampler": [2, 2]}, TypeError, r"sampler is \[2, 2\]; pass a sampler"),
        ({"graph": IDS}, TypeError, r"graph is a Tensor; pass a Graph \(Graph\.from_dgl"),
        ({"ids": IDS > 3}, TypeError, r"convert a mask with torch\.as_tensor\(ids\)\.nonzero\(\)\[:, 0\]"),
    ],
)
def test_bad_arguments_are_refused_by_the_call(change: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wb.batches(**{"graph": GRAPH, "ids": IDS, **OPTIONS} | change)
