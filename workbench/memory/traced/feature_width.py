"""The width of the features that a module reads, as its layers and the batch's node data state it."""

from collections.abc import Iterator

from torch import Tensor, nn

from workbench.core.minibatch import MiniBatch
from workbench.interop.dgl_parts import node_data_widths

# the library's layers; torch's linear and recurrent ones; DGL's; PyG's
_NAMES = ("in_dim", "in_features", "input_size", "_in_src_feats", "_in_feats", "in_feats", "in_feat", "in_size")
_NAMES += ("in_channels",)


def feature_widths(model: nn.Module) -> Iterator[int]:
    """Yield the input widths of all layers, in the order of definition.

    Args:
        model: any module.

    >>> list(feature_widths(nn.Sequential(nn.Dropout(), nn.Linear(7, 3), nn.Linear(3, 2))))
    [7, 3]
    """
    for module in model.modules():
        for name in _NAMES:
            width = getattr(module, name, None)
            width = width[0] if isinstance(width, tuple | list) and width else width  # of sources and destinations
            if isinstance(width, int) and width > 0:
                yield width


def candidate_widths(model: nn.Module, mb: MiniBatch) -> list[int]:
    """Return the widths that a model's features may have, the likeliest first.

    Args:
        model: any module; a layer of edge data may be the first that it defines.
        mb: the batch; of one that was converted from PyG, the width is that of `x`; from DGL, widths of node data that
            a layer has, too, come first, and those that none has last.
    """
    source, of_layers = mb.carried and mb.carried.source, list(feature_widths(model))
    x = getattr(source, "x", None)
    if isinstance(x, Tensor) and x.dim() == 2:
        return [x.shape[1]]
    of_data = node_data_widths(source) if isinstance(source, list | tuple) else []
    return list(dict.fromkeys([*(width for width in of_data if width in of_layers), *of_layers, *of_data]))
