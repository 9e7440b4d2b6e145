"""GNN models: layers of one kind, with normalization, activation and dropout in between."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.core.capacity import check_fits
from workbench.core.errors import check_at_least, check_choice, check_seed, check_type
from workbench.core.interrupts import deferred_interrupt
from workbench.nn.dropout import HashDropout
from workbench.nn.gat import GATLayer
from workbench.nn.gcn import GCNLayer
from workbench.nn.gin import GINLayer
from workbench.nn.norm import build_norm
from workbench.nn.rgcn import RGCN_REGULARIZERS, RGCNLayer
from workbench.nn.sage import SAGE_AGGREGATORS, SAGELayer

MODEL_KINDS = (*(f"sage-{aggregator}" for aggregator in SAGE_AGGREGATORS), "gcn", "gin", "gat")
TYPED_MODEL_KINDS = ("rgcn",)
"""Kinds that need edge types; `MODEL_KINDS` accept any graph."""
_MAX_DIM, _MAX_LAYERS = 2**31 - 1, 1000
Exchanger = Callable[[Tensor], Tensor]
"""Fills the halo of a block: maps its owned source rows to the rows of [owned | halo]."""


class GNN(nn.Module):
    """A stack of layers; each but the last is followed by normalization, activation and dropout.

    Args:
        layers: modules called with (block, h), input layer first.
        norms: normalization after each layer but the last.
        activation: activation after each layer but the last.
        dropouts: dropout after each layer but the last.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        norms: Sequence[nn.Module],
        activation: nn.Module,
        dropouts: Sequence[HashDropout],
    ) -> None:
        super().__init__()
        self.layers, self.norms = nn.ModuleList(layers), nn.ModuleList(norms)
        self.activation, self.dropouts = activation, nn.ModuleList(dropouts)

    def forward(
        self,
        blocks: Sequence[Block],
        x: Tensor,
        *,
        node_ids: Tensor | None = None,
        step: int = 0,
        exchanges: Sequence[Exchanger] | None = None,
        aggregated: Tensor | None = None,
    ) -> Tensor:
        """Compute the seeds' outputs.

        Args:
            blocks: one block per layer, input layer first; with `aggregated` without the first layer's.
            x: floating [sources of the first block, in_dim]; with `exchanges` only its owned sources; with `aggregated`
                the destinations of the first layer.
            node_ids: int64, raw-graph ids of the rows of `x`, for dropout that is exact under splitting.
            step: number of the batch, for dropout.
            exchanges: per block a function that maps its owned source rows to the rows of [owned | halo]; None: the
                blocks have no halo.
            aggregated: [destinations of the first layer, in_dim], the precomputed aggregate of the first layer.

        Returns:
            [num_seeds, out_dim].

        Raises:
            ValueError: wrong number of blocks or exchanges, features of another width, `aggregated` for a layer whose
                aggregate is not linear, or of another shape than `x`.
            TypeError: features of another dtype than the model's parameters (unless autocast converts them).
        """
        first = 0 if aggregated is None else 1
        self._check(len(blocks) + first, blocks, exchanges, aggregated)
        self.check_features(x)
        if aggregated is not None and aggregated.shape != x.shape:
            raise ValueError(
                f"aggregated has shape {tuple(aggregated.shape)}, but x {tuple(x.shape)}; pass one row of in_dim "
                "channels per destination of the first layer in both"
            )
        h = x if aggregated is None else self._activate(0, self.layers[0].update(x, aggregated), node_ids, step)  # type: ignore[operator]
        for position, (layer, block) in enumerate(zip(list(self.layers)[first:], blocks, strict=True)):
            h_src = h if exchanges is None else exchanges[position](h)
            h = self._activate(position + first, layer(block, h_src), node_ids, step)
        return h

    def _activate(self, layer: int, h: Tensor, node_ids: Tensor | None, step: int) -> Tensor:
        """Apply normalization, activation and dropout, except after the last layer."""
        if layer == len(self.layers) - 1:
            return h
        ids = None if node_ids is None else node_ids[: h.shape[0]]
        return self.dropouts[layer](self.activation(self.norms[layer](h)), ids, step)

    def _check(
        self, layers: int, blocks: Sequence[Block], exchanges: Sequence[Exchanger] | None, aggregated: Tensor | None
    ) -> None:
        if layers != len(self.layers):
            expected = len(self.layers) - (aggregated is not None)
            raise ValueError(f"{len(blocks)} blocks given; this model of {len(self.layers)} layers needs {expected}")
        if exchanges is not None and len(exchanges) != len(blocks):
            raise ValueError(f"{len(exchanges)} exchanges for {len(blocks)} blocks; pass one per block")
        if aggregated is not None and not self.layers[0].is_linear:
            raise ValueError("aggregated= needs a first layer with a linear aggregate: sage-mean, sage-gcn, gcn or gin")

    def check_features(self, x: Tensor) -> None:
        """Refuse features that don't fit the first layer; torch's error would name neither features nor model.

        Args:
            x: floating [nodes, in_dim].

        Raises:
            ValueError: another width.
            TypeError: another dtype than the parameters' (unless autocast converts it).
        """
        if torch.compiler.is_compiling():
            return
        check_type("x", x, Tensor, "pass the features of the batch's inputs, x[batch.node_ids]")
        width, parameter = getattr(self.layers[0], "in_dim", None), next(self.parameters(), None)
        if width is not None and (x.dim() != 2 or x.shape[1] != width):
            raise ValueError(
                f"features have shape {tuple(x.shape)}, but the model reads [nodes, {width}]; build it with "
                "in_dim=x.shape[1]"
            )
        if parameter is None or x.dtype == parameter.dtype or torch.is_autocast_enabled(x.device.type):
            return
        raise TypeError(
            f"features are {x.dtype}, the model's parameters {parameter.dtype}; convert the features, "
            f"x.to({parameter.dtype}), or the model, model.to({x.dtype})"
        )


