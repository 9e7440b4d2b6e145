"""Converts the node and edge data that a batch of DGL or PyG carries to another dtype."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from workbench.core.carried_data import CarriedData
from workbench.core.minibatch import MiniBatch
from workbench.interop.pyg_parts import carried_attributes, edge_rows, node_rows


def with_carried_dtype(mb: MiniBatch, dtype: torch.dtype | None) -> MiniBatch:
    """Gather the data that a batch carries and convert floating-point data; for a batch of a few nodes.

    Args:
        mb: a batch; without carried data it is returned as it is.
        dtype: dtype of the data; None returns the batch as it is.
    """
    if mb.carried is None or dtype is None:
        return mb
    if hasattr(mb.carried.source, "n_id"):
        return _with_attributes(mb, dtype)
    blocks = mb.to_dgl()
    for block in blocks:
        for frame in (*block._node_frames, *block._edge_frames):
            for name, column in list(frame._columns.items()):
                if hasattr(column, "scheme"):  # not a placeholder of what DGL's DataLoader has yet to fetch
                    frame[name] = _converted(frame[name], dtype)
    sizes = mb.num_inputs, tuple(block.num_edges for block in mb.blocks)
    return replace(mb, carried=CarriedData(blocks, None, lambda: (None,) * len(blocks), *sizes))


def _with_attributes(mb: MiniBatch, dtype: torch.dtype) -> MiniBatch:
    batch: Any = mb.to_pyg()
    for name, rows in edge_rows(mb).items():
        setattr(batch, name, _converted(rows()[0], dtype))
    for name, of_nodes in node_rows(mb).items():
        setattr(batch, name, _converted(of_nodes(), dtype))
    return replace(mb, carried=carried_attributes(batch, mb.blocks))


def _converted(rows: Tensor, dtype: torch.dtype) -> Tensor:
    return rows.to(dtype) if rows.is_floating_point() else rows
