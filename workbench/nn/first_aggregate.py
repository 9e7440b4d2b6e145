"""Whether a model's first layer can aggregate features where they are (`workbench.AggregateOnRead`)."""

from typing import Any

from workbench.core.errors import check_type
from workbench.nn.gcn import GCNLayer
from workbench.nn.gnn import GNN
from workbench.nn.sage import SAGELayer


def check_aggregates_on_read(model: Any) -> None:
    """Check that a model's first layer can aggregate the features where they are.

    Raises:
        TypeError: another type of model.
        ValueError: the layer's aggregate has parameters, is not linear or depends on the block's other edges, or the
            model is on another device than the CPU.
    """
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
