"""`link_step`: one optimizer step of link prediction on a batch of pairs, whole or split into micro-batches."""

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_choice, check_type, deferred_interrupt
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.shared_storage import same_record
from workbench.features.learned_rows import LearnedRows
from workbench.features.memory_rows import as_store, check_covers
from workbench.links.edge_batch import EdgeBatch
from workbench.links.negatives import false_negatives
from workbench.nn.decoders import Decoder
from workbench.nn.losses import check_loss
from workbench.nn.pair_losses import can_fuse, pair_scores, softmax_of_pairs, softmax_pair_loss
from workbench.nn.signature import Forward
from workbench.training.accumulate import Phase, accumulate, unmeasured
from workbench.training.arguments import as_batches, check_halo, check_optimizer

PairLoss = Callable[..., Tensor]
"""Maps scores [n] of pairs and [n, k] of their negatives, `mask=` and `reduction=` to a loss."""


def link_step(
    encoder: nn.Module | None,
    decoder: Decoder,
    pairs: EdgeBatch | Iterable[EdgeBatch],
    micro: MiniBatch | Iterable[MiniBatch],
    rows: Any,
    loss_fn: PairLoss,
    optimizer: torch.optim.Optimizer | None,
    *,
    reduction: str = "mean",
    total: float | None = None,
    known: Graph | None = None,
    forward: Forward | None = None,
    before_step: Callable[[], object] | None = None,
    phase: Phase | None = None,
    verify: bool = True,
) -> Tensor:
    """Train on one batch of pairs: accumulate the gradients of its parts, take one step, also of learnt rows.

    Loss, gradients and step equal those of the whole batch, up to rounding, however its pairs are split. The loss of a
    pair is the sum over the ends that negatives replace. On an interrupt (Ctrl-C) the step is either taken completely,
    parameters and rows, or not at all.

        rows = wb.LearnedRows(1e-3 * torch.randn(kg.num_entities, 50), lr=0.1)
        decoder = wb.nn.DistMult(50, num_relations=kg.num_relations, inverse=True)
        optimizer = torch.optim.Adagrad(decoder.parameters(), lr=0.1)
        for step, pairs, mb in wb.edge_batches(…, negatives=wb.links.Negatives(500, chunks=10, ends="both")):
            wb.link_step(None, decoder, pairs, mb, rows, wb.nn.softmax_pair_loss, optimizer, reduction="sum")

    Args:
        encoder: computes the rows of the pairs' seeds, called as by `train_step`; None: the rows that are read are
            scored themselves (batches of `edge_batches(sampler=None)`).
        decoder: scores the pairs.
        pairs: the batch, or its parts (`pairs.split(part)`).
        micro: the batch sampled for the seeds of the pairs, from which parts select their micro-batches; or the parts'
            micro-batches in their order.
        rows: `LearnedRows`, which are updated; or features by raw-graph id, as for `train_step`, which are not.
        loss_fn: `workbench.nn.softmax_pair_loss`, `workbench.nn.logistic_pair_loss`, or a function of positive scores
            [n], negative scores [n, k], `mask=` (bool [n, k] or None) and `reduction="none"` that returns the losses
            [n].
        optimizer: of the parameters of encoder and decoder; None if they have none.
        reduction: "mean" over the batch's pairs, or "sum".
        total: what the mean divides by if other processes train on a part of the batch: the number of pairs of all
            processes. None: this batch's pairs.
        known: graph of the true edges: negatives among them do not enter the loss. None: all negatives do.
        forward: calls the encoder, as for `workbench.accumulate`.
        before_step: called when the gradients of the whole batch are complete, before the step.
        phase: entered for each phase, as for `train_step`.
        verify: check once per encoder that micro-batches are exact, as for `train_step`.

    Returns:
        The batch's loss, detached; the gradients of parameters remain in `.grad`.

    Raises:
        TypeError: an argument of another type.
        ValueError: as many parts as micro-batches are needed, other seeds, an unknown reduction, or a `total` that is
            not positive or is passed for reduction "sum"; as `accumulate`.
        IndexError: a relation or a node out of range.
    """
    parts, batches = _parts_and_batches(pairs, micro)
    check_type("decoder", decoder, Decoder, "pass a decoder such as wb.nn.DistMult(dim, num_relations=…)")
    check_loss(loss_fn)
    check_choice("reduction", reduction, ("mean", "sum"))
    check_halo(batches, forward)
    _check_optimizer(optimizer, encoder, decoder)
    store = as_store(rows, "rows")
    for mb in batches:
        check_covers("rows", store, mb.node_ids)
    divisor = _divisor(parts, reduction, total)
    batches = [same_record(mb) for mb in batches]  # one batch may serve several parts
    part_of = {id(mb): part for mb, part in zip(batches, parts, strict=True)}

    def loss_of(h: Any, mb: MiniBatch) -> Tensor:
        return _loss(decoder, h, part_of[id(mb)], loss_fn, known, divisor)

    learnt = rows if isinstance(rows, LearnedRows) else None
    phase = phase or unmeasured
    with phase("step"):
        for holder in (encoder, decoder, optimizer, learnt):
            if holder is not None:
                holder.zero_grad()
    model, call = (encoder, forward) if encoder is not None else (decoder, forward or (lambda mb, inputs: inputs.x))
    options = {"after": None if learnt is None else learnt.add, "phase": phase}
    options |= {"verify": verify and encoder is not None}
    loss = accumulate(model, batches, lambda mb: store.read(mb.node_ids), loss_of, forward=call, **options)
    with phase("step"):
        if before_step is not None:
            before_step()
        _step(optimizer, learnt)
    return loss


