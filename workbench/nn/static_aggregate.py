"""Which aggregates of static features can be precomputed, and what normalises them."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import nn

from workbench.core.errors import check_choice, check_type
from workbench.nn.gcn import GCNLayer
from workbench.nn.gin import GINLayer
from workbench.nn.gnn import GNN
from workbench.nn.sage import SAGELayer


@dataclass(frozen=True)
class StaticAggregate:
    """The full-neighbour aggregate `c_v · (Σ e_uv · c_u · x_u + [x_v])` of a node v, e the graph's edge weights.

    Args:
        norm: "none": all c are 1; "in": c_v = 1 / in-degree; "in + self": c_v = 1 / (in-degree + 1); "both":
            c_v = 1 / √in-degree and c_u = 1 / √out-degree. Degrees are those of the whole graph, at least 1.
        adds_self: the sum includes the node's own row.
    """

    norm: str
    adds_self: bool = False


AGGREGATES = MappingProxyType(
    {
        "sage-mean": StaticAggregate("in"),
        "sage-gcn": StaticAggregate("in + self", adds_self=True),
        "gcn": StaticAggregate("in"),
        "gcn-both": StaticAggregate("both"),
        "gin": StaticAggregate("none"),
    }
)
"""The aggregates by name: those of first layers of `workbench.build_model`, and GCN's symmetric normalisation."""


def static_aggregate(model: Any = None, kind: str | None = None) -> StaticAggregate:
    """Return the aggregate of a model's first layer, or of a name.

    Args:
        model: a model of `workbench.build_model`; None if `kind` is given.
        kind: a name of `AGGREGATES`; None for that of `model`.

    Raises:
        TypeError: another type of model.
        ValueError: both or none of the arguments, an unknown name, or a first layer whose aggregate can't be
            precomputed: it has parameters, or its normaliser depends on the block.
    """
    if (model is None) == (kind is None):
        given = "both model and kind" if kind is not None else "neither model nor kind"
        raise ValueError(f"{given} given; pass the model whose first layer reads the aggregates, or its kind")
    if kind is not None:
        check_choice("kind", kind, AGGREGATES)
        return AGGREGATES[kind]
    check_type("model", model, GNN, f"pass a model of build_model, or kind= ({', '.join(AGGREGATES)}) for one's own")
    return _of_layer(model.layers[0])


def _of_layer(layer: nn.Module) -> StaticAggregate:
    if isinstance(layer, GCNLayer):
        if layer.norm == "both":
            raise ValueError(
                f"the first layer is {layer}, whose normaliser 1/√(out-degree · in-degree) counts degrees in the "
                'sampled block, which do not exist before sampling; use norm="right", or kind="gcn-both", which counts '
                "them in the whole graph"
            )
        return StaticAggregate("in" if layer.norm == "right" else "none")
    if isinstance(layer, GINLayer):
        return AGGREGATES["gin"]
    if isinstance(layer, SAGELayer) and layer.is_linear:
        return AGGREGATES[f"sage-{layer.aggregator}"]
    raise ValueError(
        f"the first layer is {layer}, whose aggregate is no linear function of the features alone and can't be "
        "precomputed; use sage-mean, sage-gcn, gcn or gin, or sample all layers"
    )


def check_aggregates_on_read(model: Any) -> None:
    """Check that the first layer can aggregate features where they are: linear, without parameters, on the CPU."""
    check_type("model", model, GNN, "AggregateOnRead needs a model of build_model; pass the features x to others")
    layer = model.layers[0]
    if not getattr(layer, "is_linear", False) or _depends_on_block(layer):
        raise ValueError(
            f"the first layer is {layer}, whose aggregate is no sum of features by edge; pass the features x instead "
            "of AggregateOnRead(x), or use sage-mean, gcn or gin"
        )
    device = next(model.parameters()).device
    if device.type != "cpu":
        raise ValueError(f"the model is on {device}, but rows are aggregated on the CPU; pass the features x instead")


def _depends_on_block(layer: Any) -> bool:
    """Return whether the aggregate contains the destination's own row or the sources' degrees in the block."""
    is_gcn, is_sage = isinstance(layer, GCNLayer), isinstance(layer, SAGELayer)
    return (is_gcn and layer.norm == "both") or (is_sage and layer.aggregator == "gcn")
