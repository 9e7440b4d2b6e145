"""The width of the features that a module reads, as its first layer states it."""

from torch import nn

# torch's linear and recurrent layers; DGL's; PyG's
_NAMES = ("in_features", "input_size", "_in_src_feats", "_in_feats", "in_feats", "in_feat", "in_channels")


def feature_width(model: nn.Module) -> int | None:
    """Return the input width of the first layer, in the order of definition, that has one; None without any.

    Layers that are not the first one to run have been defined first in some modules; a dry run on features of that
    width then fails.

    Args:
        model: any module.

    >>> feature_width(nn.Sequential(nn.Dropout(), nn.Linear(7, 3), nn.Linear(3, 2)))
    7
    """
    for module in model.modules():
        for name in _NAMES:
            width = getattr(module, name, None)
            width = width[0] if isinstance(width, tuple | list) and width else width  # of sources and destinations
            if isinstance(width, int) and width > 0:
                return width
    return None
