"""Small batches for trying a model: rows, ids and edge data of a batch, wired so that every part lacks rows.

A layer that counts degrees, or looks further than its batch has layers, computes the same in a part as in the whole if
the part has all rows of the whole, or shares no node with other parts. So nodes are arranged in a ring, a row reads
sources near its own position, and the parts of the seeds are arcs: a part reads nodes at its ends whose rows belong to
other parts, and never comes around to the rows on the far side. Sources alone are new: ids, edge ids, weights, types
and features are those of rows of the batch, so that a model finds everything that it looks up.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import gcd
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from workbench.core.block import Block
from workbench.core.errors import complete_despite_interrupt
from workbench.core.minibatch import MiniBatch
from workbench.core.split import first_rows
from workbench.interop.dgl import with_carried_dtype
from workbench.interop.pyg import has_one_sample_per_node
from workbench.nn.losses import Inputs
from workbench.nn.signature import Forward, model_device
from workbench.training.oom import leaves_of, random_state, restore_random_state

NUM_PARTS = 3

_MAX_DEGREE = 64

_REACH = 2  # positions by which a row of any wiring reads ahead or back


@dataclass(frozen=True)
class Wiring:
    """Which sources the rows of a small batch have.

    Args:
        offsets: positions of the sources, relative to that of the row, in the order in which they are read. "new" is a
            node that later layers do not have; "common" is one that rows of all parts read, if no layer has its row.
        degrees: degrees of the rows, cyclically by position; None for those of rows of the batch, whose sources repeat.
        stride: positions between seeds that follow each other; it must have no divisor in common with the seeds.
        is_closed: rows read no position outside of their part.
        largest: degree of the rows in the middle of the first part alone, where no other part reads in the directions
            of the first wiring; 0 for those of `degrees`. Layers that pad rows to the largest degree see another one.
    """

    offsets: tuple[int | str, ...]
    degrees: tuple[int, ...] | None
    stride: int = 1
    is_closed: bool = False
    largest: int = 0


WIRINGS = (
    Wiring((1, "new", -1, 0), (3, 2, 4, 3), largest=6),
    Wiring((2, "new", -1, 1, -2), (2, 5, 3, 4), stride=2),
)
"""Both can fail: parts lack rows on both sides, of all degrees, with self loops and without."""

OF_ITS_DEGREES = Wiring((1, "new", -1), None)
"""For models that accept the degrees of their batch alone, such as a fixed number of neighbours."""

APART = Wiring((1, "new", -1, 0), (3, 2, 4, 3), is_closed=True)
"""Parts that share no node."""

COMMON_LEAVES = Wiring((1, "new", "common", -1, 0), (4, 3, 5, 3), is_closed=True)
"""Parts that share nodes, but have the rows of all nodes that they read."""


class SmallBatch(NamedTuple):
    """A small batch.

    Args:
        mb: the batch.
        rows: int64 [num_inputs], local id in the large batch of every node.
        part: int64 [num_seeds], part of every seed.
    """

    mb: MiniBatch
    rows: Tensor
    part: Tensor


class Overlap(NamedTuple):
    """What the parts of a batch have in common.

    Args:
        shares: parts read the same node.
        lacks: in every layer, every part reads a node whose row, which has edges, another part has and it lacks.
        lacks_any: some part does in some layer.
    """

    shares: bool
    lacks: bool
    lacks_any: bool


def small_batch(mb: MiniBatch, dtype: torch.dtype | None = None, wiring: Wiring = WIRINGS[0]) -> SmallBatch | None:
    """Build a batch of a few dozen nodes, in which every node has one sample for all layers if that is so in `mb`.

    It has 12 seeds or 6 per layer and 3, and half as many new nodes per layer; nodes of `mb` are repeated if it has
    fewer. Edge weights and carried floating-point data get `dtype`, if it is not None. None if `mb` has fewer than 4
    nodes.
    """
    if mb.num_inputs < 4:
        return None
    layout = _Layout(len(mb.blocks), wiring, mb.device)
    blocks: list[Block] = []
    positions: tuple[Tensor, ...] = ()
    if mb.blocks and has_one_sample_per_node(mb.blocks):
        whole, position = _block(mb, layout, 0, [*range(len(mb.blocks))], dtype)
        blocks = [first_rows(whole, num_src, num_dst) for num_src, num_dst in pairwise(layout.sizes)]
        positions = tuple(position[: block.num_edges] for block in blocks)
    elif mb.blocks:
        made = [_block(mb, layout, layer, [layer], dtype) for layer in range(len(mb.blocks))]
        blocks, positions = [block for block, _ in made], tuple(position for _, position in made)
    rows = torch.arange(layout.sizes[0], device=mb.device) % mb.num_inputs
    carried = mb.carried and mb.carried.take(rows, lambda: positions)
    small = MiniBatch(mb.node_ids[rows], tuple(blocks), step=mb.step, carried=carried)
    return SmallBatch(with_carried_dtype(small, dtype), rows, layout.parts)


def overlap(parts: list[MiniBatch]) -> Overlap:
    """Find out what the parts of a batch, at least one, have in common."""
    parents = [part.parent for part in parts]
    lists = [t for t in parents if t is not None]
    lists = lists if len(lists) == len(parts) else [part.node_ids for part in parts]
    ids, local = torch.cat(lists).unique(return_inverse=True)
    nodes = local.split([part.num_inputs for part in parts])
    shares, lacking = False, []
    for blocks in zip(*(part.blocks for part in parts), strict=True):
        readers, has_row = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for block, mine in zip(blocks, nodes, strict=True):
            readers[mine[: block.num_src]] += 1
            has_row[mine[: block.num_dst][block.in_degrees() > 0]] = True
        for block, mine in zip(blocks, nodes, strict=True):
            missing = has_row.clone()
            missing[mine[: block.num_dst]] = False
            lacking.append(bool(missing[mine[: block.num_src]].any()))
        shares |= bool((readers > 1).any())
    return Overlap(shares, all(lacking), any(lacking))


class _Layout:
    """Positions of the nodes on the ring, and the part of each.

    Args:
        num_layers: number of blocks.
        wiring: the sources.
        device: device of the batch.
    """

    def __init__(self, num_layers: int, wiring: Wiring, device: torch.device) -> None:
        arc = max(4, _REACH * num_layers + 1)  # an arc and what it reaches in all layers is never the ring
        seeds, self.new = NUM_PARTS * arc, NUM_PARTS * (arc // 2)
        self.sizes = [seeds + self.new * layer for layer in range(num_layers, -1, -1)]
        self.arc, self.seeds, self.wiring = arc, seeds, wiring
        seed = torch.arange(seeds, device=device)
        stride = wiring.stride if gcd(seeds, wiring.stride) == 1 else seeds - 1
        of_seed = seed * stride % seeds
        self.seed_at = torch.empty_like(seed).scatter_(0, of_seed, seed)
        of_new = -(-torch.arange(self.new, device=device) * seeds // max(1, self.new))  # rounded up, so that it reads
        # the new node of its own position in the next layer, and no node is out of reach
        self.position = torch.cat([of_seed, *[of_new] * num_layers])
        self.parts = of_seed // arc

    def source(self, position: Tensor, choice: Tensor, first_new: Tensor) -> Tensor:
        """Local ids of sources.

        Args:
            position: int64 [num_edges], that of the row.
            choice: int64 [num_edges], the entry of the wiring's `offsets`.
            first_new: int64 [num_edges], the first new node that the row may read.
        """
        offsets, device = self.wiring.offsets, position.device
        relative = torch.tensor([o if isinstance(o, int) else 0 for o in offsets], device=device)[choice]
        at = (position + relative) % self.seeds
        if self.wiring.is_closed:
            start = position // self.arc * self.arc
            at = start + (position - start + relative) % self.arc
        new = position * self.new // self.seeds
        is_common = torch.tensor([o == "common" for o in offsets], device=device)[choice] & (first_new == self.sizes[1])
        new = torch.where(is_common, new % (self.new // NUM_PARTS), new)
        is_new = torch.tensor([isinstance(o, str) for o in offsets], device=device)[choice]
        return torch.where(is_new, first_new + new, self.seed_at[at])


def _block(
    mb: MiniBatch, layout: _Layout, layer: int, layers: list[int], dtype: torch.dtype | None
) -> tuple[Block, Tensor]:
    """Build a block whose rows have the attributes of rows of `mb`, and return the positions of its edges there.

    Args:
        layers: the layers that share the block's rows: a row has the attributes and the sources of the last of them
            that has it.
    """
    sizes, wiring, device = layout.sizes, layout.wiring, mb.device
    first = [0, *(sizes[other + 1] for other in layers[::-1])]
    per_group = [
        _row_edges(mb.blocks[other], torch.arange(start, stop, device=device), layout, wiring)
        for other, (start, stop) in zip(layers[::-1], pairwise(first), strict=True)
    ]
    degrees = torch.cat([group[0] for group in per_group])
    position = torch.cat([group[1] for group in per_group])
    indptr = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    row = torch.repeat_interleave(torch.arange(len(degrees), device=device), degrees)
    choice = (torch.arange(len(row), device=device) - indptr[row]) % len(wiring.offsets)
    first_new = torch.empty_like(degrees)
    for other in layers:  # input layer first, so that rows of later layers are overwritten
        first_new[: sizes[other + 1]] = sizes[other + 1]
    sources = layout.source(layout.position[row], choice, first_new[row])
    of = mb.blocks[layer]
    weight = None if of.edge_weight is None else of.edge_weight.detach()[position]
    block = Block(
        indptr,
        sources.to(of.indices.dtype),
        sizes[layer],
        sizes[layer + 1],
        edge_ids=None if of.edge_ids is None else of.edge_ids[position],
        edge_weight=None if weight is None else weight.to(dtype or weight.dtype),
        edge_type=None if of.edge_type is None else of.edge_type[position],
    )
    return block, position


def _row_edges(block: Block, row: Tensor, layout: _Layout, wiring: Wiring) -> tuple[Tensor, Tensor]:
    """Degrees of rows, and for each edge the position in a large block of the one whose attributes it has."""
    actual = block.in_degrees()
    if wiring.degrees is None:
        of = row % max(1, block.num_dst)
        degrees = actual[of].clamp(max=_MAX_DEGREE) if block.num_dst else torch.zeros_like(row)
    else:
        with_edges = actual.nonzero()[:, 0]
        of = with_edges[row % len(with_edges)] if len(with_edges) else torch.zeros_like(row)
        pattern = torch.tensor(wiring.degrees, device=row.device)
        degrees = pattern[layout.position[row] % len(pattern)]
        if wiring.largest:
            degrees[layout.position[row] == layout.arc // 2] = wiring.largest
        degrees *= bool(len(with_edges))
    start = degrees.cumsum(0) - degrees
    edge_row = torch.repeat_interleave(torch.arange(len(row), device=row.device), degrees)
    offset = torch.arange(len(edge_row), device=row.device) - start[edge_row]
    return degrees, block.indptr[of[edge_row]] + offset % actual[of[edge_row]].clamp(min=1)


MODES = ("given", "stateful", "eval")
"""Modules that keep their mode: all but dropout, which a module may also apply by itself; those with buffers (such as
running statistics) and recurrent ones, which cuDNN differentiates in training mode only; none."""


@contextmanager
def borrowed_model(model: nn.Module, dtype: torch.dtype | None, *, modes: str = "stateful") -> Iterator[list[Tensor]]:
    """Give a model other parameters and buffers, of the same values, for the duration of a `with` block.

    Calls inside the block, also those by a function that has kept the model, compute with these. Afterwards the model's
    attributes are those from before: parameters, gradients, buffers, modes, hooks and values that layers cache. So is
    torch's random state, of the CPU and of the model's device.

    Args:
        dtype: dtype of floating parameters and buffers; None for their own, which shares the parameters' memory.
        modes: a name of `MODES`, which modules keep their mode; all others run in eval mode, which turns dropout off.

    Yields:
        The parameters in use that require a gradient; gradients are accumulated in these alone.
    """
    modules = list(model.modules())
    before = [(module, dict(module.__dict__)) for module in modules]
    device = model_device(model)
    random = random_state(device)

    def put_back() -> None:
        for module, attributes in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)
        restore_random_state(random, device)

    try:
        parameters: dict[nn.Parameter, nn.Parameter] = {}
        for module in modules:
            _lend(module, dtype, modes, parameters)
        yield [parameter for parameter in parameters.values() if parameter.requires_grad]
    finally:
        complete_despite_interrupt(put_back)


def _lend(
    module: nn.Module, dtype: torch.dtype | None, modes: str, parameters: dict[nn.Parameter, nn.Parameter]
) -> None:
    """Replace a module's parameters, buffers, hooks and mode; parameters shared between modules stay shared."""
    given = module.__dict__
    for parameter in module._parameters.values():
        if parameter is not None and parameter not in parameters:
            value = _converted(parameter.detach(), dtype)
            parameters[parameter] = nn.Parameter(value, requires_grad=parameter.requires_grad)
    buffers = {
        name: None if buffer is None else _converted(buffer.detach(), dtype).clone()
        for name, buffer in module._buffers.items()
    }
    recurrent = isinstance(module, nn.RNNBase)
    given["_parameters"] = {name: None if p is None else parameters[p] for name, p in module._parameters.items()}
    given["_buffers"] = buffers
    given["_forward_hooks"] = module._forward_hooks.copy()
    stateful = recurrent or any(buffer is not None for buffer in buffers.values())
    is_kept = stateful if modes == "stateful" else not isinstance(module, nn.modules.dropout._DropoutNd)
    given["training"] = module.training and modes != "eval" and is_kept
    if recurrent:
        given["dropout"] = 0.0


