"""`GNN`: layers of any kind, with normalization, activation and dropout in between."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.core.errors import check_type
from workbench.nn.dropout import HashDropout
from workbench.nn.linear_with_self import Exchanger, call_layer
from workbench.nn.reuse.workspace import Workspace, check_reusable


class GNN(nn.Module):
    """A stack of layers; each but the last is followed by normalization, activation and dropout.

    Args:
        layers: modules called with (block, h), input layer first.
        norms: normalization after each layer but the last.
        activation: activation after each layer but the last.
        dropouts: dropout after each layer but the last.
        workspace: buffers that layers, activation and dropouts reuse; None: they allocate what they return.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        norms: Sequence[nn.Module],
        activation: nn.Module,
        dropouts: Sequence[HashDropout],
        workspace: Workspace | None = None,
    ) -> None:
        super().__init__()
        self.layers, self.norms = nn.ModuleList(layers), nn.ModuleList(norms)
        self.activation, self.dropouts = activation, nn.ModuleList(dropouts)
        self.workspace = workspace

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
            TypeError: features of another dtype than the model's parameters (unless autocast converts them); with
                reused buffers, half precision or autocast.
            RuntimeError: with reused buffers, the backward pass of an earlier forward pass is still to come.
        """
        if self.workspace is None:
            return self._run(blocks, x, node_ids, step, exchanges, aggregated)
        check_reusable(x)
        with self.workspace.forward_pass():
            return self._run(blocks, x, node_ids, step, exchanges, aggregated)

    def _run(
        self,
        blocks: Sequence[Block],
        x: Tensor,
        node_ids: Tensor | None,
        step: int,
        exchanges: Sequence[Exchanger] | None,
        aggregated: Tensor | None,
    ) -> Tensor:
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
            exchange = None if exchanges is None else exchanges[position]
            # No name for the layer's result: it would stay alive beside the activation's.
            h = self._activate(position + first, call_layer(layer, block, h, exchange), node_ids, step)
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
