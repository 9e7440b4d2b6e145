"""`cooperative.train_step`: one optimizer step of all ranks on one global batch."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from workbench.cooperative.sampler import exchangers
from workbench.core.machine import Traffic
from workbench.core.minibatch import MiniBatch
from workbench.distributed.group import Group, all_reduce_gradients, gather_numbers
from workbench.distributed.owned import OwnedRows
from workbench.distributed.progress import in_phase
from workbench.meter.stopwatch import Phase, unmeasured
from workbench.nn.losses import Inputs, LossFunction
from workbench.nn.signature import Forward, model_device
from workbench.sampling.owned_graph import OwnedGraph
from workbench.training.accumulate import After
from workbench.training.arguments import as_batches
from workbench.training.evaluate import CHUNK_EDGES, layers_of, layerwise
from workbench.training.step import BeforeStep, train_step as train_own_part

_PHASES = {"fetch": "features", "transfer": "features", "forward": "forward", "backward": "backward"}


def train_step(
    model: nn.Module,
    micro: MiniBatch | Iterable[MiniBatch],
    x: Any,
    y: Any,
    loss_fn: LossFunction,
    optimizer: torch.optim.Optimizer,
    *,
    group: Group = None,
    traffic: Traffic | None = None,
    reduction: str = "mean",
    forward: Forward | None = None,
    after: After | None = None,
    before_step: BeforeStep | None = None,
    phase: Phase | None = None,
) -> Tensor:
    """Train all ranks on one batch, of which each computes its part; collective, else as `workbench.train_step`.

    Loss, gradients and step equal those of one process on the whole batch, up to rounding: the mean divides by the
    labelled seeds of all ranks, gradients are summed over the ranks once, after the last micro-batch, and every rank
    takes the same optimizer step. Batches with exchanges (cooperative minibatching) fill the halo of each layer from
    other ranks; batches without (independent minibatching) need nothing of them, and the rest is the same.

    Args:
        model: with the same parameters on all ranks; called with `exchanges=` for batches that have them.
        micro: this rank's part of the batch, possibly without seeds. Or micro-batches: a batch with exchanges can't be
            split, so sample each part of the seeds with the same step; equally many parts on all ranks. They are parts
            of the whole batch only if the sampler's `rows_are_independent`.
        x: features by raw-graph id, such as `workbench.distributed.OwnedRows`; of an independent batch, those that were
            staged.
        y: labels by raw-graph id, of this rank's seeds at least.
        loss_fn: as for `workbench.train_step`.
        optimizer: of the model's parameters; the same on all ranks.
        group: the ranks; None for all.
        traffic: counts rows, gradients of rows and values of parameters' gradients that cross "rank".
        reduction: "mean" over the labelled seeds of all ranks, or "sum".
        forward: calls the model, as for `workbench.train_step`; None: `model(mb.blocks, inputs.x, node_ids=mb.node_ids,
            step=mb.step, exchanges=workbench.cooperative.exchangers(mb, group, traffic))` for batches with exchanges.
        after: as for `workbench.train_step`.
        before_step: called when the gradients have been summed over the ranks, to clip them.
        phase: as for `workbench.train_step`; "step" includes the sum over the ranks.

    Returns:
        The loss of the whole batch, detached; the same on all ranks.

    Raises:
        ValueError: ranks have different numbers of micro-batches, no rank has a labelled seed, or as
            `workbench.train_step`.

    Source: Cooperative Minibatching in GNNs, Algorithm 1.
    """
    batches = as_batches(micro)
    with in_phase("step"):
        _check_equally_many(batches, group)
        if forward is None and any(mb.exchanges is not None for mb in batches):
            forward = partial(_with_exchanges, model, group, traffic)

        def sum_gradients() -> None:
            all_reduce_gradients(model, group, traffic)
            if before_step is not None:
                before_step()

        loss = train_own_part(
            model,
            batches,
            x,
            y,
            loss_fn,
            optimizer,
            reduction=reduction,
            total=lambda weight: sum(gather_numbers(weight, group)),
            forward=forward,
            after=after,
            before_step=sum_gradients,
            phase=partial(_reported, phase or unmeasured),
            verify=forward is None,
        )
        return loss.new_tensor(sum(gather_numbers(float(loss), group)))


def _with_exchanges(model: nn.Module, group: Group, traffic: Traffic | None, mb: MiniBatch, inputs: Inputs) -> Any:
    given = {} if inputs.aggregated is None else {"aggregated": inputs.aggregated}
    exchanges = exchangers(mb, group, traffic)
    return model(mb.blocks, inputs.x, node_ids=mb.node_ids, step=mb.step, exchanges=exchanges, **given)


@contextmanager
def _reported(phase: Phase, name: str) -> Iterator[None]:
    with in_phase(_PHASES.get(name, "step")), phase(name):
        yield


def _check_equally_many(batches: list[MiniBatch], group: Group) -> None:
    """Micro-batches exchange rows, so ranks with fewer of them would leave the others waiting."""
    exchanging = any(mb.exchanges is not None for mb in batches)  # of which a rank without batches knows nothing
    found = gather_numbers(len(batches) + exchanging / 2, group)
    counts = [int(number) for number in found]
    if len(set(counts)) > 1 and any(number % 1 for number in found):
        raise ValueError(
            f"ranks have {counts} micro-batches; cut the seeds of every rank into the same number of parts, some of "
            "which may be empty"
        )


def cooperative_logits(
    model: nn.Module,
    owned: OwnedGraph,
    x: OwnedRows,
    *,
    group: Group = None,
    traffic: Traffic | None = None,
    chunk_edges: int = CHUNK_EDGES,
) -> OwnedRows:
    """Compute the model's outputs for all nodes with all in-neighbours in every layer; collective.

    They equal those of `workbench.full_neighbour_logits`. Before each layer, a rank fetches the rows that its nodes
    read from their owners, each row once; the outputs stay with the owners.

    Args:
        model: a model from `workbench.build_model`, with the same parameters on all ranks.
        owned: the in-edges of this rank's nodes.
        x: the features of this rank's nodes.
        group: the ranks; None for all.
        traffic: counts the ids and rows received from other ranks.
        chunk_edges: number of in-edges and destinations computed at a time.

    Returns:
        The outputs of this rank's nodes, [out_dim] per row, in the model's dtype, on the CPU; `.read(ids)` reads those
        of nodes of this rank.

    Raises:
        TypeError: another model than those of `workbench.build_model`.
        ValueError: the outputs of a layer depend on the batch (GCN with norm "both").
    """
    graph, rows, device = owned.graph, x, model_device(model)
    read = torch.cat([graph.indices.long().cpu(), rows.ids])
    for layer in layers_of(model):
        staged = rows.stage(read)
        out = layerwise(graph, staged, [layer], nodes=rows.ids, chunk_edges=chunk_edges, device=device)
        rows = OwnedRows(out, owned.owner, group, traffic=traffic)
    return rows