def _converted(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor if dtype is None or not tensor.is_floating_point() else tensor.to(dtype)


class UndecidedError(Exception):
    """A trial can't tell whether the model is exact; the message states why."""


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a module.

    Args:
        module: the module.
        arguments: floating [num_seeds, …], the seeds' rows of all arguments with a row per node of some layer.
        results: the same of its results.
    """

    module: nn.Module
    arguments: list[Tensor]
    results: list[Tensor]


@dataclass(frozen=True, eq=False)
class Pass:
    """Forward and backward pass of a batch.

    Args:
        batch: the batch, or a part of it.
        outputs: floating [num_seeds, …], the tensors that the model returned.
        calls: the calls of its modules, in the order in which they returned.
    """

    batch: MiniBatch
    outputs: list[Tensor]
    calls: list[Call]


@dataclass(frozen=True, eq=False)
class Trial:
    """The whole batch and its parts, each after one forward and backward pass.

    Args:
        whole: the batch.
        parts: its parts.
        deviation: by how much outputs or gradients of the parts differ from the whole batch's, relative to the largest
            value of these outputs, and to the norm of these gradients.
        can_fail: in every layer, parts share nodes, and each reads nodes whose rows others have and it lacks.
    """

    whole: Pass
    parts: list[Pass]
    deviation: float
    can_fail: bool


def try_model(model: nn.Module, parameters: list[Tensor], small: SmallBatch, inputs: Inputs, forward: Forward) -> Trial:
    """Run a batch as a whole and in parts; `parameters` accumulate gradients, `.grad` of all other leaves is put back.

    Raises:
        UndecidedError: The model returned no finite tensor with a row per seed, or nothing but zeros.
    """
    batch = small.mb
    rows = tree_map(_as_leaf, (inputs.x, inputs.aggregated))
    leaves = [*parameters, *(t for t in tree_leaves(rows) if isinstance(t, Tensor) and t.requires_grad)]
    whole = _run(model, batch, Inputs(*rows), forward, leaves, None)
    expected = _taken_gradients(leaves)
    if not all(bool(t.isfinite().all()) for t in (*whole.outputs, *expected)):
        raise UndecidedError("its outputs or gradients on the small batch are not finite")
    if not any(bool(t.any()) for t in (*whole.outputs, *expected)):
        raise UndecidedError("its outputs and gradients on the small batch are all 0")
    parts = []
    for part in batch.split(small.part):
        of_part = Inputs(*tree_map(partial(_rows_of_part, part, batch.num_inputs), rows))
        parts.append(_run(model, part, of_part, forward, leaves, part.parent))
    deviations = [_relative(_norm(expected, _taken_gradients(leaves)), _norm(expected))]
    for position, out in enumerate(whole.outputs):
        pieces = [(out[seed_positions(part.batch)] - part.outputs[position]).abs().max() for part in parts]
        deviations.append(_relative(float(torch.stack(pieces).max()), float(out.abs().max())))
    common = overlap([part.batch for part in parts])
    return Trial(whole, parts, max(deviations), not batch.blocks or (common.shares and common.lacks))


def _run(
    model: nn.Module, mb: MiniBatch, inputs: Inputs, forward: Forward, leaves: list[Tensor], parent: Tensor | None
) -> Pass:
    calls: list[Call] = []
    with torch.enable_grad():
        with _recorded(model, mb, calls):
            result = forward(mb, inputs)
        outputs = [t[: mb.num_seeds] for t in tree_leaves(result) if _has_rows(t, mb.num_seeds)]
        if not outputs:
            raise UndecidedError("it returns no floating-point tensor with a row per seed")
        seeds = torch.arange(mb.num_seeds, device=mb.device) if parent is None else parent[: mb.num_seeds]
        loss = sum(((t * _coefficients(t, seeds)).sum() for t in outputs), start=torch.zeros((), device=mb.device))
        if loss.requires_grad:
            _backward(loss, leaves)
    return Pass(mb, [t.detach() for t in outputs], calls)


def _backward(loss: Tensor, leaves: list[Tensor]) -> None:
    """Accumulate gradients in `leaves`; those of other leaves, such as a module outside of the model, are put back."""
    own = {id(leaf) for leaf in leaves}
    others = [(leaf, leaf.grad) for leaf in leaves_of(loss) if id(leaf) not in own]
    try:
        for leaf, _ in others:
            leaf.grad = None
        loss.backward()
    finally:
        for leaf, grad in others:
            leaf.grad = grad


def _as_leaf(rows: Any) -> Any:
    """Detach rows, so that a backward pass ends there."""
    return rows.detach().requires_grad_(rows.is_floating_point()) if isinstance(rows, Tensor) else rows


def _rows_of_part(part: MiniBatch, total: int, rows: Any) -> Any:
    return rows[part.parent] if isinstance(rows, Tensor) and rows.shape[:1] == (total,) else rows


def _taken_gradients(leaves: list[Tensor]) -> list[Tensor]:
    """Return all gradients, zeros for leaves without one, and remove them."""
    found = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.to_dense() for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    return found


def _coefficients(out: Tensor, seeds: Tensor) -> Tensor:
    """Coefficients of a random-looking linear loss, which depend on the seed and the channel."""
    channels = torch.arange(out[0].numel(), device=out.device).view(out.shape[1:])
    return torch.cos(7.0 * seeds.view(-1, *[1] * (out.dim() - 1)) + 3.0 * channels + 1).to(out.dtype)


def _norm(tensors: list[Tensor], subtracted: list[Tensor] | None = None) -> float:
    """Euclidean norm of all values, or of the differences."""
    if subtracted is not None:
        tensors = [a - b for a, b in zip(tensors, subtracted, strict=True)]
    return float(sum((t.double().square().sum().cpu() for t in tensors), start=torch.zeros(())).sqrt())


def _relative(difference: float, scale: float) -> float:
    """The quotient; infinite if anything differs from values that are all 0 or is not a number."""
    if difference == 0:
        return 0.0
    return difference / scale if scale and difference == difference else float("inf")


def seed_positions(part: MiniBatch) -> Tensor:
    """Position of a part's seeds in the batch."""
    assert part.parent is not None
    return part.parent[: part.num_seeds]


def _has_rows(value: Any, count: int) -> bool:
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.dim() == 0 or not value.numel():
        return False
    return value.shape[0] >= count > 0 and value.untyped_storage().nbytes() > 0  # reversible layers free their input


@contextmanager
def _recorded(model: nn.Module, mb: MiniBatch, calls: list[Call]) -> Iterator[None]:
    """Record what every module of the model reads and returns for the seeds."""
    sizes = {mb.num_inputs, *(block.num_dst for block in mb.blocks)}

    def of_seeds(values: Any) -> list[Tensor]:
        found = (t for t in tree_leaves(values) if _has_rows(t, mb.num_seeds) and len(t) in sizes)
        return [t[: mb.num_seeds].detach().clone() for t in found]

    def hook(module: nn.Module, arguments: Any, result: Any) -> None:
        calls.append(Call(module, of_seeds(arguments), of_seeds(result)))

    handles = [module.register_forward_hook(hook) for module in model.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


_PARTS_OF_BATCH = 4

INEXACT = {torch.float64: 1e-8, torch.float32: 1e-3, torch.bfloat16: 0.2, torch.float16: 0.1}
"""A deviation that it does not explain."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What is tried: a model, a batch, its rows, the call, and the parts that the batch was split into, if it was."""

    model: nn.Module
    mb: MiniBatch
    rows: Inputs
    forward: Forward
    parts: list[MiniBatch] | None

    def overlap(self) -> Overlap:
        """What the parts of the large batch have in common."""
        mb = self.mb
        return overlap(self.parts or mb.split(torch.arange(mb.num_seeds, device=mb.device) % _PARTS_OF_BATCH))


Features = Literal["given", "moved", "random"]
"""Those of the batch, the same with noise of a thousandth, or random ones, with random values for parameters of 0."""


def trials_of(subject: Subject, dtype: torch.dtype | None) -> Iterator[Trial]:
    """Try a model on each wiring that it runs on, at least one.

    A deviation counts if it is there between distinct features, too: of neighbours with equal ones, rounding chooses
    which gets the gradient of a maximum.

    Raises:
        Exception: The one of the first wiring, if it runs on none.
    """
    errors: list[Exception] = []
    for number, wiring in enumerate((*WIRINGS, OF_ITS_DEGREES)):
        if wiring is OF_ITS_DEGREES and len(errors) < number:
            return
        try:
            trial = try_wiring(subject, dtype, wiring, "random" if number == 1 else "given")
            if number != 1 and not trial.deviation <= INEXACT[used_dtype(subject.model, dtype)]:
                trial = try_wiring(subject, dtype, wiring, "moved")
        except Exception as error:
            errors.append(error)
        else:
            yield trial
    if len(errors) > len(WIRINGS):
        raise errors[0]


def used_dtype(model: nn.Module, dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of a trial; None: the model's."""
    return dtype or next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def try_wiring(subject: Subject, dtype: torch.dtype | None, wiring: Wiring, features: Features = "given") -> Trial:
    """Try a model on one small batch in `dtype`, or its own.

    Raises:
        UndecidedError: The parts differ from the whole, but the model draws random numbers.
    """
    model, mb = subject.model, subject.mb
    small, device = small_batch(mb, dtype, wiring), model_device(model) or mb.device
    assert small is not None
    given = (subject.rows.x, subject.rows.aggregated)
    rows = Inputs(*(_taken_rows(t, mb, small, device, dtype, features) for t in given))
    small = SmallBatch(small.mb.to(device), small.rows.to(device), small.part.to(device))
    with warnings.catch_warnings(action="ignore"), _uncompiled():
        before, trial, is_random = random_state(device), None, True
        for modes in MODES:  # the first in which nothing is random, so that runs can be compared
            with borrowed_model(model, dtype, modes=modes) as parameters:
                if features == "random" and dtype is not None:
                    _replace_zeros(parameters)
                trial = try_model(model, parameters, small, rows, subject.forward)
                is_random = not all(map(torch.equal, before, random_state(device)))
            if not is_random:
                break
    assert trial is not None
    if is_random and not trial.deviation <= INEXACT[used_dtype(model, dtype)]:
        raise UndecidedError("the model draws random numbers in eval mode too")
    return trial


def _replace_zeros(parameters: list[Tensor]) -> None:
    """Replace values that are 0, such as those of a gate before training, which hide what they multiply."""
    generator = torch.Generator().manual_seed(1)
    for parameter in parameters:
        noise = 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = torch.where(parameter.data == 0, noise.to(parameter), parameter.data)


def _taken_rows(
    rows: Any, mb: MiniBatch, small: SmallBatch, device: torch.device, dtype: torch.dtype | None, features: Features
) -> Any:
    """The small batch's rows of all tensors with a row per input, on the model's device; other tensors are kept."""
    total, count = mb.num_inputs, small.mb.num_inputs
    generator = torch.Generator().manual_seed(2)

    def taken(value: Any) -> Any:
        if isinstance(value, Tensor):
            has_rows = value.shape[:1] in ((total,), (count,))
            value = value[small.rows.to(value.device)] if value.shape[:1] == (total,) else value
            value = value.detach().to(device, dtype if value.is_floating_point() else None)
            if features == "given" or not has_rows or not value.is_floating_point():
                return value
            noise, size = torch.randn(value.shape, generator=generator).to(value), value.square().mean().sqrt()
            return noise if features == "random" else value + 1e-3 * torch.where(size > 0, size, 1) * noise
        if value is None or isinstance(value, (int, float, str)):
            return value
        raise UndecidedError(f"its inputs contain a {type(value).__name__}, of which rows can't be taken")

    if isinstance(rows, Tensor) and rows.shape[:1] not in ((total,), (count,)):
        raise UndecidedError(f"x has shape {tuple(rows.shape)}, but the batch {total} inputs; pass x[batch.node_ids]")
    return tree_map(taken, rows)


def _uncompiled() -> AbstractContextManager[Any]:
    """Run compiled modules eagerly; compiling them for a small batch would take seconds."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
