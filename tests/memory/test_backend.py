"""Estimates for backends other than the CPU's default, whose kernels the CPU is made to run."""

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.covering import pairwise
from tests.memory.measured import CLASSES, FANOUTS, IN, WIDE, build, compare, is_close, sample, thirds
from workbench.kernels import dropout_mask as mask, segment
from workbench.memory.analytic import layers as fake_lstm
from workbench.memory.estimator import estimate_memory
from workbench.nn import dropout
from workbench.nn.model import MODEL_KINDS, REUSING_KINDS


@pytest.fixture
def without_onednn() -> Iterator[None]:
    torch._C._set_mkldnn_enabled(False)  # torch.backends.mkldnn.flags warns about unrelated flags
    yield
    torch._C._set_mkldnn_enabled(True)


@pytest.fixture
def torch_forms(monkeypatch: pytest.MonkeyPatch, without_onednn: None) -> wb.memory.Backend:
    """The CPU runs the torch forms, as CUDA would, except for LSTM steps, which CUDA fuses."""
    kernels = [f"kernels.{name}" for name in ("segment", "edge_softmax", "gather")]
    for name in (*kernels, "nn.sage", "nn.gcn"):
        monkeypatch.setattr(importlib.import_module(f"workbench.{name}"), "use_compiled", lambda x: False)

    def in_torch(x: torch.Tensor, ids: torch.Tensor, key: int, threshold: int) -> torch.Tensor:
        return mask._apply_mask_torch(x, ids, key, threshold, 2.0)

    monkeypatch.setattr(dropout, "apply_mask", in_torch)
    monkeypatch.setitem(fake_lstm._NATIVE_SAVED, "cuda", fake_lstm._NATIVE_SAVED["cpu"])
    return wb.memory.Backend("cuda", "native", fused=False)


@pytest.mark.parametrize(
    ("kind", "num_layers", "dtype"), pairwise(MODEL_KINDS, [1, 3], [torch.float32, torch.bfloat16]), ids=str
)
def test_cuda_estimates_match_the_torch_forms(
    torch_forms: wb.memory.Backend, kind: str, num_layers: int, dtype: torch.dtype
) -> None:
    model, micro = build(kind, num_layers, WIDE, dtype, dropout=0.5), thirds(sample(FANOUTS[:num_layers]))
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    found = compare(model, micro, optimizer, in_dim=IN, num_classes=CLASSES, backend=torch_forms)
    for phase in ("forward", "backward"):
        assert is_close(found[phase], 0.15 if kind == "sage-lstm" else 0.01), found


def test_torch_forms_process_edges_in_chunks(torch_forms: wb.memory.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kernels.segment", "memory.analytic.layers"):
        monkeypatch.setattr(importlib.import_module(f"workbench.{name}"), "MESSAGE_BYTES", 1 << 14)
    for kind in ("sage-mean", "sage-pool", "gat"):
        model = build(kind, 2, WIDE, dropout=0.5)
        found = compare(
            model, thirds(sample(FANOUTS[:2])), torch.optim.Adam(model.parameters(), foreach=True), in_dim=IN,
            num_classes=CLASSES, backend=torch_forms,
        )  # fmt: skip
        assert is_close(found["forward"], 0.01) and is_close(found["backward"], 0.01), found


class FusedOnCpu:
    """Stands for `workbench.kernels.triton_rows`, whose results are all that it allocates."""

    @staticmethod
    def sum_rows(indptr: Tensor, indices: Tensor, x: Tensor, **options: Any) -> Tensor:
        return segment.sum_rows(indptr, indices, x, **options)

    @staticmethod
    def scatter_rows(
        indptr: Tensor, indices: Tensor, x: Tensor, size: int, *, weight: Any, row_scale: Any, out: Any = None
    ) -> Tensor:
        out = x.new_zeros(size, *x.shape[1:]) if out is None else out.zero_()
        rows = np.repeat(np.arange(len(x)), np.diff(indptr.numpy()))
        factors = (
            np.ones(len(rows), x.numpy().dtype)[:, None] if weight is None else weight.numpy().reshape(len(rows), -1)
        )
        factors = factors if row_scale is None else factors * row_scale.numpy()[rows, None]
        factors = factors[..., None] if x.dim() == 3 else factors
        np.add.at(out.numpy(), indices.numpy(), factors * x.numpy()[rows])
        return out

    @staticmethod
    def max_rows(indptr: Tensor, indices: Tensor, x: Tensor, weight: Tensor | None, _: torch.dtype) -> Any:
        block = wb.Block(indptr, indices, len(x), len(indptr) - 1)
        return segment.max_rows(block, x, weight)

    @staticmethod
    def edge_dots(indptr: Tensor, indices: Tensor, grad: Tensor, x: Tensor, *, row_scale: Tensor | None) -> Tensor:
        return segment.edge_dots(wb.Block(indptr, indices, len(x), len(grad)), grad, x, row_scale)


FUSED = [(kind, False) for kind in MODEL_KINDS if kind != "sage-lstm"] + [(kind, True) for kind in REUSING_KINDS]


@pytest.mark.parametrize(("kind", "reuse_buffers"), FUSED)
def test_estimates_of_fused_kernels(
    torch_forms: wb.memory.Backend, monkeypatch: pytest.MonkeyPatch, kind: str, reuse_buffers: bool
) -> None:
    """What is fused allocates its results and no messages."""
    for name in ("kernels.segment", "nn.reuse.layers"):
        monkeypatch.setattr(importlib.import_module(f"workbench.{name}"), "fused", lambda _: FusedOnCpu)
    monkeypatch.setattr("workbench.nn.reuse.layers.use_compiled", lambda _: False)
    model = build(kind, 3, WIDE, dropout=0.0 if reuse_buffers else 0.5, reuse_buffers=reuse_buffers)
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    micro, backend = thirds(sample(FANOUTS[:3])), wb.memory.Backend("cuda")
    found = compare(model, micro, optimizer, in_dim=IN, num_classes=CLASSES, backend=backend)
    for phase in ("forward", "backward"):
        assert is_close(found[phase], 0.01), found


@pytest.mark.parametrize("num_layers", [1, 2])
def test_native_lstm(without_onednn: None, num_layers: int) -> None:
    model = build("sage-lstm", num_layers, WIDE)
    assert wb.memory.Backend.of(model).lstm == "native"
    found = compare(
            model, thirds(sample(FANOUTS[:num_layers])), torch.optim.Adam(model.parameters()), in_dim=IN,
            num_classes=CLASSES,
        )  # fmt: skip
    assert is_close(found["forward"], 0.03), found
    assert is_close(found["backward"], 0.15), found  # the peak is in the forward pass


def test_double_precision_uses_the_native_lstm() -> None:
    model = build("sage-lstm", 1, WIDE, torch.float64)
    estimate = estimate_memory(model, sample(FANOUTS[:1]), backend="cpu")
    assert "native" in estimate.backend
    found = compare(model, [sample(FANOUTS[:1])], torch.optim.SGD(model.parameters()), in_dim=IN, num_classes=CLASSES)
    assert is_close(found["forward"], 0.01), found


def test_unavailable_backends_are_refused() -> None:
    with pytest.raises(ValueError, match="device 'tpu' is not known"):
        wb.memory.Backend("tpu")
    with pytest.raises(ValueError, match="pass lstm='native'"):
        wb.memory.Backend("cuda", "onednn")
    with pytest.raises(ValueError, match="requires device='cuda'"):
        wb.memory.Backend("cpu", "cudnn")
