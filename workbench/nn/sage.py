"""GraphSAGE (Hamilton, Ying, Leskovec: "Inductive Representation Learning on Large Graphs", NeurIPS 2017)."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from workbench.core.block import Block
from workbench.core.errors import check_choice
from workbench.kernels.buffers import to_device
from workbench.kernels.gather import gather_edges
from workbench.kernels.jit import runs_eagerly
from workbench.kernels.segment import (
    compute_dtype,
    inverse_in_degrees,
    segment_max,
    segment_sum_with_self,
    use_compiled,
)
from workbench.nn.linear_with_self import Exchanger, add_to_linear, linear_with_self, multiplies_first

SAGE_AGGREGATORS = ("mean", "gcn", "pool", "lstm")


class SAGELayer(nn.Module):
    """GraphSAGE layer: `W_self · h_dst + W_neigh · aggregate(h_src) + b`.

    The aggregate by aggregator, with edge weights e (Betty, table 1, as in DGL):
    - mean: Σ e · h_src / in-degree;
    - gcn: (Σ e · h_src + h_dst) / (in-degree + 1), without W_self;
    - pool: max of e · relu(fc_pool(h_src));
    - lstm: last hidden state of an LSTM over the messages e · h_src, in the order of the row.

    Without in-edges the aggregate is zero (gcn: the destination's own row). mean and gcn are linear: `aggregate` has no
    parameters, and `update(h_dst, aggregate(block, h))` is the layer. Parameters have the names of DGL's SAGEConv.

    Args:
        in_dim: input channels.
        out_dim: output channels.
        aggregator: "mean", "gcn", "pool" or "lstm".
        bias: add a learned bias b.

    Raises:
        ValueError: an unknown aggregator.
    """

    exchanges_itself = True

    def __init__(self, in_dim: int, out_dim: int, *, aggregator: str = "mean", bias: bool = True) -> None:
        super().__init__()
        check_choice("aggregator", aggregator, SAGE_AGGREGATORS)
        self.aggregator, self.in_dim, self.out_dim = aggregator, in_dim, out_dim
        self.fc_neigh = nn.Linear(in_dim, out_dim, bias=False)
        if aggregator == "pool":
            self.fc_pool = nn.Linear(in_dim, in_dim)
        if aggregator == "lstm":
            self.lstm = nn.LSTM(in_dim, in_dim, batch_first=True)
        if aggregator == "gcn":
            self.bias = nn.Parameter(torch.zeros(out_dim)) if bias else None
        else:
            self.fc_self = nn.Linear(in_dim, out_dim, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize as DGL does: weights Glorot uniform with the gain of ReLU."""
        gain = nn.init.calculate_gain("relu")
        for name in ("fc_pool", "fc_self", "fc_neigh"):
            if hasattr(self, name):
                nn.init.xavier_uniform_(getattr(self, name).weight, gain=gain)

    @property
    def is_linear(self) -> bool:
        """True if the aggregate is a linear function of `h` without parameters, so that it can be precomputed."""
        return self.aggregator in ("mean", "gcn")

    def forward(self, block: Block, h: Tensor, exchange: Exchanger | None = None) -> Tensor:
        """Compute the layer, multiplying by W_neigh first if that takes less memory (`multiplies_first`).

        Args:
            block: one layer of a batch.
            h: floating [num_src, in_dim]; with `exchange` only the owned sources.
            exchange: appends the rows of the halo to `h`; meanwhile the destinations' own rows are multiplied.
        """
        if exchange is not None:
            return self._exchanged(block, h, exchange)
        sizes = block.num_src, block.num_dst, self.in_dim, self.out_dim
        if self.is_linear and multiplies_first(*sizes, compiled=use_compiled(h)):
            projected, h_dst = linear_with_self(h, block.num_dst, self.fc_neigh.weight)
            return self._add_self(h_dst, self.aggregate(block, projected))
        aggregated, h_dst = self._aggregate_with_self(block, h)
        return self.update(h_dst, aggregated)

    def _exchanged(self, block: Block, h: Tensor, exchange: Exchanger) -> Tensor:
        if self.aggregator == "gcn" or not hasattr(exchange, "start"):
            return SAGELayer.forward(self, block, exchange(h))
        h_dst, finish = exchange.start(h, block.num_dst)  # pyright: ignore[reportFunctionMemberAccess]
        own, rows = self.fc_self(h_dst), finish()
        sizes = block.num_src, block.num_dst, self.in_dim, self.out_dim
        if self.is_linear and multiplies_first(*sizes, compiled=use_compiled(rows)):
            return own + self.aggregate(block, self.fc_neigh(rows))
        return own + self.fc_neigh(self.aggregate(block, rows))

    def aggregate(self, block: Block, h: Tensor) -> Tensor:
        """Aggregate the rows of every destination's sources, [num_dst, in_dim]."""
        return self._aggregate_with_self(block, h)[0]

    def update(self, h_dst: Tensor, aggregated: Tensor) -> Tensor:
        """Compute the layer from the destinations' own rows and the aggregate, which for gcn includes them."""
        return self._add_self(h_dst, self.fc_neigh(aggregated))

    def _add_self(self, h_dst: Tensor, neighbours: Tensor) -> Tensor:
        if self.aggregator != "gcn":
            return add_to_linear(self.fc_self, h_dst, neighbours)
        return neighbours if self.bias is None else neighbours + self.bias

    def _aggregate_with_self(self, block: Block, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the aggregate and the destinations' own rows: one autograd node adds both gradients in place."""
        if self.aggregator == "lstm":
            return last_states(self.lstm, block, h), h[: block.num_dst]
        if self.aggregator == "pool":
            return self._max_pool(block, h)
        weight, dtype = block.edge_weight, compute_dtype(h)
        if self.aggregator == "mean":
            return segment_sum_with_self(block, h, weight, scale=inverse_in_degrees(block, dtype))
        scale = (block.in_degrees() + 1).to(dtype).reciprocal_()
        total, h_dst = segment_sum_with_self(block, h, weight, scale=scale)
        return total + h_dst * scale[:, None].to(h.dtype), h_dst

    def _max_pool(self, block: Block, h: Tensor) -> tuple[Tensor, Tensor]:
        pooled, h_dst = linear_with_self(h, block.num_dst, self.fc_pool.weight, self.fc_pool.bias)
        if block.edge_weight is None:  # max of relu = relu of max, on fewer rows
            return segment_max(block, pooled).relu_(), h_dst
        return segment_max(block, pooled.relu_(), block.edge_weight), h_dst

    def extra_repr(self) -> str:
        return f"{self.in_dim}, {self.out_dim}, aggregator={self.aggregator!r}"


@runs_eagerly
def last_states(lstm: nn.LSTM, block: Block, h: Tensor) -> Tensor:
    """Run the LSTM over the messages e · h_src of every destination, of which one without in-edges gets zeros.

    On the CPU one bucket per in-degree (degree bucketing), elsewhere packed sequences.
    """
    return (_states_by_degree if use_compiled(h) else _states_of_packed)(lstm, block, h)


def _states_by_degree(lstm: nn.LSTM, block: Block, h: Tensor) -> Tensor:
    degrees = block.in_degrees()
    rows = torch.argsort(degrees, stable=True)
    sizes, counts = torch.unique_consecutive(degrees[rows], return_counts=True)
    buckets = torch.stack((sizes, counts), 1).tolist()
    messages = _messages(block, h, _edges_of_rows(block, rows, degrees[rows]))
    states = [
        _last_state(lstm, bucket.view(count, size, h.shape[1]))
        for bucket, (size, count) in zip(messages.split([s * c for s, c in buckets]), buckets, strict=True)
    ]
    if not states:
        return h.new_zeros(0, lstm.hidden_size)
    return torch.cat(states).index_select(0, torch.argsort(rows))


def _messages(block: Block, h: Tensor, order: Tensor) -> Tensor:
    messages = gather_edges(block, h, order)
    return messages if block.edge_weight is None else messages * block.edge_weight[order, None].to(h.dtype)


def _last_state(lstm: nn.LSTM, messages: Tensor) -> Tensor:
    if messages.shape[1] == 0:
        return messages.new_zeros(messages.shape[0], lstm.hidden_size)
    return lstm(messages)[1][0].squeeze(0)


def _edges_of_rows(block: Block, rows: Tensor, degrees: Tensor) -> Tensor:
    """Return the positions of the rows' edges, row after row: int64 [num_edges]."""
    starts = torch.cumsum(degrees, 0) - degrees
    shift = torch.repeat_interleave(block.indptr[rows] - starts, degrees, output_size=block.num_edges)
    return shift + torch.arange(block.num_edges, device=block.device)


def packed_sizes(degree_counts: Iterable[tuple[int, int]]) -> list[int]:
    """Return the number of rows that have an in-edge 0, 1, …: batch sizes of torch's `PackedSequence`.

    cuDNN neither computes nor stores what is beyond a row's end, so one call takes rows of any in-degrees.

    Args:
        degree_counts: (in-degree, number of rows), in increasing order of the in-degree.

    >>> packed_sizes([(0, 2), (1, 1), (4, 1), (5, 2)])
    [4, 3, 3, 3, 2]
    """
    sizes: list[int] = []
    for degree, count in reversed([pair for pair in degree_counts if pair[1]]):
        sizes += [0] * (degree - len(sizes))
        sizes[:degree] = [size + count for size in sizes[:degree]]
    return sizes


def _states_of_packed(lstm: nn.LSTM, block: Block, h: Tensor) -> Tensor:
    """Run the LSTM once, on packed sequences; the host waits for the in-degrees."""
    degrees, rows = block.in_degrees().sort(descending=True, stable=True)
    histogram = torch.bincount(degrees.to(torch.int32).cpu()) if len(degrees) else degrees
    sizes = packed_sizes(enumerate(histogram.tolist()))
    if not sizes:
        return h.new_zeros(block.num_dst, lstm.hidden_size)
    messages = _messages(block, h, _edges_by_step(block, rows, sizes))
    last = lstm(PackedSequence(messages, torch.tensor(sizes)))[1][0].squeeze(0)
    return last.new_zeros(block.num_dst, last.shape[1]).index_copy(0, rows[: len(last)], last)


def _edges_by_step(block: Block, rows: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the positions of the edges, int64 [num_edges]: edge 0 of every row, edge 1 of those that have one, ….

    Args:
        rows: int64 [num_dst], rows by decreasing in-degree.
        sizes: numbers of rows per step.
    """
    size = to_device(torch.tensor(sizes), block.device)
    shift = torch.stack((torch.cumsum(size, 0) - size, torch.arange(len(sizes), device=block.device)))
    shift = shift.repeat_interleave(size, 1, output_size=block.num_edges)
    return block.indptr[rows[torch.arange(block.num_edges, device=block.device) - shift[0]]] + shift[1]
