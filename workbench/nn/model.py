"""`build_model`: models of one kind of layer."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from workbench.core.errors import check_at_least, check_choice, check_fits, check_seed, deferred_interrupt
from workbench.core.graph import Graph
from workbench.nn.dropout import HashDropout, build_norm
from workbench.nn.gat import GATLayer
from workbench.nn.gcn import GCNLayer
from workbench.nn.gin import GINLayer
from workbench.nn.gnn import GNN
from workbench.nn.linear_with_self import multiplies_before_exchange
from workbench.nn.reuse.layers import (
    ReusingDropout,
    ReusingGCNLayer,
    ReusingGINLayer,
    ReusingReLU,
    ReusingSAGELayer,
)
from workbench.nn.reuse.workspace import Workspace
from workbench.nn.rgcn import RGCN_REGULARIZERS, RGCNLayer
from workbench.nn.sage import SAGE_AGGREGATORS, SAGELayer

MODEL_KINDS = (*(f"sage-{aggregator}" for aggregator in SAGE_AGGREGATORS), "gcn", "gin", "gat")

TYPED_MODEL_KINDS = ("rgcn",)
"""Kinds that need edge types; `MODEL_KINDS` accept any graph."""

REUSING_KINDS = ("sage-mean", "sage-gcn", "gcn", "gin")
"""Kinds whose layers can reuse buffers."""

_MAX_DIM, _MAX_LAYERS = 2**31 - 1, 1000


def _build_layer(
    kind: str,
    in_dim: int,
    out_dim: int,
    hidden_dim: int,
    norm: str | None,
    attention: Mapping[str, Any],
    relations: Mapping[str, Any],
    last: bool,
    reusing: bool,
) -> nn.Module:
    if kind == "rgcn":
        return RGCNLayer(in_dim, out_dim, **relations)
    if kind == "gcn":
        return (ReusingGCNLayer if reusing else GCNLayer)(in_dim, out_dim)
    if kind == "gin":
        return (ReusingGINLayer if reusing else GINLayer)(in_dim, out_dim, hidden_dim=hidden_dim, norm=norm)
    if kind == "gat":
        return GATLayer(in_dim, out_dim, **attention, concat=not last)
    return (ReusingSAGELayer if reusing else SAGELayer)(in_dim, out_dim, aggregator=kind.removeprefix("sage-"))


def _relation_options(kind: str, num_relations: int | None, num_bases: int | None, regularizer: str) -> dict[str, Any]:
    """Return the options of relational layers after checking them; none for other kinds."""
    if kind not in TYPED_MODEL_KINDS:
        if (num_relations, num_bases, regularizer) != (None, None, "basis"):
            raise ValueError(
                f"num_relations, num_bases and regularizer are options of rgcn, but the kind is {kind}; omit them"
            )
        return {}
    if num_relations is None:
        raise ValueError(
            f"{kind} needs num_relations, one more than the largest edge type: int(graph.edge_type.max()) + 1"
        )
    bases = num_relations if num_bases is None else num_bases
    check_at_least("num_relations", num_relations, 1, most=_MAX_DIM)
    check_at_least("num_bases", bases, 1, most=_MAX_DIM)
    check_choice("regularizer", regularizer, RGCN_REGULARIZERS)
    return {"num_relations": num_relations, "num_bases": bases, "regularizer": regularizer}


def _check_memory(sizes: Mapping[str, int], relations: Mapping[str, Any]) -> None:
    """Refuse weights that exceed the memory, by the fewest weights that a layer of any kind (rgcn: of its kind) has."""
    dims = [sizes["in_dim"], *[sizes["hidden_dim"]] * min(2, sizes["num_layers"] - 1), sizes["out_dim"]]
    products = [rows * columns for rows, columns in pairwise(dims)]
    hidden = products[1] * (sizes["num_layers"] - 3) if len(dims) == 4 else 0
    weights, remedy = sum(products) + hidden, "use narrower or fewer layers"
    if relations:
        count, bases = relations["num_relations"], relations["num_bases"]
        is_basis, remedy = relations["regularizer"] == "basis", f"{remedy}, or another num_bases"
        weights = bases * (weights + count * sizes["num_layers"]) if is_basis else count * weights // bases
    check_fits(f"a model with {dict(sizes) | dict(relations)}", 4 * weights, remedy)


def build_model(
    kind: str,
    *,
    in_dim: int,
    hidden_dim: int,
    out_dim: int,
    num_layers: int = 2,
    dropout: float = 0.0,
    norm: str | None = None,
    heads: int = 1,
    self_attention: bool = False,
    num_relations: int | None = None,
    num_bases: int | None = None,
    regularizer: str = "basis",
    seed: int = 0,
    reuse_buffers: bool = False,
) -> GNN:
    """Build a model of one kind of layer, with ReLU between layers (ELU for gat).

    Args:
        kind: "sage-mean", "sage-gcn", "sage-pool", "sage-lstm", "gcn" (norm "right"), "gin" (ε = 0), "gat", or "rgcn"
            (a mean per relation), which needs a graph with edge types.
        in_dim: channels of the features.
        hidden_dim: total output channels of every layer but the last, and of the inner layer of GIN's MLP.
        out_dim: channels of the output.
        num_layers: number of layers.
        dropout: probability of dropping a hidden value, in [0, 1).
        norm: "batch" or "layer" between layers and inside GIN's MLP; None: no normalization anywhere.
        heads: attention heads of gat; a divisor of `hidden_dim`. The last layer averages them.
        self_attention: of gat: every node attends to itself, too (`GATLayer`).
        num_relations: number of relations of rgcn, which requires it: one more than the graph's largest edge type.
        num_bases: number of bases of rgcn, or of diagonal blocks, which then divides all three dimensions; None: as
            many as relations.
        regularizer: "basis" or "bdd" (block-diagonal) for rgcn.
        seed: seed of the initial weights and of dropout; torch's global generator is not changed.
        reuse_buffers: layers, ReLU and dropout write results and gradients into buffers that are kept from step to step
            (sage-mean, sage-gcn, gcn, gin; float32 or float64): a step allocates hardly more than its output and the
            gradients of the parameters. Every forward pass must be followed by its backward pass before the next one;
            hidden values and their gradients, which hooks see, are overwritten by it. Norms allocate as usual.
            `model.workspace.release()` frees the buffers.

    Returns:
        The model, on the CPU.

    Raises:
        ValueError: an unknown kind, norm or regularizer, sizes below 1, heads that don't divide `hidden_dim` or blocks
            that don't divide the dimensions, options that the kind does not have, a seed that is not an integer, or
            `reuse_buffers` for a kind that can't.
        CapacityError: the weights exceed this machine's memory.

    Source: of `reuse_buffers`, Hoang et al., "BatchGNN" (2023), section 3.

    >>> build_model("gcn", in_dim=8, hidden_dim=4, out_dim=2).layers[1]
    GCNLayer(4, 2, norm='right')
    """
    check_choice("kind", kind, (*MODEL_KINDS, *TYPED_MODEL_KINDS))
    sizes = {"in_dim": in_dim, "hidden_dim": hidden_dim, "out_dim": out_dim, "num_layers": num_layers, "heads": heads}
    for name, size in sizes.items():
        check_at_least(name, size, 1, most=_MAX_LAYERS if name == "num_layers" else _MAX_DIM)
    if heads > 1 and kind != "gat":
        raise ValueError(f"heads is {heads}, but {kind} has no heads; leave it at 1 or use gat")
    if self_attention and kind != "gat":
        raise ValueError(f"self_attention is True, but {kind} has no attention; leave it at False or use gat")
    attention = {"heads": heads, "self_attention": self_attention}
    relations = _relation_options(kind, num_relations, num_bases, regularizer)
    if reuse_buffers and kind not in REUSING_KINDS:
        raise ValueError(
            f"reuse_buffers is True, but layers of {kind} can't reuse buffers; leave it at False, or use one of "
            f"{', '.join(REUSING_KINDS)}"
        )
    check_seed(seed)
    _check_memory(sizes, relations)
    dims = [in_dim, *[hidden_dim] * (num_layers - 1), out_dim]
    with deferred_interrupt(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        layers = [
            _build_layer(
                kind, dims[i], dims[i + 1], hidden_dim, norm, attention, relations, i == num_layers - 1, reuse_buffers
            )
            for i in range(num_layers)
        ]
    between = range(num_layers - 1)
    if reuse_buffers:
        return _reusing(layers, [build_norm(norm, hidden_dim) for _ in between], dropout, seed)
    return GNN(
        layers,
        norms=[build_norm(norm, hidden_dim) for _ in between],
        activation=nn.ELU() if kind == "gat" else nn.ReLU(),
        dropouts=[HashDropout(dropout, layer, seed) for layer in between],
    )


def _reusing(layers: list[Any], norms: list[nn.Module], dropout: float, seed: int) -> GNN:
    """Give all layers one workspace."""
    workspace = Workspace()
    for position, layer in enumerate(layers):
        layer.use(workspace, position, is_last=position == len(layers) - 1)
    dropouts = [ReusingDropout(dropout, layer, seed, workspace=workspace) for layer in range(len(layers) - 1)]
    return GNN(layers, norms, ReusingReLU(workspace), dropouts, workspace)


def models_for(graph: Graph) -> tuple[str, ...]:
    """Return the kinds of models that a graph allows: relational ones need edge types."""
    return MODEL_KINDS if graph.edge_type is None else (*MODEL_KINDS, *TYPED_MODEL_KINDS)


def relation_options(kind: str, graph: Graph, *, num_bases: int | None = None) -> dict[str, int | None]:
    """Return the options of `build_model` that describe a graph's relations; none for kinds without relations.

    Raises:
        ValueError: a relational kind, and a graph without edge types.
    """
    if kind not in TYPED_MODEL_KINDS:
        return {}
    if graph.edge_type is None:
        raise ValueError(
            f"{kind} needs edge types, which this graph does not have; use a typed graph (fb15k-237, codex-m, "
            f"synthetic-fb15k-237, synthetic-mag240M), or one of {', '.join(MODEL_KINDS)}"
        )
    return {"num_relations": int(graph.edge_type.max()) + 1 if graph.num_edges else 1, "num_bases": num_bases}


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

    0 for features, which are exchanged as they are and need no gradient.

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
    first = kind == "gat" or out_dim < in_dim  # as `multiplies_first` decides on devices
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
