"""The width of the features that a module reads, as its first layer states it."""

from collections.abc import Iterator

from torch import nn

# the library's layers; torch's linear and recurrent ones; DGL's; PyG's
_NAMES = ("in_dim", "in_features", "input_size", "_in_src_feats", "_in_feats", "in_feats", "in_feat", "in_size")
_NAMES += ("in_channels",)


def feature_width(model: nn.Module) -> int | None:
    """Return the input width of the first layer, in the order of definition, that has one; None without any.

    Layers that are not the first one to run have been defined first in some modules; a dry run on features of that
    width then fails.

    Args:
        model: any module.

    >>> feature_width(nn.Sequential(nn.Dropout(), nn.Linear(7, 3), nn.Linear(3, 2)))
    7
    """
    return next(feature_widths(model), None)


def feature_widths(model: nn.Module) -> Iterator[int]:
    """Yield the input widths of all layers, in the order of definition.

    Args:
        model: any module.
    """
    for module in model.modules():
        for name in _NAMES:
            width = getattr(module, name, None)
            width = width[0] if isinstance(width, tuple | list) and width else width  # of sources and destinations
            if isinstance(width, int) and width > 0:
                yield width
