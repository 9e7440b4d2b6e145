"""Which kernels an estimate prices: what a step allocates depends on them."""

from dataclasses import dataclass

import torch
from torch import nn

from workbench.core.errors import check_choice

DEVICES = ("cpu", "cuda")
LSTMS = ("onednn", "native", "cudnn")


@dataclass(frozen=True)
class Kernels:
    """The kernels that an estimate prices.

    Args:
        device: "cpu", the compiled kernels as the CPU meter sees them; or "cuda", their torch forms. Workspace inside
            the operators of CUDA's libraries is not priced.
        lstm: the LSTM of sage-lstm: "onednn" (torch's on CPUs for float32 and bfloat16), "native" (torch's own, as
            without oneDNN or cuDNN) or "cudnn" (asked of the GPU, so there must be one). Default: onednn on the CPU
            where torch has it, native on CUDA.

    Raises:
        ValueError: another name, or an LSTM that the device or this machine does not have.
    """

    device: str = "cpu"
    lstm: str = ""

    def __post_init__(self) -> None:
        check_choice("device", self.device, DEVICES)
        onednn = self.device == "cpu" and torch.backends.mkldnn.is_available()
        object.__setattr__(self, "lstm", self.lstm or ("onednn" if onednn else "native"))
        check_choice("lstm", self.lstm, LSTMS)
        if self.lstm == "onednn" and not onednn:
            raise ValueError(f"lstm is 'onednn', which torch does not have here on {self.device}; choose native")
        if self.lstm == "cudnn" and (self.device != "cuda" or not torch.backends.cudnn.is_available()):
            raise ValueError("lstm is 'cudnn', which must be asked of a GPU, and there is none; choose native")

    @staticmethod
    def of(model: nn.Module) -> "Kernels":
        """What torch would run for this model where it is now."""
        first = next(model.parameters(), None)
        if first is not None and first.is_cuda:
            there = torch.backends.cudnn.is_available() and torch.backends.cudnn.enabled
            return Kernels("cuda", "cudnn" if there else "native")
        onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
        return Kernels("cpu", "onednn" if onednn else "native").serving(model)

    def serving(self, model: nn.Module) -> "Kernels":
        """These, but torch's own LSTM where oneDNN has none for the model's dtype."""
        first = next(model.parameters(), None)
        narrow = first is None or first.dtype in (torch.float32, torch.bfloat16)
        return self if narrow or self.lstm != "onednn" else Kernels(self.device, "native")

    def __str__(self) -> str:
        return f"{self.device} ({self.lstm} lstm)"
