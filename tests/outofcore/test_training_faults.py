"""Faults in the middle of an epoch from disk: errors name the partition, threads end, and the store opens again."""

import errno
import os
import shutil
import threading

import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.strategies import random_graph
from workbench.outofcore import store_files as partition_file

P, NODES = 6, 90
GRAPH = random_graph(NODES, 700, edge_ids=False)
IDS, LABELS = torch.arange(NODES), torch.arange(NODES) % 3
SAMPLER = wb.NeighborSampler([3, 3])


@pytest.fixture(scope="module", params=["features", "learnt"])
def built(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults") / "store"
    generator = torch.Generator().manual_seed(0)
    rows = (
        torch.randn(NODES, 40, generator=generator)
        if request.param == "features"
        else wb.outofcore.LearntInit(40, std=1.0)
    )
    wb.outofcore.PartitionStore.build(folder, GRAPH, rows=rows, num_partitions=P)
    return folder


@pytest.fixture
def folder(built, tmp_path):
    shutil.copytree(built, tmp_path / "store")
    return tmp_path / "store"


def epoch(folder, each=lambda state, step: None, **options):
    """Train an epoch; rows that can be written are written. Returns the losses."""
    store, losses = wb.outofcore.PartitionStore.open(folder), []
    model = wb.build_model("sage-mean", in_dim=40, hidden_dim=4, out_dim=3, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with wb.outofcore.PartitionBuffer(store, capacity=2, **options) as buffer:
        order = wb.outofcore.node_order(P, 2, P, seed=1)
        loader = wb.outofcore.batches(buffer, order, IDS, sampler=SAMPLER, batch_size=8, epoch=0)
        for state, step, mb in loader:
            losses.append(float(wb.train_step(model, mb, state.rows, LABELS, cross_entropy, optimizer)))
            if store.learnt:
                state.rows.write(mb.seeds, state.rows.read(mb.seeds) + 1)
            each(state, step)
    return losses


def threads():
    return {t.name for t in threading.enumerate() if t.name in ("workbench-prefetch", "workbench-io") and t.is_alive()}


class Stop(Exception):
    pass


@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("prefetch", [True, False])
def test_an_error_in_the_loop_ends_the_epoch_and_the_store_opens_again(folder, error, prefetch):
    def fail(state, step):
        if state.number == 2:
            raise error

    with pytest.raises(error):
        epoch(folder, fail, prefetch=prefetch)
    assert not threads()
    store = wb.outofcore.PartitionStore.open(folder)
    assert store.damaged() == []
    assert len(epoch(folder)) >= P


def test_rows_written_before_an_error_are_kept(folder):
    store = wb.outofcore.PartitionStore.open(folder)
    if not store.learnt:
        pytest.skip("features are not written")
    before, trained = store.read(), []

    def fail(state, step):
        trained.append(state.partitions)
        if state.number == 3:
            raise Stop

    with pytest.raises(Stop):
        epoch(folder, fail)
    changed = ((wb.outofcore.PartitionStore.open(folder).read() - before).abs() > 0).any(1)
    visited = torch.isin(IDS // store.partition_rows, torch.cat(trained))
    assert changed.any() and not changed[~visited].any()


@pytest.mark.parametrize("prefetch", [True, False])
def test_a_partition_damaged_in_the_middle_of_an_epoch_is_named(folder, prefetch):
    store = wb.outofcore.PartitionStore.open(folder)
    last = [int(i) for i in wb.outofcore.node_order(P, 2, P, seed=1).states[-1]]
    early = {int(i) for i in wb.outofcore.node_order(P, 2, P, seed=1).states[:3].flatten()}
    victim = next(i for i in last if i not in early)

    def damage(state, step):
        if state.number == 0 and step == 0:
            with (folder / "rows.bin").open("r+b") as file:
                file.seek(victim * store.partition_bytes + 5)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 1]))

    with pytest.raises(wb.CorruptFileError, match=f"partition {victim} .* is damaged"):
        epoch(folder, damage, prefetch=prefetch)
    assert not threads()
    assert wb.outofcore.PartitionStore.open(folder).damaged() == [victim]


def test_a_full_disk_names_the_partition_and_loses_nothing_committed(folder, monkeypatch):
    store = wb.outofcore.PartitionStore.open(folder)
    if not store.learnt:
        pytest.skip("features are not written")
    before, writes, real = store.read(), [], os.pwritev

    def full(descriptor, buffers, offset):
        writes.append(offset)
        if len(writes) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(partition_file.os, "pwritev", full)
    with pytest.raises(OSError, match=r"No space left on device when writing partition \d") as error:
        epoch(folder)
    assert error.value.errno == errno.ENOSPC
    assert not threads()
    monkeypatch.undo()
    after = wb.outofcore.PartitionStore.open(folder)
    assert after.damaged() == []
    parts = (after.read() - before).abs().amax(1).split(store.partition_rows)
    assert sum(bool(part.any()) for part in parts) == 1  # the one that was written before
    assert len(epoch(folder)) >= P


def test_rows_of_a_state_that_has_ended_are_refused(folder):
    """As happens if the loop is passed to `wb.prefetch`, which asks for the next state too early."""
    store = wb.outofcore.PartitionStore.open(folder)
    with wb.outofcore.PartitionBuffer(store, capacity=2) as buffer:
        loader = wb.outofcore.batches(buffer, wb.outofcore.node_order(P, 2, P), IDS, sampler=SAMPLER, batch_size=90)
        state, _, mb = next(iter(list(wb.prefetch(loader))))
        with pytest.raises(RuntimeError, match="this state of the buffer has ended"):
            state.rows.read(mb.node_ids)


def test_leaving_the_block_ends_an_epoch_that_something_still_refers_to(folder):
    """As a notebook does, which keeps the traceback of an error, and with it the loop."""
    store = wb.outofcore.PartitionStore.open(folder)
    before = store.read()
    with wb.outofcore.PartitionBuffer(store, capacity=2) as buffer:
        states = buffer.epoch(wb.outofcore.node_order(P, 2, P))
        state = next(states)
        node = state.partitions[:1] * store.partition_rows
        if store.learnt:
            state.rows.write(node, state.rows.read(node) + 1)
    assert not threads()
    with pytest.raises(RuntimeError, match="this state of the buffer has ended"):
        state.rows.read(node)
    changed = (wb.outofcore.PartitionStore.open(folder).read() != before).any(1).nonzero()[:, 0]
    assert changed.tolist() == (node.tolist() if store.learnt else [])
    assert len(list(buffer.epoch(wb.outofcore.node_order(P, 2, P)))) == P - 1
    assert list(states) == []
