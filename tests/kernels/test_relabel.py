"""Relabelling: numba and torch compared with a dictionary, and reuse of maps."""

import os
import signal

import pytest
import torch
from hypothesis import given, strategies as st

from workbench.kernels import relabel
from workbench.kernels.relabel import TorchRelabeler, relabeler

IDS = st.lists(st.integers(0, 19), max_size=30)


@given(seeds=st.lists(st.integers(0, 19), unique=True), layers=st.lists(IDS, max_size=3), wide=st.booleans())
def test_ids_are_numbered_by_first_appearance(seeds: list[int], layers: list[list[int]], wide: bool) -> None:
    dtype = torch.int64 if wide else torch.int32
    numbers = {raw: local for local, raw in enumerate(seeds)}
    oracle = TorchRelabeler(torch.tensor(seeds, dtype=torch.int64))
    with relabeler(20, torch.tensor(seeds, dtype=torch.int64)) as labels:
        for ids in layers:
            raw = torch.tensor(ids, dtype=dtype)
            torch_local = oracle(raw.clone())
            local = labels(raw)
            assert local.tolist() == [numbers.setdefault(i, len(numbers)) for i in ids] == torch_local.tolist()
            assert local.dtype == torch_local.dtype == torch.int32
        assert labels.node_ids.tolist() == list(numbers) == oracle.node_ids.tolist()


@pytest.mark.parametrize("make", [TorchRelabeler, lambda seeds: relabeler(9, seeds).__enter__()])
def test_a_seed_twice_is_rejected(make) -> None:
    with pytest.raises(ValueError, match="seeds contain 4 more than once"):
        make(torch.tensor([3, 4, 5, 4]))


def test_a_map_restarts_before_its_numbers_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 100 numbers available, forty batches of up to 10 ids require several restarts and stay correct."""
    monkeypatch.setattr(relabel, "_free", [])
    scratch = relabel._Map(10)
    scratch.limit = 100
    relabel._free.append(scratch)
    for batch in range(40):
        with relabeler(10, torch.tensor([batch % 10])) as labels:
            ids = torch.tensor([9, batch % 10, 3, 9], dtype=torch.int32)
            expected = TorchRelabeler(torch.tensor([batch % 10]))(ids)
            assert labels(ids).tolist() == expected.tolist()
        assert scratch.base <= 100


def test_concurrent_batches_use_separate_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relabel, "_free", [])
    with relabeler(10, torch.tensor([1])) as one, relabeler(8, torch.tensor([2])) as other:
        assert one(torch.tensor([2])).tolist() == [1]
        assert other(torch.tensor([1])).tolist() == [1]
    for _ in range(3):
        with relabeler(5, torch.tensor([1])):
            pass
    assert len(relabel._free) <= 2


@pytest.mark.parametrize("stage", ["_register", "_relabel"])
def test_an_interrupt_after_a_kernel_does_not_affect_later_batches(monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """If the kernel filled the map but `base` was not updated, the map must not return to the pool."""
    monkeypatch.setattr(relabel, "_free", [])
    with relabeler(10, torch.tensor([1, 2])) as labels:
        labels(torch.tensor([3, 4]))
    kernel = getattr(relabel, stage)

    def interrupted(*args):
        kernel(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(relabel, stage, interrupted)
    with pytest.raises(KeyboardInterrupt), relabeler(10, torch.tensor([5, 6])) as labels:
        labels(torch.tensor([7, 0, 8]))
    monkeypatch.setattr(relabel, stage, kernel)
    with relabeler(10, torch.tensor([6, 5])) as labels:
        assert labels(torch.tensor([0, 7, 9])).tolist() == [2, 3, 4]
        assert labels.node_ids.tolist() == [6, 5, 0, 7, 9]


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_an_error_of_the_caller_does_not_affect_later_batches(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    monkeypatch.setattr(relabel, "_free", [])
    with pytest.raises(error), relabeler(10, torch.tensor([5, 6])) as labels:  # noqa: PT012
        labels(torch.tensor([7, 0, 8]))
        raise error
    with relabeler(10, torch.tensor([6, 7])) as labels:
        assert labels(torch.tensor([0, 5])).tolist() == [2, 3]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_can_sample_while_its_parent_holds_the_lock() -> None:
    reader, writer = os.pipe()
    with relabel._lock:
        child = os.fork()
        if not child:
            signal.alarm(10)  # a deadlock ends here
            with relabeler(10, torch.tensor([1])) as labels:
                os.write(writer, bytes(labels(torch.tensor([4, 1])).tolist()))
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    assert os.read(reader, 10) == bytes([1, 0])
    os.close(reader)
