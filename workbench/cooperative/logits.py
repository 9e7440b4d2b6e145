"""`cooperative_logits`: layer-wise full-neighbour inference, in which every rank computes the nodes that it owns."""

import torch
from torch import nn

from workbench.core.traffic import Traffic
from workbench.distributed.group import Group
from workbench.distributed.owned_rows import OwnedRows
from workbench.nn.signature import model_device
from workbench.sampling.owned_graph import OwnedGraph
from workbench.training.evaluate import layers_of
from workbench.training.layerwise import CHUNK_EDGES, layerwise


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
    read = torch.cat([graph.indices.long(), rows.ids])
    for layer in layers_of(model):
        staged = rows.stage(read)
        out = layerwise(graph, staged, [layer], nodes=rows.ids, chunk_edges=chunk_edges, device=device)
        rows = OwnedRows(out, owned.owner, group, traffic=traffic)
    return rows
