"""The published form of locality-aware draws: successive draws without replacement, which nothing corrects."""

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.variates import Variates
from workbench.sampling.candidates import Candidates, expand_rows, row_offsets
from workbench.sampling.levels import Levels
from workbench.sampling.sampler import Drawn
from workbench.sampling.weighted import draw_weighted


def draw_local_biased(
    indices: Tensor, levels: Levels, variates: Variates, rows: Candidates, fanout: int | Tensor
) -> Drawn:
    """Draw rows by successive draws without replacement, proportional to the remaining factors, without weights.

    Arguments as for `draw_local`; the rows are in order of arrival, with positions.
    """
    _, position = expand_rows(rows)
    factors = levels.factors[levels.codes[indices[position].long()].long()]
    factors[torch.isin(position, rows.excluded)] = 0.0
    offsets, none = row_offsets(rows.lengths), position[:0]
    candidates = Graph(offsets, indices[position], edge_weight=factors)
    compact = Candidates(rows.nodes, offsets[:-1], rows.lengths, rows.lengths, none, none)
    drawn = draw_weighted(candidates, compact, fanout, replace=False, variates=variates)
    return drawn._replace(positions=position[drawn.positions])
