"""Batch and layer normalization between layers."""

from torch import nn

from workbench.core.errors import check_choice

_NORMS: dict[str, type[nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


def build_norm(kind: str | None, channels: int) -> nn.Module:
    """Build the normalization of a hidden representation [nodes, channels]; the identity for None.

    "batch" normalises by statistics over the rows of a micro-batch, so it is not exact under splitting; "layer" is.
    """
    if kind is None:
        return nn.Identity()
    check_choice("norm", kind, _NORMS)
    return _NORMS[kind](channels)
