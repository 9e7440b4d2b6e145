"""Batch and layer normalization between layers."""

from torch import nn

from workbench.core.errors import check_choice

_NORMS: dict[str, type[nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


def build_norm(kind: str | None, channels: int) -> nn.Module:
    """Build the normalization of a hidden representation [nodes, channels].

    Args:
        kind: "batch" (statistics over the rows of a micro-batch: not exact under splitting), "layer", or None.

    Returns:
        The module; the identity for None.

    Raises:
        ValueError: an unknown kind.
    """
    if kind is None:
        return nn.Identity()
    check_choice("norm", kind, _NORMS)
    return _NORMS[kind](channels)
