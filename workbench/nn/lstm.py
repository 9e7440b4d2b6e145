"""The LSTM aggregator of GraphSAGE: the last hidden state over each destination's in-edges, in row order."""

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.kernels.compiler_boundary import runs_eagerly
from workbench.kernels.gather import gather_edges


@runs_eagerly
def last_states(lstm: nn.LSTM, block: Block, h: Tensor) -> Tensor:
    """Run the LSTM over the messages e · h_src of every destination, one bucket per in-degree (degree bucketing).

    The host reads the bucket sizes, which synchronizes with the GPU.

    Args:
        lstm: an LSTM of one layer, `batch_first`.
        block: one layer of a batch; its edge weights e are 1 if it has none.
        h: floating [num_src, channels].

    Returns:
        [num_dst, hidden size]; zeros for destinations without in-edges.
    """
    degrees = block.in_degrees()
    rows = torch.argsort(degrees, stable=True)
    sizes, counts = torch.unique_consecutive(degrees[rows], return_counts=True)
    buckets = list(zip(sizes.tolist(), counts.tolist(), strict=True))
    order = _edges_of_rows(block, rows, degrees[rows])
    messages = gather_edges(block, h, order)
    if block.edge_weight is not None:
        messages = messages * block.edge_weight[order, None].to(h.dtype)
    states = [
        _last_state(lstm, bucket.view(count, size, h.shape[1]))
        for bucket, (size, count) in zip(messages.split([s * c for s, c in buckets]), buckets, strict=True)
    ]
    if not states:
        return h.new_zeros(0, lstm.hidden_size)
    return torch.cat(states).index_select(0, torch.argsort(rows))


def _last_state(lstm: nn.LSTM, messages: Tensor) -> Tensor:
    if messages.shape[1] == 0:
        return messages.new_zeros(messages.shape[0], lstm.hidden_size)
    return lstm(messages)[1][0].squeeze(0)


def _edges_of_rows(block: Block, rows: Tensor, degrees: Tensor) -> Tensor:
    """Return the positions of the rows' edges, row after row: int64 [num_edges]."""
    starts = torch.cumsum(degrees, 0) - degrees
    shift = torch.repeat_interleave(block.indptr[rows] - starts, degrees, output_size=block.num_edges)
    return shift + torch.arange(block.num_edges, device=block.device)
