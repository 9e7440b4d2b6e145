"""Betty's own estimate: the eight terms of the paper, as a reference beside ours."""

from collections.abc import Mapping

import torch
from torch import nn

from workbench.core.block import Block
from workbench.core.errors import check_choice
from workbench.core.minibatch import MiniBatch
from workbench.memory.analytic.step import input_width
from workbench.memory.optimizer import OPTIMIZERS
from workbench.memory.record import TERMS, MemoryEstimate
from workbench.nn.gat import GATLayer
from workbench.nn.gin import GINLayer
from workbench.nn.model import GNN
from workbench.nn.sage import SAGELayer

_ADAMS = (torch.optim.Adam, torch.optim.AdamW)

LSTM_TENSORS = 18
"""Tensors of [rows, width] that PyTorch's LSTM without cuDNN keeps a step of the sequence (the paper's constant)."""


def betty_terms(model: nn.Module, mb: MiniBatch, *, optimizer: str | torch.optim.Optimizer = "adam") -> MemoryEstimate:
    """Peak bytes as Betty's authors estimate them: (1)…(5) + (8) + max((6), (7)).

    Elements of every term have the size of the model's own, ids and labels too: (1) parameters, (2) inputs, (3) labels,
    (4) three numbers an edge of every block, (5) outputs of all layers, (6) what the LSTM aggregator keeps, (7)
    gradients, (8) optimizer state. (6) is gone when (7) appears; the one that is larger stands in the terms.

    The paper's model leaves out: intermediates of all aggregators but LSTM's (the outputs of pooling's `fc_pool`, GAT's
    scores of edges and heads), what autograd saves besides layers' outputs (messages, activations, norms, dropout
    masks), losses, gradients of activations, the optimizer's temporaries, features in a dtype of their own, indices in
    fewer bytes, and the allocator's rounding.

    Args:
        model: of `workbench.build_model`.
        mb: a batch or micro-batch with a block a layer.
        optimizer: "adam" or "adamw" (two states a parameter), "sgd" (none) or an optimizer of the model.

    Raises:
        ValueError: another model, another number of blocks, or an optimizer whose states are not known.

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
    """Equation 5: bytes that an LSTM aggregator keeps, Σ in-degree · destinations · width · 18 elements.

    Args:
        degree_counts: in-degree → destinations that have it.
        width: channels that come into the layer.
        itemsize: bytes an element.

    >>> betty_lstm_bytes({2: 3}, width=5)
    2160
    """
    return sum(degree * count for degree, count in degree_counts.items()) * width * LSTM_TENSORS * itemsize


def _checked(model: nn.Module, mb: MiniBatch) -> GNN:
    if not isinstance(model, GNN):
        raise ValueError(f"the paper's terms are those of build_model's models, not of a {type(model).__name__}")
    if len(mb.blocks) != len(model.layers):
        raise ValueError(f"{len(mb.blocks)} blocks given; this model of {len(model.layers)} layers needs one a layer")
    return model


def _estimate(held: Mapping[str, int], aggregator: int, gradients: int) -> MemoryEstimate:
    fixed, base = held["parameters"] + held["optimizer"], sum(held.values())
    larger = {"aggregator": aggregator} if aggregator > gradients else {"gradients": gradients}
    at_peak = {**held, **larger}
    return MemoryEstimate(
        terms={name: at_peak.get(name, 0) for name in TERMS},
        phase_bytes={"forward": base + aggregator, "backward": base + gradients, "step": fixed + gradients},
        fixed_bytes=fixed,
        kernels="betty",
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
    """States a parameter."""
    if isinstance(optimizer, str):
        check_choice("optimizer", optimizer, OPTIMIZERS)
        return 2 if issubclass(OPTIMIZERS[optimizer], _ADAMS) else 0
    if isinstance(optimizer, torch.optim.SGD):
        return int(any(group["momentum"] for group in optimizer.param_groups))
    if isinstance(optimizer, _ADAMS):
        return 2 + any(group["amsgrad"] for group in optimizer.param_groups)
    known = ", ".join(kind.__name__ for kind in OPTIMIZERS.values())
    raise ValueError(f"optimizer is a {type(optimizer).__name__}, whose states are not known; pass one of {known}")
