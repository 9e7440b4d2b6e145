"""Betty's memory estimate with the eight terms of the paper, for comparison with the workbench's own."""

from collections.abc import Mapping

import torch
from torch import nn

from workbench.core.block import Block
from workbench.core.errors import check_choice
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.memory.analytic.training_step import input_width
from workbench.memory.estimate import TERMS, MemoryEstimate
from workbench.memory.training_setup import OPTIMIZERS
from workbench.nn.gat import GATLayer
from workbench.nn.gin import GINLayer
from workbench.nn.gnn import GNN
from workbench.nn.sage import SAGELayer

_ADAMS = (torch.optim.Adam, torch.optim.AdamW)

LSTM_TENSORS = 18
"""Tensors [rows, width] that PyTorch's LSTM without cuDNN saves per step of the sequence (the paper's constant)."""


def betty_terms(model: nn.Module, mb: MiniBatch, *, optimizer: str | torch.optim.Optimizer = "adam") -> MemoryEstimate:
    """Estimate peak bytes with Betty's formula: (1) + … + (5) + (8) + max((6), (7)).

    The element size is the model's for every term, ids and labels included: (1) parameters, (2) inputs, (3) labels, (4)
    three numbers per edge of every block, (5) outputs of all layers, (6) tensors saved by the LSTM aggregator, (7)
    gradients, (8) optimizer state. (6) has been freed when (7) is allocated, so only the larger appears in the terms.

    The paper's model omits: intermediates of all aggregators but LSTM (the outputs of pooling's `fc_pool`, GAT's scores
    per edge and head), tensors that autograd saves besides the layers' outputs (messages, activations, norms, dropout
    masks), losses, gradients of activations, the optimizer's temporaries, features of another dtype, narrower indices,
    and the allocator's rounding.

    Args:
        model: a model from `workbench.build_model`.
        mb: a batch or micro-batch with one block per layer.
        optimizer: "adam" or "adamw" (two states per parameter), "sgd" (none), or an optimizer of the model.

    Raises:
        ValueError: The model is of another kind, its number of layers differs from the number of blocks, or the number
            of states of the optimizer is unknown.

    Source: Betty (ASPLOS 2023), section 4.4.3, table 3 and equation 5.
    """
    gnn = _checked(model, mb)
    layers = gnn.layers
    parameters = sum(p.numel() for p in model.parameters())
    elements = {
        "parameters": parameters,
        "optimizer": _states(optimizer) * parameters,
        "inputs": mb.num_inputs * input_width(gnn),
        "blocks": sum(3 * block.num_edges for block in mb.blocks),
        "labels": mb.num_seeds,
        "hidden": sum(b.num_dst * _out_dim(layer) for b, layer in zip(mb.blocks, layers, strict=True)),
    }
    itemsize = next(model.parameters()).element_size()
    aggregator = sum(_aggregator_bytes(layer, b, itemsize) for b, layer in zip(mb.blocks, layers, strict=True))
    return _estimate({name: count * itemsize for name, count in elements.items()}, aggregator, parameters * itemsize)


def betty_lstm_bytes(degree_counts: Mapping[int, int], width: int, itemsize: int = 4) -> int:
    """Bytes that an LSTM aggregator saves: Σ in-degree · destinations · width · 18 elements.

    Args:
        degree_counts: number of destinations by in-degree.
        width: input channels of the layer.
        itemsize: bytes per element.

    Source: Betty (ASPLOS 2023), equation 5.

    >>> betty_lstm_bytes({2: 3}, width=5)
    2160
    """
    return sum(degree * count for degree, count in degree_counts.items()) * width * LSTM_TENSORS * itemsize


def _checked(model: nn.Module, mb: MiniBatch) -> GNN:
    refuse_halo(mb.exchanges, "estimated")
    if not isinstance(model, GNN):
        raise ValueError(
            f"Betty's terms are defined for models of workbench.build_model, not for a {type(model).__name__}; use "
            "workbench.estimate_memory"
        )
    if len(mb.blocks) != len(model.layers):
        raise ValueError(
            f"the model has {len(model.layers)} layers, but the batch has {len(mb.blocks)} blocks; sample with one "
            "fanout per layer"
        )
    return model


def _estimate(base_terms: Mapping[str, int], aggregator: int, gradients: int) -> MemoryEstimate:
    fixed, base = base_terms["parameters"] + base_terms["optimizer"], sum(base_terms.values())
    larger = {"aggregator": aggregator} if aggregator > gradients else {"gradients": gradients}
    at_peak = {**base_terms, **larger}
    return MemoryEstimate(
        terms={name: at_peak.get(name, 0) for name in TERMS},
        phase_bytes={"forward": base + aggregator, "backward": base + gradients, "step": fixed + gradients},
        fixed_bytes=fixed,
        backend="betty",
    )


def _aggregator_bytes(layer: nn.Module, block: Block, itemsize: int) -> int:
    if not isinstance(layer, SAGELayer) or layer.aggregator != "lstm":
        return 0
    degrees, counts = torch.unique(block.in_degrees(), return_counts=True)
    return betty_lstm_bytes(dict(zip(degrees.tolist(), counts.tolist(), strict=True)), layer.in_dim, itemsize)


def _out_dim(layer: nn.Module) -> int:
    if isinstance(layer, GINLayer):
        return layer.mlp[-1].out_features  # pyright: ignore
    if isinstance(layer, GATLayer):
        return layer.head_dim * (layer.heads if layer.concat else 1)
    return layer.out_dim  # pyright: ignore


def _states(optimizer: str | torch.optim.Optimizer) -> int:
    """Number of state elements per parameter."""
    if isinstance(optimizer, str):
        check_choice("optimizer", optimizer, OPTIMIZERS)
        return 2 if issubclass(OPTIMIZERS[optimizer], _ADAMS) else 0
    if isinstance(optimizer, torch.optim.SGD):
        return int(any(group["momentum"] for group in optimizer.param_groups))
    if isinstance(optimizer, _ADAMS):
        return 2 + any(group["amsgrad"] for group in optimizer.param_groups)
    known = ", ".join(kind.__name__ for kind in OPTIMIZERS.values())
    raise ValueError(f"optimizer is a {type(optimizer).__name__}, whose state size is unknown; pass one of {known}")
