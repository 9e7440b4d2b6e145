"""Ask the processor for one element of a vector before it is needed."""

from workbench.kernels.jit import compiled
from workbench.kernels.prefetch import _prefetch


@compiled
def prefetch(array, index):
    """Hint that `array[index]` will be read."""
    _prefetch(array.ctypes.data + index * array.strides[0])  # pyright: ignore[reportCallIssue]
