"""The LSTM aggregator on fake tensors: `workbench.nn.sage.last_states`, one bucket of equal in-degree at a time."""

from collections.abc import Sequence
from functools import cache

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.memory.analytic.aggregation import gather_edges
from workbench.memory.analytic.dense import cast
from workbench.memory.analytic.fake_autograd import FakeAutograd, FakeTensor
from workbench.memory.analytic.fake_block import FakeBlock
from workbench.memory.analytic.simulated_allocator import Storage

_PROBE_ROWS = 256
_NATIVE_SAVED = {"cpu": 7, "cuda": 6}  # per time step: four gates, the cell, its tanh (not on CUDA) and the state
_NATIVE_BACKWARD_TEMPORARIES = 9  # per time step, each the size of a state


def last_states(
    autograd: FakeAutograd, block: FakeBlock, x: FakeTensor, lstm: nn.LSTM, weights: Sequence[FakeTensor | None]
) -> FakeTensor:
    """Sort by in-degree, gather the messages, run the LSTM on each bucket, restore the order of the states."""
    sizes, allocate, term = block.sizes, autograd.allocator.allocate, autograd.term
    sorting = [allocate(sizes.num_dst * 8, term) for _ in range(4)]  # degrees, rows, sizes and counts of the buckets
    order = _edges_of_rows(autograd, block)
    messages = gather_edges(autograd, block, x, order)
    buckets = [(size, count) for size, count in sizes.buckets if count]
    parts = _split(autograd, messages, [size * count for size, count in buckets])
    states = [
        _last_state_of_bucket(autograd, part, size, count, lstm, weights)
        for part, (size, count) in zip(parts, buckets, strict=True)
    ]
    joined = _cat(autograd, states, sizes.num_dst, lstm.hidden_size, x.itemsize)
    ranks = [allocate(sizes.num_dst * 8, term) for _ in range(2)]
    out = _permuted(autograd, joined)
    del sorting, ranks
    return out


def _edges_of_rows(autograd: FakeAutograd, block: FakeBlock) -> Storage:
    sizes = block.sizes
    rows = [autograd.allocator.allocate(sizes.num_dst * 8, autograd.term) for _ in range(2)]
    edges = [autograd.allocator.allocate(sizes.num_edges * 8, autograd.term) for _ in range(2)]
    order = autograd.allocator.allocate(sizes.num_edges * 8, autograd.term)
    del rows, edges
    return order


def _split(autograd: FakeAutograd, messages: FakeTensor, lengths: Sequence[int]) -> list[FakeTensor]:
    """Split into views; the backward pass concatenates their gradients once all have arrived."""
    parts = [messages.view(length, is_view=True).detach() for length in lengths]
    shape = messages.rows, messages.cols, messages.itemsize
    autograd.record(parts, [messages], lambda *grads: [autograd.empty(*shape)])
    return parts


def _cat(autograd: FakeAutograd, states: Sequence[FakeTensor], rows: int, cols: int, itemsize: int) -> FakeTensor:
    out = autograd.empty(rows, cols, itemsize)
    lengths = [state.rows for state in states]

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        return [grad.view(length, is_view=True).detach() for length in lengths]

    autograd.record([out], states, backward)
    return out


def _permuted(autograd: FakeAutograd, x: FakeTensor) -> FakeTensor:
    out, order = autograd.empty_like(x), autograd.allocator.allocate(x.rows * 8, autograd.term)

    autograd.record([out], [x], lambda grad: [autograd.empty_like(grad)], saves=[order])
    return out


def _last_state_of_bucket(
    autograd: FakeAutograd,
    messages: FakeTensor,
    steps: int,
    rows: int,
    lstm: nn.LSTM,
    weights: Sequence[FakeTensor | None],
) -> FakeTensor:
    width, hidden, itemsize = lstm.input_size, lstm.hidden_size, messages.itemsize
    if steps == 0:
        return autograd.empty(rows, hidden, itemsize)
    is_time_major = steps == 1 or rows == 1  # otherwise transposed, time first
    inputs = messages if is_time_major else autograd.empty(rows * steps, width, itemsize)
    native, step_bytes = autograd.backend.lstm == "native", rows * hidden * itemsize
    saved = (_run_steps if native else _run_fused)(autograd, inputs, steps, rows, hidden)
    state = autograd.empty(rows, hidden, itemsize)
    autograd.allocate_temporary(step_bytes)  # the last cell state
    shapes = [(rows * steps, width), *((p.rows, p.cols) for p in weights if p is not None)]
    needs_grad = messages.requires_grad
    grad_itemsize = 4 if autograd.backend.lstm == "onednn" else itemsize  # oneDNN returns gradients in float32

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:  # this closure keeps `saved` alive
        if native:
            autograd.allocate_temporary(_NATIVE_BACKWARD_TEMPORARIES * step_bytes)
            del saved[1:]  # all but the input, which the weights' gradients need
            _backward_through_time(autograd, steps, step_bytes)
        grads: list[FakeTensor | None] = [autograd.empty(*shape, grad_itemsize) for shape in shapes]
        autograd.allocate_temporary(0 if native else 2 * rows * hidden * grad_itemsize)  # of the first state and cell
        if not needs_grad:
            grads[0] = None
        for position, grad_of_input in enumerate(grads):
            grads[position] = None if grad_of_input is None else cast(autograd, grad_of_input.detach(), itemsize)
        return grads

    autograd.record([state], [messages, *(p for p in weights if p is not None)], backward)
    return state


