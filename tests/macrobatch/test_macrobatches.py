"""Macrobatches in one process: the batches are those of `wb.batches`, their rows are fetched once per group."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.multiprocessing.reductions import StorageWeakRef

import workbench as wb
from tests.distributed.cooperative_setting import GRAPH, NODES, X, Y, new_model, new_optimizer
from tests.sampling.test_contract import assert_same_batch

SEEDS = torch.arange(0, NODES, 2)
SAMPLERS = {
    "neighbor": wb.NeighborSampler([4, 3]),
    "labor-1, nested": wb.LaborSampler([4, 3], importance=1, dependence=wb.Nested(3)),
    "random walks": wb.RandomWalkSampler([3, 2], num_walks=4),
}


def loader_of(store: Any, sampler: wb.Sampler = SAMPLERS["neighbor"], **options: Any) -> wb.sampling.Batches:
    return wb.macrobatch.batches(GRAPH, SEEDS, sampler=sampler, store=store, batch_size=8, **{"size": 3, **options})


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize(("size", "group_size"), [(1, 1), (2, 1), (3, 2), (9, None)])
def test_batches_and_rows_are_those_of_one_by_one(name: str, size: int, group_size: int | None) -> None:
    loader = loader_of(X, SAMPLERS[name], size=size, group_size=group_size, drop_last=True, seed=3)
    plain = wb.batches(GRAPH, SEEDS, sampler=SAMPLERS[name], batch_size=8, drop_last=True, seed=3)
    assert len(loader) == len(plain) == 4
    for _ in range(2):
        for (step, mb, rows), (expected, alone) in zip(loader, plain, strict=True):
            assert step == expected
            assert_same_batch(mb, alone)
            assert torch.equal(rows.read(mb.node_ids), X[mb.node_ids])
    resumed = [step for step, *_ in loader.epoch(1)]
    loader.set_epoch(1, skip=3)
    assert resumed == [4, 5, 6, 7] and [step for step, *_ in loader] == [7]


def test_a_window_is_forgotten_before_the_next_one_is_sampled() -> None:
    alive = []

    class Watching(wb.NeighborSampler):
        def sample(self, *args: Any, **options: Any) -> wb.MiniBatch:
            alive.append(sum(not batch.expired() for batch in sampled))
            mb = super().sample(*args, **options)
            sampled.append(StorageWeakRef(mb.node_ids.untyped_storage()))
            return mb

    sampled = list[StorageWeakRef]()
    for item in loader_of(X, Watching([4, 3]), size=2, drop_last=True, epoch=0):
        del item  # or the loop has its last batch
    assert alive == [0, 1, 0, 1], "those of its own window alone"


@pytest.mark.parametrize("kind", ["mapped", "disk"])
@pytest.mark.parametrize("group_size", [1, 2, 5])
def test_each_row_of_a_group_is_fetched_once(tmp_path: Any, kind: str, group_size: int) -> None:
    wb.MappedRows.create(tmp_path / "x", X)
    links = wb.Traffic()
    folder = tmp_path / "x"
    store = wb.DiskRows(folder, direct=False, traffic=links) if kind == "disk" else wb.MappedRows(folder, traffic=links)
    items = list(loader_of(store, size=5, group_size=group_size, epoch=0))
    groups = [items[at : at + group_size] for at in range(0, len(items), group_size)]
    expected = sum(len(torch.cat([mb.node_ids for _, mb, _ in group]).unique()) for group in groups)
    assert links.snapshot().count("disk") == expected and len(items) == 5
    assert len({id(rows) for _, _, rows in items}) == len(groups)
    for _, mb, rows in items:
        assert torch.equal(rows.read(mb.node_ids), X[mb.node_ids])


def test_features_and_aggregates_are_fetched_together() -> None:
    inputs: Any = wb.Inputs(X, X.flip(0))
    for _, mb, rows in loader_of(inputs, epoch=0):
        assert torch.equal(rows.x.read(mb.node_ids), X[mb.node_ids])
        assert torch.equal(rows.aggregated.read(mb.node_ids), X.flip(0)[mb.node_ids])


def test_training_equals_that_without_macrobatches() -> None:
    models = [new_model("sage-mean") for _ in range(2)]
    plain = wb.batches(GRAPH, SEEDS, sampler=SAMPLERS["neighbor"], batch_size=8)
    losses = []
    for model, loop in zip(models, (loader_of(X), ((*item, X) for item in plain)), strict=True):
        optimizer = new_optimizer(model, 0.1)
        losses.append([float(wb.train_step(model, mb, x, Y, F.cross_entropy, optimizer)) for _, mb, x in loop])
    assert losses[0] == losses[1] and len(losses[0]) == 5
    assert all(torch.equal(a, b) for a, b in zip(*(model.parameters() for model in models), strict=True))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, "size is 0; it must be a whole number of at least 1"),
        ({"size": 3, "group_size": 4}, "group_size is 4"),
        ({"size": 3, "group_size": 0}, "group_size is 0"),
    ],
)
def test_bad_sizes_are_refused_by_the_call(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        loader_of(X, **options)


@pytest.mark.parametrize(
    ("store", "name"),
    [(X[:3], "store"), (wb.Inputs(X[:3], X), "store.x"), (wb.Inputs(X, X[:3]), "store.aggregated")],
)
def test_a_store_that_does_not_cover_the_graph_is_refused_by_the_call(store: Any, name: str) -> None:
    with pytest.raises(IndexError, match=f"^{name} has 3 rows, but the batch reads row {NODES - 1}"):
        loader_of(store)


def test_rows_are_divided_by_owner(tmp_path: Any) -> None:
    owner = torch.arange(NODES) % 3
    folders = wb.features.split_rows(X, owner, tmp_path / "rows")
    assert [folder.name for folder in folders] == ["part-0", "part-1", "part-2"]
    for part, folder in enumerate(folders):
        ids = (owner == part).nonzero()[:, 0]
        assert torch.equal(wb.MappedRows(folder).read(torch.arange(len(ids))), X[ids])
    with pytest.raises(ValueError, match="x has 70 rows and owner 69; pass the rows and the owner of every node"):
        wb.features.split_rows(X, owner[1:], tmp_path / "other")
    with pytest.raises(FileExistsError):
        wb.features.split_rows(X, owner, tmp_path / "rows")


def test_owners_of_a_narrow_dtype_may_have_more_parts_than_it_has_values(tmp_path: Any) -> None:
    owner = torch.arange(NODES, dtype=torch.int8) % 3
    folders = wb.features.split_rows(X, owner, tmp_path / "rows", num_parts=258)
    sizes = [len(wb.MappedRows(folder)) for folder in folders]
    assert sizes[:3] == owner.long().bincount().tolist() and not any(sizes[3:])
