"""Outputs of a model on sampled batches: evaluation where all neighbours are too many, or not in memory."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_type
from workbench.core.minibatch import MiniBatch
from workbench.features.sources import as_store
from workbench.nn.inputs import Inputs
from workbench.nn.signature import Forward, default_forward, model_device
from workbench.training.arguments import check_halo, check_model
from workbench.training.evaluate import in_eval_mode


def sampled_logits(
    model: nn.Module, batches: Iterable[Any], x: Any = None, *, forward: Forward | None = None
) -> tuple[Tensor, Tensor]:
    """Compute a model's outputs for the seeds of sampled batches, in evaluation mode, without gradients.

        order = wb.node_order(p, c, p)  # all partitions have nodes to evaluate
        batches = wb.buffer_batches(buffer, order, test_ids, sampler=sampler, batch_size=1000, epoch=0)
        seeds, logits = wb.sampled_logits(model, batches)
        wb.accuracy(logits, y, nodes=seeds)

    Args:
        model: a module that `workbench.train_step` can call; its modes don't change.
        batches: yields (step, batch), as `workbench.batches`, or (state, step, batch), as `workbench.buffer_batches`,
            whose features are read from the state's rows: no other row is in memory.
        x: features by raw-graph id: a tensor, an array or an object with `.read(ids)`; None: the rows of each state.
        forward: calls the model with a batch and its `Inputs`, as for `workbench.accumulate`; None for the default.

    Returns:
        The seeds, int64 [n], in the order of the batches, and their outputs [n, …], on the CPU.

    Raises:
        TypeError: a batch of another form, or `x` is missing where batches come without rows.
        ValueError: there are no batches.
    """
    check_model(model)
    evaluated = in_eval_mode(model)
    call, device = forward or default_forward(evaluated), model_device(model) or torch.device("cpu")
    shared = None if x is None else as_store(x, "x")
    seeds, outputs = [], []
    for item in batches:
        *others, mb = item if isinstance(item, tuple) else (item,)
        check_type("a batch", mb, MiniBatch, "pass wb.batches(…) or wb.buffer_batches(…)")
        check_halo([mb], forward)
        rows = shared or getattr(others[0] if others else None, "rows", None)
        if rows is None:
            raise TypeError("x is None, and the batches come without rows; pass the features, or wb.buffer_batches(…)")
        with torch.no_grad():
            inputs = Inputs(rows.read(mb.node_ids).to(device))
            outputs.append(call(mb.to(device), inputs).cpu())
        seeds.append(mb.seeds.cpu())
    if not seeds:
        raise ValueError("there are no batches; pass at least one")
    return torch.cat(seeds), torch.cat(outputs)