def _build_layer(
    kind: str,
    in_dim: int,
    out_dim: int,
    hidden_dim: int,
    norm: str | None,
    heads: int,
    relations: Mapping[str, Any],
    last: bool,
) -> nn.Module:
    if kind == "rgcn":
        return RGCNLayer(in_dim, out_dim, **relations)
    if kind == "gcn":
        return GCNLayer(in_dim, out_dim)
    if kind == "gin":
        return GINLayer(in_dim, out_dim, hidden_dim=hidden_dim, norm=norm)
    if kind == "gat":
        return GATLayer(in_dim, out_dim, heads=heads, concat=not last)
    return SAGELayer(in_dim, out_dim, aggregator=kind.removeprefix("sage-"))


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
    num_relations: int | None = None,
    num_bases: int | None = None,
    regularizer: str = "basis",
    seed: int = 0,
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
        num_relations: number of relations of rgcn, which requires it: one more than the graph's largest edge type.
        num_bases: number of bases of rgcn, or of diagonal blocks, which then divides all three dimensions; None: as
            many as relations.
        regularizer: "basis" or "bdd" (block-diagonal) for rgcn.
        seed: seed of the initial weights and of dropout; torch's global generator is not changed.

    Returns:
        The model, on the CPU.

    Raises:
        ValueError: an unknown kind, norm or regularizer, sizes below 1, heads that don't divide `hidden_dim` or blocks
            that don't divide the dimensions, options that the kind does not have, a seed that is not an integer.
        CapacityError: the weights exceed this machine's memory.

    >>> build_model("gcn", in_dim=8, hidden_dim=4, out_dim=2).layers[1]
    GCNLayer(4, 2, norm='right')
    """
    check_choice("kind", kind, (*MODEL_KINDS, *TYPED_MODEL_KINDS))
    sizes = {"in_dim": in_dim, "hidden_dim": hidden_dim, "out_dim": out_dim, "num_layers": num_layers, "heads": heads}
    for name, size in sizes.items():
        check_at_least(name, size, 1, most=_MAX_LAYERS if name == "num_layers" else _MAX_DIM)
    if heads > 1 and kind != "gat":
        raise ValueError(f"heads is {heads}, but {kind} has no heads; leave it at 1 or use gat")
    relations = _relation_options(kind, num_relations, num_bases, regularizer)
    check_seed(seed)
    _check_memory(sizes, relations)
    dims = [in_dim, *[hidden_dim] * (num_layers - 1), out_dim]
    with deferred_interrupt(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        layers = [
            _build_layer(kind, dims[i], dims[i + 1], hidden_dim, norm, heads, relations, last=i == num_layers - 1)
            for i in range(num_layers)
        ]
    between = range(num_layers - 1)
    return GNN(
        layers,
        norms=[build_norm(norm, hidden_dim) for _ in between],
        activation=nn.ELU() if kind == "gat" else nn.ReLU(),
        dropouts=[HashDropout(dropout, layer, seed) for layer in between],
    )