def _run_fused(autograd: FakeAutograd, inputs: FakeTensor, steps: int, rows: int, hidden: int) -> list[Storage]:
    """oneDNN's or cuDNN's LSTM saves input, initial states, output, final states and its workspace."""
    assert inputs.storage is not None
    state, device = rows * hidden * inputs.itemsize, autograd.backend.device
    workspace = workspace_bytes(inputs.cols, hidden, inputs.itemsize, device, steps=steps, rows=rows)
    sizes = [state, state, steps * state, state, state, workspace]
    return [inputs.storage, *(autograd.allocator.allocate(size, autograd.term) for size in sizes)]


def _run_steps(autograd: FakeAutograd, inputs: FakeTensor, steps: int, rows: int, hidden: int) -> list[Storage]:
    """Torch's own LSTM saves gates, cell and state per time step; the input projection of all steps comes first."""
    assert inputs.storage is not None
    state, allocate = rows * hidden * inputs.itemsize, autograd.allocator.allocate
    gates = allocate(4 * steps * state, autograd.term)
    autograd.allocate_temporary(gates.nbytes)
    saved = [allocate(state, autograd.term) for _ in range(2)]
    saved += [allocate(state * _NATIVE_SAVED[autograd.backend.device], autograd.term) for _ in range(steps)]
    output = allocate(steps * state, autograd.term)
    del gates, output
    return [inputs.storage, *saved]


def _backward_through_time(autograd: FakeAutograd, steps: int, step_bytes: int) -> None:
    """Each time step frees what it saved and leaves the gradients of its gates, which are concatenated at the end."""
    gates = autograd.allocator.allocate(4 * steps * step_bytes, autograd.term)
    autograd.allocate_temporary(gates.nbytes)


def workspace_bytes(width: int, hidden: int, itemsize: int, device: str, *, steps: int, rows: int) -> int:
    """Workspace that oneDNN or cuDNN keeps from an LSTM's forward pass to its backward pass, in bytes.

    The size is linear in `rows` and in `rows * steps`, plus page rounding; the rates are measured on small probes.

    Args:
        width: channels of the input.
        hidden: channels of the state.
        itemsize: bytes per element.
        device: "cpu" for oneDNN, "cuda" for cuDNN.
        steps: length of the sequences.
        rows: number of sequences.
    """
    per_row, per_step, minimum = _workspace_rates(width, hidden, itemsize, device)
    return max(minimum, int(rows * (per_row + per_step * steps)) + minimum // 2)


@cache
def _workspace_rates(width: int, hidden: int, itemsize: int, device: str) -> tuple[float, float, int]:
    """Bytes per row, bytes per row and time step, minimum bytes; probed, since the layout depends on the machine."""
    shapes = ((1, _PROBE_ROWS), (2, _PROBE_ROWS), (1, 1))
    one, two, minimum = (_probe(width, hidden, itemsize, device, *shape) for shape in shapes)
    per_step = (two - one) / _PROBE_ROWS
    return (one - minimum // 2) / _PROBE_ROWS - per_step, per_step, minimum


def _probe(width: int, hidden: int, itemsize: int, device: str, steps: int, rows: int) -> int:
    """Bytes of the workspace, the fourth output of the library's operator, for a batch of this shape."""
    dtype = torch.bfloat16 if itemsize == 2 else torch.float32
    with torch.random.fork_rng(devices=[]):
        lstm = nn.LSTM(width, hidden, device=device, dtype=dtype)
    with _OutputSizes() as outputs:
        lstm(torch.zeros(steps, rows, width, device=device, dtype=dtype))
    return outputs.nbytes[3]


class _OutputSizes(TorchDispatchMode):
    """Records the storage sizes of the outputs of the recurrent operator."""

    nbytes: list[int]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[override]
        outputs = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.mkldnn_rnn_layer.default, torch.ops.aten._cudnn_rnn.default):
            self.nbytes = [t.untyped_storage().nbytes() for t in outputs]
        return outputs
