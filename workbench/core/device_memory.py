"""Memory that a device has left, so that a step too big for it is not begun."""

import torch

from workbench.core.host_memory import available_bytes


def free_bytes(device: torch.device | str) -> int:
    """Bytes that a step could still take on a device.

    On CUDA what the driver has free, and what torch's allocator keeps without use; else what this machine has left.

    Args:
        device: "cpu" or a CUDA device.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return available_bytes()
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept
