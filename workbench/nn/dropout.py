"""Between layers: normalization, and dropout whose mask hashes node ids: the same in every micro-batch."""

from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from workbench.core.errors import ID_DTYPES, check_at_least, check_choice, check_seed, check_vector
from workbench.core.randomness import Purpose, stream
from workbench.kernels.dropout_mask import apply_mask, drop_threshold
from workbench.kernels.jit import runs_eagerly


class _Masked(torch.autograd.Function):
    """Apply the mask; the backward pass recomputes it from the node ids instead of saving it."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, node_ids: Tensor, key: int, threshold: int) -> Tensor:
        ctx.save_for_backward(node_ids)
        ctx.key, ctx.threshold = key, threshold
        return apply_mask(h, node_ids, key, threshold)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        (node_ids,) = ctx.saved_tensors
        return apply_mask(grad, node_ids, ctx.key, ctx.threshold), None, None, None


@runs_eagerly
def _masked(h: Tensor, node_ids: Tensor, key: tuple[int, Purpose, int, int], threshold: int) -> Tensor:
    return _Masked.apply(h, node_ids, stream(*key), threshold)


class HashDropout(nn.Module):
    """Dropout by a hash of (seed, step, layer; node id, channel), scaled by 1 / (1 - p).

    A node's mask does not depend on its position, the other nodes of the batch, the device or the number of threads:
    micro-batches drop the same values as the whole batch. `p` is rounded to a multiple of 2⁻¹⁶, and the scale is the
    exact inverse of the rounded probability of keeping a value.

    Args:
        p: probability of dropping a value, in [0, 1).
        layer: number of the layer, from 0 at the input.
        seed: the model's seed.

    Raises:
        ValueError: `p` out of range, or `layer` or `seed` not an integer.
    """

    def __init__(self, p: float, layer: int = 0, seed: int = 0) -> None:
        super().__init__()
        check_at_least("layer", layer, 0)
        if isinstance(p, bool) or not isinstance(p, Real):
            raise ValueError(f"dropout probability is {p!r}; it must be a number, such as 0.5")
        self.p, self.layer, self.seed = p, layer, check_seed(seed)
        self._threshold = drop_threshold(p)

    def forward(self, h: Tensor, node_ids: Tensor | None, step: int = 0) -> Tensor:
        """Drop values in training mode; return `h` itself in evaluation mode.

        Args:
            h: floating [nodes, channels].
            node_ids: int64 [nodes], raw-graph ids. None: torch's own dropout, which is *not* exact under splitting.
            step: number of the batch.

        Returns:
            [nodes, channels].

        Raises:
            ValueError: `h` is not a matrix, or the number of ids differs from the number of rows.
            TypeError: the ids are not integers.
        """
        if not self.training or self._threshold == 0:
            return h
        if node_ids is None:
            return nn.functional.dropout(h, self.p)
        if h.dim() != 2:
            raise ValueError(f"h has shape {tuple(h.shape)}; reshape it to [nodes, channels]: h.reshape(len(h), -1)")
        check_vector("node_ids", node_ids, None, ID_DTYPES)
        if node_ids.shape != h.shape[:1]:
            raise ValueError(f"{node_ids.shape[0]} node ids for {h.shape[0]} rows; pass one id per row")
        return self._drop(h, node_ids, step)

    def _drop(self, h: Tensor, node_ids: Tensor, step: int) -> Tensor:
        return _masked(h, node_ids, self._key(step), self._threshold)

    def _key(self, step: int) -> tuple[int, Purpose, int, int]:
        return self.seed, Purpose.DROPOUT, step, self.layer

    def extra_repr(self) -> str:
        return f"p={self.p}, layer={self.layer}, seed={self.seed}"


_NORMS: dict[str, type[nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


def build_norm(kind: str | None, channels: int) -> nn.Module:
    """Build the normalization of a hidden representation [nodes, channels]; the identity for None.

    "batch" normalises by statistics over the rows of a micro-batch, so it is not exact under splitting; "layer" is.
    """
    if kind is None:
        return nn.Identity()
    check_choice("norm", kind, _NORMS)
    return _NORMS[kind](channels)
