"""The work M of a model on a batch: bytes of rows that its layers move and operations of their matrix products.

Counted are one forward and one backward pass. Not counted: weights, activations, norms, the loss, the attention scores
of gat and the additions of sums, which take as long as their memory traffic.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from workbench.core.errors import check_at_least, check_choice
from workbench.nn.layer_order import multiplies_before_exchange

WORK_KINDS = ("gat", "gcn", "rgcn")


class LayerSize(NamedTuple):
    """The size of one layer's block; means over batches need not be whole.

    Args:
        num_src: sources.
        num_dst: destinations.
        num_edges: edges.
        num_owned: sources that belong to a cooperating PE, all it multiplies if it exchanges products; None: all.
    """

    num_src: float
    num_dst: float
    num_edges: float
    num_owned: float | None = None


class Sized(Protocol):
    """A `Block`, or a `LayerSize`."""

    @property
    def num_src(self) -> float: ...
    @property
    def num_dst(self) -> float: ...
    @property
    def num_edges(self) -> float: ...


class ModelWork(NamedTuple):
    """The work of one training step.

    Args:
        nbytes: bytes of rows that layers read and write.
        flops: floating-point operations of their matrix products.
    """

    nbytes: float
    flops: float


def model_work(
    kind: str,
    layers: Sequence[Sized],
    dims: Sequence[int],
    *,
    relations: float = 1,
    value_bytes: int = 4,
    exchanges_products: bool | None = None,
) -> ModelWork:
    """Count the work M of a forward and a backward pass; the input features need no gradient.

    A layer reads one row per edge and writes one per destination (per relation with rgcn), and multiplies the rows of
    destinations by its weights; or it multiplies the rows of its sources first, if that makes them narrower, and always
    with gat. The backward pass transposes each of these.

    Args:
        kind: "gat", "gcn" or "rgcn", which has one matrix per relation (no bases) and one for the self-loop.
        layers: blocks or `LayerSize`s, input layer first.
        dims: widths of the features, the hidden layers and the output: one more than layers.
        relations: for rgcn the number of relations of a destination's in-edges, the mean if it differs.
        value_bytes: bytes of one value.
        exchanges_products: of gat layers with `num_owned`; None: those that send no more bytes so (`GATLayer`).

    Raises:
        ValueError: an unknown kind, or numbers of layers and widths that do not match.

    Source: Cooperative Minibatching, section 3.1, M in Table 1.

    >>> model_work("gcn", [LayerSize(num_src=5, num_dst=2, num_edges=6)], [3, 4])
    ModelWork(nbytes=208, flops=96)
    """
    check_choice("kind", kind, WORK_KINDS)
    check_at_least("value_bytes", value_bytes, 1)
    if len(dims) != len(layers) + 1:
        raise ValueError(
            f"{len(layers)} layers have {len(layers) + 1} widths, but dims has {len(dims)}; add the others"
        )
    if not relations > 0 or (kind != "rgcn" and relations != 1):
        raise ValueError(f"relations is {relations} for {kind}; it must be positive for rgcn and 1 for all others")
    is_product = _exchanges_products(kind, dims, exchanges_products)
    work = [
        _layer_work(kind, size, *widths, relations, needs_gradient=place > 0, only_owned=is_product[place])
        for place, (size, widths) in enumerate(zip(layers, pairwise(dims), strict=True))
    ]
    return ModelWork(value_bytes * sum(layer.nbytes for layer in work), sum(layer.flops for layer in work))


def exchanged_widths(kind: str, dims: Sequence[int], *, exchanges_products: bool | None = None) -> list[int]:
    """Values of a row that cooperating PEs exchange before each layer, forward, and as many of its gradient backward.

    Args:
        kind: "gat", "gcn" or "rgcn".
        dims: widths, as for `model_work`.
        exchanges_products: as for `model_work`.

    Returns:
        One number per layer, input layer first; 0 for features, which are exchanged as they are and need no gradient.

    >>> exchanged_widths("gcn", [128, 256, 40]), exchanged_widths("gat", [128, 256, 40])
    ([0, 256], [0, 40])
    """
    check_choice("kind", kind, WORK_KINDS)
    is_product = _exchanges_products(kind, dims, exchanges_products)
    inputs = [0, *dims[1:-1]]
    return [out if product else into for product, into, out in zip(is_product, inputs, dims[1:], strict=True)]


def _exchanges_products(kind: str, dims: Sequence[int], given: bool | None) -> list[bool]:
    """Per layer; only gat multiplies all sources before it aggregates."""
    if kind != "gat":
        return [False] * (len(dims) - 1)
    chosen = [multiplies_before_exchange(*d, needs_gradient=place > 0) for place, d in enumerate(pairwise(dims))]
    return chosen if given is None else [given] * len(chosen)


def _layer_work(
    kind: str, size: Sized, in_dim: int, out_dim: int, relations: float, *, needs_gradient: bool, only_owned: bool
) -> ModelWork:
    """Values instead of bytes; `needs_gradient`: the layer's input does; `only_owned`: those sources are multiplied."""
    sources, destinations = size.num_src, size.num_dst
    owned = getattr(size, "num_owned", None) if only_owned else None
    multiplied = sources if owned is None else owned
    first = kind == "gat" or out_dim < in_dim  # as `nn.layer_order.multiplies_first` decides on devices
    products = 2 + needs_gradient  # forward, gradient of the weights, gradient of the input
    if first:
        product = multiplied * (in_dim + relations * out_dim)
        summed = size.num_edges * out_dim + destinations * out_dim
        transposed = size.num_edges * out_dim + sources * relations * out_dim
    else:
        product = destinations * (relations * in_dim + out_dim)
        summed = size.num_edges * in_dim + destinations * relations * in_dim
        transposed = (size.num_edges * in_dim + sources * in_dim) * needs_gradient
    values = products * product + summed + transposed
    flops = products * 2 * (multiplied if first else destinations) * relations * in_dim * out_dim
    if kind == "gat":
        values += size.num_edges * out_dim  # the gradient of the attention reads the rows again
    if kind == "rgcn":  # the self-loop
        values += products * destinations * (in_dim + out_dim)
        flops += products * 2 * destinations * in_dim * out_dim
    return ModelWork(values, flops)
