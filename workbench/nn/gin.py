"""Graph isomorphism network (Xu, Hu, Leskovec, Jegelka: "How Powerful are Graph Neural Networks?", ICLR 2019)."""

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.kernels.segment import segment_sum, segment_sum_with_self
from workbench.nn.dropout import build_norm


class GINLayer(nn.Module):
    """GIN layer: `MLP((1 + ε) · h_dst + Σ e · h_src)`; the edge weight e scales the message, as in DGL's GINConv.

    The MLP is Linear, optional norm, ReLU, Linear.

    Args:
        in_dim: input channels.
        out_dim: output channels.
        hidden_dim: channels between the two linear layers; None: `out_dim`.
        eps: ε, 0 by default ("GIN-0").
        learn_eps: make ε a parameter.
        norm: "batch" or "layer" inside the MLP; None: no norm.

    Raises:
        ValueError: an unknown norm.
    """

    is_linear = True

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        hidden_dim: int | None = None,
        eps: float = 0.0,
        learn_eps: bool = False,
        norm: str | None = None,
    ) -> None:
        super().__init__()
        width = out_dim if hidden_dim is None else hidden_dim
        inner = [] if norm is None else [build_norm(norm, width)]
        self.mlp = nn.Sequential(nn.Linear(in_dim, width), *inner, nn.ReLU(), nn.Linear(width, out_dim))
        if learn_eps:
            self.eps = nn.Parameter(torch.tensor([float(eps)]))
        else:
            self.register_buffer("eps", torch.tensor([float(eps)]))

    @property
    def in_dim(self) -> int:
        return self.mlp[0].in_features  # pyright: ignore[reportReturnType]

    def forward(self, block: Block, h: Tensor) -> Tensor:
        """Compute the layer."""
        aggregated, h_dst = segment_sum_with_self(block, h, block.edge_weight)
        return self.update(h_dst, aggregated)

    def aggregate(self, block: Block, h: Tensor) -> Tensor:
        """Compute the sum Σ e · h_src of every destination, [num_dst, in_dim]."""
        return segment_sum(block, h, block.edge_weight)

    def update(self, h_dst: Tensor, aggregated: Tensor) -> Tensor:
        """Compute the layer from the destinations' own rows and the aggregate, [num_dst, in_dim] each."""
        return self.mlp((1 + self.eps) * h_dst + aggregated)
