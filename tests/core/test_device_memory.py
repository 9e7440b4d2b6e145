"""What a device has left: the host's for the CPU, the driver's and the allocator's for CUDA."""

import pytest
import torch

from workbench.core import device_memory
from workbench.core.device_memory import free_bytes


def test_the_cpu_has_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "available_bytes", lambda: 123)
    assert free_bytes("cpu") == 123


def test_cuda_has_what_the_driver_and_the_allocator_have(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"mem_get_info": (1000, 5000), "memory_reserved": 300, "memory_allocated": 200}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, answer=answer: answer)
    assert free_bytes("cuda:0") == 1100
