"""What the LSTM aggregator holds: `workbench.nn.lstm.last_states`, bucket by bucket of equal in-degree."""

from collections.abc import Sequence
from functools import cache

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.memory.analytic.dense import cast
from workbench.memory.analytic.edges import ShadowBlock, gather_edges
from workbench.memory.analytic.ledger import Storage
from workbench.memory.analytic.tape import Shadow, Tape

_PROBE_ROWS = 256
_NATIVE_KEPT = {"cpu": 7, "cuda": 6}  # four gates, the cell, its tanh (not on CUDA) and the state
_NATIVE_BACK = 9  # temporaries of a step's gradients, each as large as a state


def last_states(tape: Tape, block: ShadowBlock, x: Shadow, lstm: nn.LSTM, weights: Sequence[Shadow | None]) -> Shadow:
    """Sort by in-degree, lay out the messages, run a bucket after the other, put the states back in order."""
    sizes, hold, term = block.sizes, tape.ledger.hold, tape.term
    kept = [hold(sizes.num_dst * 8, term) for _ in range(4)]  # degrees, rows, sizes and counts of the buckets
    order = _edges_of_rows(tape, block)
    messages = gather_edges(tape, block, x, order)
    buckets = [(size, count) for size, count in sizes.buckets if count]
    parts = _split(tape, messages, [size * count for size, count in buckets])
    states = [
        _last_state(tape, part, size, count, lstm, weights) for part, (size, count) in zip(parts, buckets, strict=True)
    ]
    joined = _cat(tape, states, sizes.num_dst, lstm.hidden_size, x.itemsize)
    ranks = [hold(sizes.num_dst * 8, term) for _ in range(2)]
    out = _permuted(tape, joined)
    del kept, ranks
    return out


def _edges_of_rows(tape: Tape, block: ShadowBlock) -> Storage:
    sizes = block.sizes
    rows = [tape.ledger.hold(sizes.num_dst * 8, tape.term) for _ in range(2)]
    edges = [tape.ledger.hold(sizes.num_edges * 8, tape.term) for _ in range(2)]
    order = tape.ledger.hold(sizes.num_edges * 8, tape.term)
    del rows, edges
    return order


def _split(tape: Tape, messages: Shadow, lengths: Sequence[int]) -> list[Shadow]:
    """Views; their gradients are put side by side when all are there."""
    parts = [messages.view(length, is_view=True).detached() for length in lengths]
    shape = messages.rows, messages.cols, messages.itemsize
    tape.record(parts, [messages], lambda *grads: [tape.new(*shape)])
    return parts


def _cat(tape: Tape, states: Sequence[Shadow], rows: int, cols: int, itemsize: int) -> Shadow:
    out = tape.new(rows, cols, itemsize)
    lengths = [state.rows for state in states]

    def backward(grad: Shadow) -> Sequence[Shadow | None]:
        return [grad.view(length, is_view=True).detached() for length in lengths]

    tape.record([out], states, backward)
    return out


def _permuted(tape: Tape, x: Shadow) -> Shadow:
    out, order = tape.like(x), tape.ledger.hold(x.rows * 8, tape.term)

    tape.record([out], [x], lambda grad: [tape.like(grad)], saves=[order])
    return out


def _last_state(
    tape: Tape, messages: Shadow, steps: int, rows: int, lstm: nn.LSTM, weights: Sequence[Shadow | None]
) -> Shadow:
    width, hidden, itemsize = lstm.input_size, lstm.hidden_size, messages.itemsize
    if steps == 0:
        return tape.new(rows, hidden, itemsize)
    as_is = steps == 1 or rows == 1  # else laid out anew, time first
    inputs = messages if as_is else tape.new(rows * steps, width, itemsize)
    native, step_bytes = tape.kernels.lstm == "native", rows * hidden * itemsize
    saved = (_run_steps if native else _run_library)(tape, inputs, steps, rows, hidden)
    state = tape.new(rows, hidden, itemsize)
    tape.touch(step_bytes)  # the last cell
    shapes = [(rows * steps, width), *((p.rows, p.cols) for p in weights if p is not None)]
    wants = messages.source is not None
    computed = 4 if tape.kernels.lstm == "onednn" else itemsize  # oneDNN gives gradients in float32

    def backward(grad: Shadow) -> Sequence[Shadow | None]:  # what is saved lives as long as this function
        if native:
            tape.touch(_NATIVE_BACK * step_bytes)
            del saved[1:]  # all but the input, which the weights' gradients read
            _back_through_steps(tape, steps, step_bytes)
        made: list[Shadow | None] = [tape.new(*shape, computed) for shape in shapes]
        tape.touch(0 if native else 2 * rows * hidden * computed)  # of the first state and cell
        if not wants:
            made[0] = None
        for position, grad_of in enumerate(made):
            made[position] = None if grad_of is None else cast(tape, grad_of.detached(), itemsize)
        return made

    tape.record([state], [messages, *(p for p in weights if p is not None)], backward)
    return state


