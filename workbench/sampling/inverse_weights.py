"""Weights of drawn edges by their inverse inclusion probabilities, so that a row's aggregate is unbiased."""

from torch import Tensor

WEIGHTS = ("mean", "ratio", "sum")
"""What Σ weight · h over a drawn row estimates, divided by the number of its edges unless for "sum"."""


def inverse_weights(kind: str, inverse: Tensor, counts: Tensor, degrees: Tensor, totals: Tensor, row: Tensor) -> Tensor:
    """Compute weights of drawn edges, to be applied by a mean or a sum over each row.

    Args:
        kind: one of `WEIGHTS`.
        inverse: float64 [num_drawn], 1 / P of every drawn edge.
        counts: int64 [num_rows], edges drawn per row.
        degrees: int64 [num_rows], candidates per row.
        totals: float64 [num_rows], sums of `inverse` over the rows ("ratio" alone reads them).
        row: int64 [num_drawn], the row of every edge.

    Returns:
        float32 [num_drawn].
    """
    if kind == "sum":
        return inverse.float()
    norm = counts.double() / (degrees.double() if kind == "mean" else totals)
    return (norm[row] * inverse).float()
