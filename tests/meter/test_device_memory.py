"""Free memory: available host memory for the CPU; free and unused reserved memory for CUDA."""

import pytest
import torch

from workbench.meter import limit as device_memory
from workbench.meter.limit import free_bytes


def test_cpu_free_bytes_are_the_available_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "available_bytes", lambda: 123)
    assert free_bytes("cpu") == 123


def test_cuda_free_bytes_include_unused_reserved_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"mem_get_info": (1000, 5000), "memory_reserved": 300, "memory_allocated": 200}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, answer=answer: answer)
    assert free_bytes("cuda:0") == 1100
