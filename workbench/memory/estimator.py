"""`estimate_memory`: the peak device memory of a training step, estimated before it runs."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import NoneType
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from workbench.core.block import Block
from workbench.core.errors import check_at_least, check_type
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.memory.analytic.layers import NORMS, SAVE_INPUT, SAVE_RESULT, loss_simulation
from workbench.memory.analytic.training_step import LAYERS, input_width, simulate_step
from workbench.memory.estimate import BatchSizes, MemoryEstimate
from workbench.memory.training_setup import (
    OPTIMIZERS,
    Backend,
    Optimizer,
    OptimizerMemory,
    Recovery,
    TrainingSetup,
    runs_under_autocast,
)
from workbench.nn.dropout import HashDropout
from workbench.nn.gnn import GNN
from workbench.nn.reuse.layers import ReusingDropout, ReusingReLU
from workbench.nn.sage import SAGELayer
from workbench.nn.signature import Forward
from workbench.nn.static_aggregate import check_aggregates_on_read
from workbench.partition.balance import ByteCosts


class Estimator(Protocol):
    """Estimates the memory of micro-batches of one model."""

    def __call__(self, mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate: ...


def estimate_memory(
    model: nn.Module,
    mb: MiniBatch,
    *,
    optimizer: Optimizer = "adam",
    backend: Backend | str | None = None,
    accumulating: bool = False,
    recover: bool = False,
    in_dim: int | None = None,
    loss_fn: Callable[..., Tensor] = cross_entropy,
    forward: Forward | None = None,
    aggregate_on_read: bool = False,
) -> MemoryEstimate:
    """Estimate the peak device memory of `workbench.train_step` for one micro-batch, by term and by phase.

    Models of `workbench.build_model` are estimated analytically from the batch's sizes, in about half a millisecond
    (longer for an LSTM, which allocates tensors per in-degree): every allocation and deallocation of the kernels and of
    torch's autograd is simulated. Any other module is traced on small sub-batches of `mb`, the sizes of its tensors are
    regressed on the sizes of the sub-batches, and the estimate states its error on sub-batches held out from the fit.
    So is any other model while autocast is enabled for its device: call this in the same context as the training step.

    Args:
        model: the module as `train_step` calls it, in its current mode (train or eval); features have its dtype.
        mb: the micro-batch, or the whole batch; all of its seeds have labels. One without the block of a first layer
            with a linear aggregate (`workbench.macrobatch.WithoutInputLayer`) reads precomputed aggregates.
        optimizer: "adam", "adamw" or "sgd" with torch's defaults, or an optimizer; its state counts as allocated.
        backend: the kernels to model: a `Backend`, or the device name "cpu" or "cuda"; None for those of the model's
            device. Estimating a CPU model for a GPU is possible.
        accumulating: gradients of earlier micro-batches of the same batch exist: True for all but the first.
        recover: estimate `train_step(recover=…)`, which computes a micro-batch's gradients separately.
        in_dim: channels of the features; None: for a traced module, the columns of `x` of a PyG batch, or the first
            input width of a layer with which a step succeeds.
        loss_fn: torch's `cross_entropy` with integer labels, or `binary_cross_entropy_with_logits` with labels in the
            model's dtype; for traced modules any loss that accepts one of these.
        forward: `forward(mb, inputs)` calls the model, as for `train_step`; what it does around the call is traced.
        aggregate_on_read: estimate a step whose features are `workbench.training.AggregateOnRead(x)`.

    Returns:
        The estimate; its `peak_bytes` is comparable with that of `workbench.profile_epoch`.

    Raises:
        ValueError: The model's number of layers or width does not match the batch or `in_dim`, the optimizer is unknown
            or of another model, the loss is not supported, `backend` is another device than that of a traced module,
            a traced step fails, a part of the model is compiled by `torch.compile`, or autocast is enabled for the
            model's device and a layer is a sage-lstm; or `aggregate_on_read` is not possible for the first layer, or on
            a GPU, or under autocast.
        TypeError: `model`, `mb`, `optimizer` or `backend` is of another type.

    Source: Betty (ASPLOS 2023), section 4.4; the paper's own eight terms are `workbench.memory.betty`.
    """
    recovery = Recovery() if recover else None
    options = {"recover": recovery, "backend": backend, "in_dim": in_dim, "aggregate_on_read": aggregate_on_read}
    setup = TrainingSetup(model, loss_fn, optimizer, forward=forward, **options)
    return estimator_for(setup, mb)(mb, accumulating=accumulating)


def estimator_for(setup: TrainingSetup, mb: MiniBatch) -> Estimator:
    """Build an estimator for many micro-batches of one batch, doing the work that they share once.

    Modules without an analytic model are traced on sub-batches of `mb`. On the CPU its labels, if they are classes,
    count in every micro-batch's estimate. Raises as `estimate_memory`.
    """
    _check(setup, mb)
    model, backend, recover = setup.model, setup.backend, setup.recover is not None
    requested = Backend(backend) if isinstance(backend, str) else backend
    if setup.aggregate_on_read:
        _check_aggregates_on_read(model, requested)
    if setup.forward is not None or not has_analytic_model(model):
        return _traced(setup, mb, requested)
    assert isinstance(model, GNN)
    _check_compatible(model, mb, setup.in_dim, setup.aggregate_on_read)
    if runs_under_autocast(model, requested):
        return _traced(replace(setup, in_dim=input_width(model)), mb, requested)
    simulated, simulate_loss = (
        (requested or Backend.of(model)).with_supported_lstm(model),
        loss_simulation(setup.loss_fn),
    )
    memory = OptimizerMemory.of(setup.optimizer, model, on_cuda=simulated.device == "cuda")
    degrees = any(isinstance(layer, SAGELayer) and layer.aggregator == "lstm" for layer in model.layers)

    def estimate(part: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        sizes, options = BatchSizes.of(part, degrees=degrees), {"accumulating": accumulating, "recover": recover}
        options |= {"aggregate_on_read": setup.aggregate_on_read}
        return simulate_step(model, sizes, memory, simulated, simulate_loss, batch_seeds=mb.num_seeds, **options)

    return estimate


def _check(setup: TrainingSetup, mb: MiniBatch) -> None:
    check_type("model", setup.model, nn.Module, "pass the torch.nn.Module first, then the batch")
    if not isinstance(mb, MiniBatch):
        raise TypeError(f"mb is a {type(mb).__name__}; pass a MiniBatch (MiniBatch.from_dgl makes one of DGL's blocks)")
    refuse_halo(mb.exchanges, "estimated")
    refuse_compiled(setup.model, "its memory can't be estimated")
    check_type("backend", setup.backend, (Backend, str, NoneType), 'pass "cpu", "cuda", a Backend or None')
    if not isinstance(setup.optimizer, str | torch.optim.Optimizer):
        raise TypeError(f"optimizer is {setup.optimizer!r}; pass a name ({', '.join(OPTIMIZERS)}) or an optimizer")
    if setup.in_dim is not None:
        check_at_least("in_dim", setup.in_dim, 1, most=2**31 - 1)


def _check_aggregates_on_read(model: nn.Module, backend: Backend | None) -> None:
    check_aggregates_on_read(model)
    assert isinstance(model, GNN)
    on_cpu = backend is None or backend.device == "cpu"
    if not on_cpu or not has_analytic_model(model) or runs_under_autocast(model, backend):
        raise ValueError(
            "aggregate_on_read is estimated for unmodified models of build_model on the CPU and without autocast; omit "
            "it: the estimate is then an upper bound"
        )


def _traced(setup: TrainingSetup, mb: MiniBatch, backend: Backend | None) -> Estimator:
    from workbench.memory.traced.predictor import candidate_widths

    model = setup.model
    name = type(model).__name__
    if has_analytic_model(model):
        name += " under autocast" if setup.forward is None else " called by forward="
    widths = candidate_widths(model, mb) if setup.in_dim is None else [setup.in_dim]
    if not widths:
        raise ValueError(
            f"a {name} has no analytic memory model and must be traced, and none of its layers states the width of the "
            "features; pass it: in_dim=x.shape[1]"
        )
    device = Backend.of(model).device
    if backend is not None and backend.device != device:
        raise ValueError(
            f"backend is {backend}, but a {name} has no analytic memory model and must be traced on its own device, "
            f"{device}; move the model to {backend.device}, or omit backend"
        )
    return _traced_at_first_width(setup, mb, widths)


def _traced_at_first_width(setup: TrainingSetup, mb: MiniBatch, widths: list[int]) -> Estimator:
    """Trace with features of the first width with which a step succeeds."""
    from workbench.memory.traced.dry_run import StepFailedError
    from workbench.memory.traced.predictor import fit_memory

    errors: list[StepFailedError] = []
    options = {"optimizer": setup.optimizer, "loss_fn": setup.loss_fn, "forward": setup.forward}
    options["recover"] = setup.recover is not None
    for width in widths:
        try:
            return fit_memory(setup.model, mb, in_dim=width, **options)
        except StepFailedError as error:
            errors.append(error)
    if len(widths) > 1:
        errors[0].add_note(f"Widths of features tried: {', '.join(map(str, widths))}; pass in_dim=x.shape[1].")
    raise errors[0]


def _check_compatible(model: GNN, mb: MiniBatch, in_dim: int | None, aggregate_on_read: bool) -> None:
    reads_aggregates = len(mb.blocks) == len(model.layers) - 1 and getattr(model.layers[0], "is_linear", False)
    if len(model.layers) != len(mb.blocks) and not reads_aggregates:
        raise ValueError(
            f"the model has {len(model.layers)} layers, but the batch has {len(mb.blocks)} blocks; sample with one "
            "fanout per layer"
        )
    if reads_aggregates and aggregate_on_read:
        raise ValueError("the batch has no block of the first layer to aggregate on read; omit aggregate_on_read")
    if in_dim not in (None, input_width(model)):
        raise ValueError(f"in_dim is {in_dim}, but the model expects {input_width(model)} channels; omit in_dim")


def has_analytic_model(model: nn.Module) -> bool:
    """Return whether the analytic model supports a model: its layers, their submodules and what is between layers."""
    if type(model) is not GNN:
        return False
    reuses = model.workspace is not None
    if type(model.activation) not in ((ReusingReLU,) if reuses else (*SAVE_RESULT, *SAVE_INPUT)):
        return False
    dropout = ReusingDropout if reuses else HashDropout
    between = all(type(norm) in NORMS for norm in model.norms) and all(type(d) is dropout for d in model.dropouts)
    return between and all(type(layer) in LAYERS and _is_plain(layer) for layer in model.layers)


def _is_plain(layer: nn.Module) -> bool:
    """Return whether a layer has only the submodules that its constructor makes (no subclass or parametrisation)."""
    return all(
        type(child) in (nn.Linear, nn.LSTM, nn.ParameterDict)
        or (name == "mlp" and all(type(part) in (nn.Linear, nn.ReLU, *NORMS) for part in child.children()))
        for name, child in layer.named_children()
    )


_MIN_ADDED_NODES = 256  # allocations are multiples of 512 bytes

_ADDED_FRACTION = 8  # of the inputs: so few more nodes leave the peak in its phase


def byte_costs(setup: TrainingSetup, mb: MiniBatch) -> ByteCosts:
    """Compute by how many bytes each node and edge of each layer raises the estimated peak of a model's training step.

    The costs, for `partition_batch(costs=…)` and `refine_parts(costs=…)`, are those at the phase of the batch's peak,
    forward or backward; `plan_micro_batches` uses them itself. Raises as `estimate_memory`.
    """
    return marginal_costs(estimator_for(setup, mb), mb)


def marginal_costs(estimator: Estimator, mb: MiniBatch) -> ByteCosts:
    """Difference the estimates of a batch and of the same batch with more nodes, or fewer edges, in one layer.

    The costs of an input node are at least one byte.
    """
    phases = estimator(_with_nodes(mb, 0, 0)).phase_bytes
    phase = max(("forward", "backward"), key=lambda name: phases[name])
    count = max(_MIN_ADDED_NODES, mb.num_inputs // _ADDED_FRACTION)
    more_nodes = [_with_nodes(mb, hops + 1, count) for hops in range(len(mb.blocks) + 1)]
    grown = [phases[phase], *(estimator(more).phase_bytes[phase] for more in more_nodes)]
    per_node = [max(0.0, (more - less) / count) for less, more in pairwise(grown)]
    per_edge = [_per_edge(estimator, mb, layer, phase, phases[phase]) for layer in range(len(mb.blocks))]
    return ByteCosts((max(1.0, per_node[0]), *per_node[1:]), tuple(per_edge))


def _with_nodes(mb: MiniBatch, hops: int, count: int) -> MiniBatch:
    """Add nodes without in-edges to the inputs and to the destinations of the first layers, `hops` sets in all."""
    blocks = [
        replace(
            block,
            indptr=torch.cat([block.indptr, block.indptr[-1:].expand(count if layer + 1 < hops else 0)]),
            num_src=block.num_src + (count if layer < hops else 0),
            num_dst=block.num_dst + (count if layer + 1 < hops else 0),
        )
        for layer, block in enumerate(mb.blocks)
    ]
    node_ids = torch.cat([mb.node_ids, mb.node_ids.new_zeros(count if hops else 0)])
    return MiniBatch(node_ids, tuple(blocks), step=mb.step)


def _per_edge(estimator: Estimator, mb: MiniBatch, layer: int, phase: str, whole_bytes: int) -> float:
    """Bytes per edge that disappear if half of a layer's destinations lose their edges."""
    block = mb.blocks[layer]
    kept = int(block.indptr[block.num_dst // 2])
    if kept == block.num_edges:
        return 0.0
    blocks = (*mb.blocks[:layer], _first_edges(block, kept), *mb.blocks[layer + 1 :])
    less = estimator(MiniBatch(mb.node_ids, blocks, step=mb.step)).phase_bytes[phase]
    return max(0.0, (whole_bytes - less) / (block.num_edges - kept))


def _first_edges(block: Block, count: int) -> Block:
    """Drop all edges but the first, in arrays of their own."""
    arrays = {name: t[:count].clone() for name, t in block._tensors().items() if t is not None and name != "indptr"}
    return replace(block, indptr=block.indptr.clamp(max=count), **arrays)


_COMPILED_RATIO = "0.9 to 1.2 times"
"""Peak bytes of a step of `build_model`'s models compiled by inductor, relative to eager.

By the events of the CPU's allocator, torch 2.13: sage-mean 0.90, gat 1.00, gin 1.01, sage-pool 1.20, others 1.00.
"""


def refuse_compiled(model: nn.Module, what: str, remedy: str = "") -> None:
    """Refuse a module of which a part is compiled: estimates and the CPU's meter observe operators one at a time.

    Compiled code fuses them and allocates without calling operators, and the compiler falls back to the original code
    where operators are observed.

    Args:
        what: what would be wrong, such as "memory can't be estimated".
        remedy: another remedy than passing the original module.
    """
    for name, module in model.named_modules():
        if not _is_compiled(module):
            continue
        path = f"{type(model).__name__}.{name}" if name else type(model).__name__
        original = "copy.deepcopy(model)" if getattr(module, "_orig_mod", None) is None else "model._orig_mod"
        raise ValueError(
            f"{path} is compiled by torch.compile, so {what}: pass the module as it was before, {original}, for the "
            f"numbers of uncompiled code (the library's layers need {_COMPILED_RATIO} as much compiled){remedy}"
        )


def _is_compiled(module: nn.Module) -> bool:
    """Return whether `torch.compile(module)` returned this module, or `module.compile()` was called."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