def _divisor(parts: list[EdgeBatch], reduction: str, total: Any) -> float:
    """What the sum of losses is divided by."""
    if total is None:
        return max(1, sum(part.num_pairs for part in parts)) if reduction == "mean" else 1
    if reduction == "sum":
        raise ValueError(f"total is {total!r}, but reduction 'sum' divides by nothing; omit total")
    check_type("total", total, (Real, Tensor), "pass a number, the pairs of all processes")
    if not 0 < total < math.inf:
        raise ValueError(f"total is {total}; pass the positive number of pairs of all processes")
    return float(total)


def _loss(
    decoder: Decoder, h: Tensor, pairs: EdgeBatch, loss_fn: PairLoss, known: Graph | None, divisor: float
) -> Tensor:
    """Sum of the losses of all pairs and ends, divided by `divisor`."""
    if h.is_cuda and decoder.num_relations:
        decoder.checked_relations(pairs.relation, waits=True)  # before the copy, if they are on the host
    pairs = pairs if pairs.device == h.device else pairs.to(h.device)
    if loss_fn is softmax_pair_loss and known is None and can_fuse(decoder, pairs):
        return softmax_of_pairs(decoder, h, pairs, factor=1 / divisor)
    scores = pair_scores(decoder, h, pairs)
    masks = [None] * len(scores)
    if known is not None:
        mask = false_negatives(pairs.to(known.device), known).to(h.device)
        masks = mask.split([s.negative.shape[1] for s in scores], dim=1)
    losses = [loss_fn(s.positive, s.negative, mask=m, reduction="none") for s, m in zip(scores, masks, strict=True)]
    dtypes = [torch.promote_types(loss.dtype, torch.float32) for loss in losses]
    return torch.stack([loss.sum(dtype=dtype) for loss, dtype in zip(losses, dtypes, strict=True)]).sum() / divisor


def _parts_and_batches(pairs: Any, micro: Any) -> tuple[list[EdgeBatch], list[MiniBatch]]:
    """Pair every part with its micro-batch, selecting these from one whole batch."""
    remedy = "pass the EdgeBatch of edge_batches, or its parts: pairs.split(part)"
    parts = [pairs] if isinstance(pairs, EdgeBatch) else list(pairs) if isinstance(pairs, Iterable) else pairs
    check_type("pairs", parts, list, remedy)
    for part in parts:
        check_type("pairs", part, EdgeBatch, remedy)
    if isinstance(micro, MiniBatch) and not isinstance(pairs, EdgeBatch):
        micro = micro.select([_parent(part) for part in parts])
    batches = as_batches(micro)
    if len(parts) != len(batches):
        raise ValueError(f"{len(parts)} parts of pairs and {len(batches)} micro-batches; pass one of each per part")
    for part, mb in zip(parts, batches, strict=True):
        if not torch.equal(part.seeds.to(mb.device), mb.seeds):
            raise ValueError(
                "the seeds of the pairs and of the batch differ; sample the batch for pairs.seeds, in their order"
            )
    return parts, batches


def _parent(part: EdgeBatch) -> Tensor:
    if part.parent is None:
        raise ValueError(
            "a part of the pairs has no parent; make parts by pairs.split(part), or pass micro-batches too"
        )
    return part.parent


def _check_optimizer(optimizer: Any, encoder: nn.Module | None, decoder: Decoder) -> None:
    if optimizer is not None:
        check_optimizer(optimizer)
    elif any(p.requires_grad for module in (encoder, decoder) if module is not None for p in module.parameters()):
        raise ValueError("optimizer is None, but the model has parameters; pass one of all of them")


def _step(optimizer: torch.optim.Optimizer | None, rows: LearnedRows | None) -> None:
    """Take the steps of parameters and rows, both or neither if an interrupt arrives."""
    update = None if rows is None else rows.prepare_step()
    with deferred_interrupt():
        if optimizer is not None:
            optimizer.step()
        if update is not None:
            update()
    if rows is not None:
        rows.zero_grad()