def _run_library(tape: Tape, inputs: Shadow, steps: int, rows: int, hidden: int) -> list[Storage]:
    """Input, first states, output, last states, and what the library asks for, are saved."""
    assert inputs.storage is not None
    state, device = rows * hidden * inputs.itemsize, tape.kernels.device
    workspace = workspace_bytes(inputs.cols, hidden, inputs.itemsize, device, steps=steps, rows=rows)
    sizes = [state, state, steps * state, state, state, workspace]
    return [inputs.storage, *(tape.ledger.hold(size, tape.term) for size in sizes)]


def _run_steps(tape: Tape, inputs: Shadow, steps: int, rows: int, hidden: int) -> list[Storage]:
    """Every step saves its gates, cell and state; the input's share of all gates is made beforehand."""
    assert inputs.storage is not None
    state, hold = rows * hidden * inputs.itemsize, tape.ledger.hold
    gates = hold(4 * steps * state, tape.term)
    tape.touch(gates.nbytes)
    saved = [hold(state, tape.term) for _ in range(2)]
    saved += [hold(state * _NATIVE_KEPT[tape.kernels.device], tape.term) for _ in range(steps)]
    output = hold(steps * state, tape.term)
    del gates, output
    return [inputs.storage, *saved]


def _back_through_steps(tape: Tape, steps: int, step_bytes: int) -> None:
    """Every step drops what it saved and leaves the gradients of its gates, which are put side by side at the end."""
    gates = tape.ledger.hold(4 * steps * step_bytes, tape.term)
    tape.touch(gates.nbytes)


def workspace_bytes(width: int, hidden: int, itemsize: int, device: str, *, steps: int, rows: int) -> int:
    """Bytes that oneDNN or cuDNN keeps between the passes of an LSTM: by row, by row and step, and whole pages.

    Args:
        width: channels of the input.
        hidden: channels of the state.
        itemsize: bytes of an element.
        device: "cpu" for oneDNN, "cuda" for cuDNN.
        steps: length of the sequences.
        rows: sequences.
    """
    by_row, by_step, least = _workspace_rate(width, hidden, itemsize, device)
    return max(least, int(rows * (by_row + by_step * steps)) + least // 2)


@cache
def _workspace_rate(width: int, hidden: int, itemsize: int, device: str) -> tuple[float, float, int]:
    """The library is asked, since its layout depends on the machine: bytes a row, bytes a row and step, least bytes."""
    one, two, least = (_probe(width, hidden, itemsize, device, *shape) for shape in ((1, 256), (2, 256), (1, 1)))
    by_step = (two - one) / _PROBE_ROWS
    return (one - least // 2) / _PROBE_ROWS - by_step, by_step, least


def _probe(width: int, hidden: int, itemsize: int, device: str, steps: int, rows: int) -> int:
    """Bytes of the fourth result of the library's operator on a batch of this shape."""
    dtype = torch.bfloat16 if itemsize == 2 else torch.float32
    with torch.random.fork_rng(devices=[]):
        lstm = nn.LSTM(width, hidden, device=device, dtype=dtype)
    with _Results() as results:
        lstm(torch.zeros(steps, rows, width, device=device, dtype=dtype))
    return results.bytes_of[3]


class _Results(TorchDispatchMode):
    """Takes down the sizes of what the recurrent operator returns."""

    bytes_of: list[int]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[override]
        results = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.mkldnn_rnn_layer.default, torch.ops.aten._cudnn_rnn.default):
            self.bytes_of = [t.untyped_storage().nbytes() for t in results]
        return results
