"""REG by hand (Betty, Algorithm 1): the output block's A, C = A Aᵀ, and a cut of the seeds drawn into both."""

import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots
from torch import Tensor

from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch

_MAX_SEEDS = 64


def draw_redundancy_graph(mb: MiniBatch, part: Tensor) -> go.Figure:
    """Draw a small batch's A and C = A Aᵀ as heat maps, seeds grouped by part, with lines at the cut.

    Args:
        mb: the batch, on the CPU, of at most 64 seeds.
        part: int64 [num_seeds], the part of every seed.

    Raises:
        ValueError: more than 64 seeds, or a batch with exchanges.

    Source: Betty (ASPLOS 2023), Algorithm 1.
    """
    refuse_halo(mb.exchanges, "drawing its redundancy graph")
    if mb.num_seeds > _MAX_SEEDS:
        raise ValueError(f"mb has {mb.num_seeds} seeds; at most {_MAX_SEEDS} can be drawn: sample fewer")
    a, c = shared_neighbors(mb)
    order = torch.argsort(part, stable=True)
    seeds = [str(seed) for seed in mb.seeds[order].tolist()]
    within = part[order][:, None] == part[order][None, :]
    cut = int(c[order][:, order][~within].sum()) // 2
    figure = make_subplots(
        1, 2, column_titles=["A: a seed's in-neighbours", "C = A Aᵀ: in-neighbours that seeds share"]
    )
    sources = [str(node) for node in mb.node_ids[: a.shape[1]].tolist()]
    figure.add_heatmap(z=a[order].numpy(), x=sources, y=seeds, coloraxis="coloraxis", row=1, col=1)
    figure.add_heatmap(z=c[order][:, order].numpy(), x=seeds, y=seeds, coloraxis="coloraxis", row=1, col=2)
    for at in (torch.bincount(part).cumsum(0)[:-1] - 0.5).tolist():
        left, right = {"row": 1, "col": 1}, {"row": 1, "col": 2}
        figure.add_hline(at, line_color="black", **left)  # type: ignore[arg-type]
        figure.add_hline(at, line_color="black", **right)  # type: ignore[arg-type]
        figure.add_vline(at, line_color="black", **right)  # type: ignore[arg-type]
    figure.update_xaxes(type="category").update_yaxes(type="category", autorange="reversed")
    title = f"The cut separates seeds that share in-neighbours {cut} times"
    return figure.update_layout(title=title, height=460, coloraxis={"colorscale": "Blues"})


def shared_neighbors(mb: MiniBatch) -> tuple[Tensor, Tensor]:
    """Return A, int64 [seeds, sources] of the output block, and C = A Aᵀ without its diagonal, int64 [seeds, seeds].

    Args:
        mb: a small batch; both matrices are dense.
    """
    block = mb.blocks[-1]
    a = torch.zeros(block.num_dst, block.num_src, dtype=torch.int64)
    a[torch.repeat_interleave(block.indptr.diff()), block.indices.long()] = 1
    return a, (a @ a.T).fill_diagonal_(0)
