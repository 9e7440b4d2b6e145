"""Free memory of a device, checked before starting a step that would not fit."""

import torch

from workbench.core.capacity import available_bytes


def free_bytes(device: torch.device | str) -> int:
    """Return the bytes that a step can still allocate on a device.

    On CUDA this is the driver's free memory plus unused memory that torch's allocator has reserved; on the CPU it is
    the available host memory.

    Args:
        device: "cpu" or a CUDA device.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return available_bytes()
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused
