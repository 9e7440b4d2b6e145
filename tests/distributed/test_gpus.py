"""With NCCL, ranks use a GPU each."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

import workbench as wb
from workbench.distributed import group as agreement
from workbench.distributed.rank_main import run_rank


def nothing(config: Any) -> None:
    """Yields no rows."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Two GPUs, the second of two ranks, and what it calls, in order."""
    called: list[Any] = []
    for name, value in {"LOCAL_RANK": "1", "RANK": "5", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "6"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", called.append)
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **o: called.append((backend, o.get("device_id"))))
    monkeypatch.setattr(dist, "get_rank", lambda: 5)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    monkeypatch.setattr(agreement, "check_start", lambda *_: None)
    return called


def test_a_rank_selects_its_own_gpu_before_the_group(calls: list[Any]) -> None:
    name = f"{__name__}:nothing"
    assert run_rank(name, {}, backend="nccl", timeout_seconds=1) == []
    assert calls == [1, ("nccl", torch.device("cuda", 1))]
    calls.clear()
    both = "cpu:gloo,cuda:nccl"
    run_rank(name, {}, backend=both, timeout_seconds=1)
    assert calls == [1, (both, torch.device("cuda", 1))]
    calls.clear()
    run_rank(name, {}, backend="gloo", timeout_seconds=1)
    assert calls == [("gloo", None)]


def test_more_ranks_than_gpus_are_refused(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"3 ranks on this machine with backend nccl need a GPU each, but torch sees 2; start at most 2, or pass"
    with pytest.raises(ValueError, match=message):
        wb.distributed.RankPool(3, backend="nccl")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(ValueError, match=message):
        run_rank(f"{__name__}:nothing", {}, backend="nccl", timeout_seconds=1)
    assert not calls
