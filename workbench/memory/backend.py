"""The backend of a memory estimate: the device and LSTM kernels whose allocations are estimated."""

from dataclasses import dataclass

import torch
from torch import nn

from workbench.core.errors import check_choice

DEVICES = ("cpu", "cuda")
LSTMS = ("onednn", "native", "cudnn")


@dataclass(frozen=True)
class Backend:
    """The kernels whose allocations an estimate models.

    Args:
        device: "cpu" for the compiled kernels; "cuda" for their torch forms. Workspace that CUDA libraries allocate
            inside an operator is not modelled.
        lstm: the LSTM implementation of sage-lstm: "onednn" (torch's on CPUs for float32 and bfloat16), "native"
            (torch's own, used without oneDNN or cuDNN) or "cudnn" (its workspace is measured, which requires a GPU).
            Default: onednn on the CPU where torch provides it, native on CUDA.

    Raises:
        ValueError: The device or LSTM is unknown, or the LSTM is not available for the device on this machine.
    """

    device: str = "cpu"
    lstm: str = ""

    def __post_init__(self) -> None:
        check_choice("device", self.device, DEVICES)
        onednn = self.device == "cpu" and torch.backends.mkldnn.is_available()
        object.__setattr__(self, "lstm", self.lstm or ("onednn" if onednn else "native"))
        check_choice("lstm", self.lstm, LSTMS)
        if self.lstm == "onednn" and not onednn:
            raise ValueError(
                f"lstm is 'onednn', which this build of torch does not provide on {self.device}; pass lstm='native'"
            )
        if self.lstm == "cudnn" and (self.device != "cuda" or not torch.backends.cudnn.is_available()):
            raise ValueError("lstm is 'cudnn', which requires device='cuda' and a GPU with cuDNN; pass lstm='native'")

    @staticmethod
    def of(model: nn.Module) -> "Backend":
        """The backend that torch would use for this model on its current device."""
        first = next(model.parameters(), None)
        if first is not None and first.is_cuda:
            cudnn = torch.backends.cudnn.is_available() and torch.backends.cudnn.enabled
            return Backend("cuda", "cudnn" if cudnn else "native")
        onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
        return Backend("cpu", "onednn" if onednn else "native").with_supported_lstm(model)

    def with_supported_lstm(self, model: nn.Module) -> "Backend":
        """This backend, with the native LSTM if oneDNN does not support the model's dtype."""
        first = next(model.parameters(), None)
        supported = first is None or first.dtype in (torch.float32, torch.bfloat16)
        return self if supported or self.lstm != "onednn" else Backend(self.device, "native")

    def __str__(self) -> str:
        return f"{self.device} ({self.lstm} lstm)"
