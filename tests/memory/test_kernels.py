"""Estimates for kernels other than those that the CPU runs by itself, which it is made to run."""

import importlib
from collections.abc import Iterator

import pytest
import torch

import workbench as wb
from tests.memory.measured import CLASSES, FANOUTS, IN, WIDE, build, compare, is_close, sample, thirds
from workbench.kernels import mask
from workbench.memory.analytic import lstm as shadow_lstm
from workbench.memory.estimate import estimate_memory
from workbench.nn import dropout
from workbench.nn.model import MODEL_KINDS


@pytest.fixture
def without_onednn() -> Iterator[None]:
    torch._C._set_mkldnn_enabled(False)  # torch.backends.mkldnn.flags warns of what is not touched here
    yield
    torch._C._set_mkldnn_enabled(True)


@pytest.fixture
def torch_forms(monkeypatch: pytest.MonkeyPatch, without_onednn: None) -> wb.Kernels:
    """The CPU runs what CUDA would, LSTM's steps apart, which CUDA fuses."""
    for name in ("segment_sum", "segment_max", "edge_softmax", "gather"):
        monkeypatch.setattr(importlib.import_module(f"workbench.kernels.{name}"), "use_compiled", lambda x: False)

    def in_torch(x: torch.Tensor, ids: torch.Tensor, key: int, threshold: int) -> torch.Tensor:
        return mask._apply_mask_torch(x, ids, key, threshold, 2.0)

    monkeypatch.setattr(dropout, "apply_mask", in_torch)
    monkeypatch.setitem(shadow_lstm._NATIVE_KEPT, "cuda", shadow_lstm._NATIVE_KEPT["cpu"])
    return wb.Kernels("cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_the_torch_forms_are_priced_for_cuda(
    torch_forms: wb.Kernels, kind: str, num_layers: int, dtype: torch.dtype
) -> None:
    model, micro = build(kind, num_layers, WIDE, dtype, dropout=0.5), thirds(sample(FANOUTS[:num_layers]))
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    found = compare(model, micro, optimizer, in_dim=IN, num_classes=CLASSES, kernels=torch_forms)
    for phase in ("forward", "backward"):
        assert is_close(found[phase], 0.15 if kind == "sage-lstm" else 0.01), found


def test_torch_forms_work_in_ranges_of_edges(torch_forms: wb.Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kernels.segment", "memory.analytic.edges", "memory.analytic.dense"):
        monkeypatch.setattr(importlib.import_module(f"workbench.{name}"), "MESSAGE_BYTES", 1 << 14)
    for kind in ("sage-mean", "gat"):
        model = build(kind, 2, WIDE, dropout=0.5)
        found = compare(
            model, thirds(sample(FANOUTS[:2])), torch.optim.Adam(model.parameters(), foreach=True), in_dim=IN,
            num_classes=CLASSES, kernels=torch_forms,
        )  # fmt: skip
        assert is_close(found["forward"], 0.01) and is_close(found["backward"], 0.01), found


@pytest.mark.parametrize("num_layers", [1, 2])
def test_torchs_own_lstm(without_onednn: None, num_layers: int) -> None:
    model = build("sage-lstm", num_layers, WIDE)
    assert wb.Kernels.of(model).lstm == "native"
    found = compare(
            model, thirds(sample(FANOUTS[:num_layers])), torch.optim.Adam(model.parameters()), in_dim=IN,
            num_classes=CLASSES,
        )  # fmt: skip
    assert is_close(found["forward"], 0.03), found
    assert is_close(found["backward"], 0.15), found  # not where the peak is


def test_double_precision_runs_torchs_own_lstm() -> None:
    model = build("sage-lstm", 1, WIDE, torch.float64)
    estimate = estimate_memory(model, sample(FANOUTS[:1]), kernels="cpu")
    assert "native" in estimate.kernels
    found = compare(model, [sample(FANOUTS[:1])], torch.optim.SGD(model.parameters()), in_dim=IN, num_classes=CLASSES)
    assert is_close(found["forward"], 0.01), found


def test_kernels_that_there_are_not_are_refused() -> None:
    with pytest.raises(ValueError, match="device 'tpu' is not known"):
        wb.Kernels("tpu")
    with pytest.raises(ValueError, match="choose native"):
        wb.Kernels("cuda", "onednn")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="asked of a GPU"):
            wb.Kernels("cuda", "cudnn")
