"""GraphSAGE (Hamilton, Ying, Leskovec: "Inductive Representation Learning on Large Graphs", NeurIPS 2017)."""

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.core.errors import check_choice
from workbench.kernels.segment import compute_dtype, inverse_in_degrees
from workbench.kernels.segment_max import segment_max
from workbench.kernels.segment_sum import segment_sum_and_own
from workbench.nn.lstm import last_states
from workbench.nn.own import linear_and_own

SAGE_AGGREGATORS = ("mean", "gcn", "pool", "lstm")


class SAGELayer(nn.Module):
    """`W_self · h_dst + W_neigh · aggregate(sources) + b`, with DGL SAGEConv's parameters and names.

    What an edge weight e does, by aggregator (Betty, table 1, as in DGL):
    - mean: Σ h·e / in-degree;
    - gcn: (Σ h·e + h_dst) / (in-degree + 1), and no `fc_self`;
    - pool: max of e · relu(fc_pool(h));
    - lstm: last state over the messages e·h, in the order of the row.

    mean and gcn are linear: `update(h_dst, aggregate(block, h))` is the layer, and `aggregate` has no parameters.
    `forward` multiplies by `fc_neigh` first where that makes the aggregated rows narrower. Without in-edges the
    aggregate is zero (gcn: the destination's own row).

    Args:
        in_dim: channels of `h`.
        out_dim: channels of the result.
        aggregator: "mean", "gcn", "pool" or "lstm".
        bias: learn an additive term.

    Raises:
        ValueError: another aggregator.
    """

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
        """Draw the weights anew, as DGL does: Glorot uniform with the gain of ReLU."""
        gain = nn.init.calculate_gain("relu")
        for name in ("fc_pool", "fc_self", "fc_neigh"):
            if hasattr(self, name):
                nn.init.xavier_uniform_(getattr(self, name).weight, gain=gain)

    @property
    def is_linear(self) -> bool:
        """Whether the aggregate is a linear function of `h` alone, so that it can be computed beforehand."""
        return self.aggregator in ("mean", "gcn")

    def aggregate(self, block: Block, h: Tensor) -> Tensor:
        """The rows of the sources brought together for each destination.

        Args:
            block: one layer of a batch.
            h: floating [num_src, in_dim].

        Returns:
            [num_dst, in_dim].
        """
        return self._aggregate_and_own(block, h)[0]

    def update(self, h_dst: Tensor, aggregated: Tensor) -> Tensor:
        """The layer's result from the destinations' own rows and their aggregate.

        Args:
            h_dst: floating [num_dst, in_dim]; not read by gcn, whose aggregate holds it.
            aggregated: [num_dst, in_dim].

        Returns:
            [num_dst, out_dim].
        """
        return self._add_self(h_dst, self.fc_neigh(aggregated))

    def forward(self, block: Block, h: Tensor) -> Tensor:
        """[num_src, in_dim] → [num_dst, out_dim]."""
        if self.is_linear and self.out_dim < self.in_dim:
            narrow, h_dst = linear_and_own(self.fc_neigh, h, block.num_dst)
            return self._add_self(h_dst, self.aggregate(block, narrow))
        aggregated, h_dst = self._aggregate_and_own(block, h)
        return self.update(h_dst, aggregated)

    def _aggregate_and_own(self, block: Block, h: Tensor) -> tuple[Tensor, Tensor]:
        """The aggregate and the destinations' own rows."""
        if self.aggregator == "lstm":
            return last_states(self.lstm, block, h), h[: block.num_dst]
        weight, dtype = block.edge_weight, compute_dtype(h)
        if self.aggregator == "pool":
            pooled, own = linear_and_own(self.fc_pool, h, block.num_dst)
            if weight is None:  # the maximum of relu is relu of the maximum, on fewer rows
                return segment_max(block, pooled).relu_(), own
            return segment_max(block, pooled.relu_(), weight), own
        if self.aggregator == "mean":
            return segment_sum_and_own(block, h, weight, scale=inverse_in_degrees(block, dtype))
        share = (block.in_degrees() + 1).to(dtype).reciprocal_()
        total, own = segment_sum_and_own(block, h, weight, scale=share)
        return total + own * share[:, None].to(h.dtype), own

    def _add_self(self, h_dst: Tensor, neighbours: Tensor) -> Tensor:
        if self.aggregator != "gcn":
            return self.fc_self(h_dst) + neighbours
        return neighbours if self.bias is None else neighbours + self.bias

    def extra_repr(self) -> str:
        return f"{self.in_dim}, {self.out_dim}, aggregator={self.aggregator!r}"
