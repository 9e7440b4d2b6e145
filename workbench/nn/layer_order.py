"""The order in which a layer multiplies by its weight matrix, aggregates, and exchanges rows with other ranks."""

from collections.abc import Callable

from torch import Tensor, nn

from workbench.core.block import Block


def multiplies_first(num_src: int, num_dst: int, in_dim: int, out_dim: int, *, compiled: bool) -> bool:
    """Return whether a layer multiplies by its weight before it aggregates, which gives the same result up to rounding.

    The order with the smaller intermediate result also takes less time on a CPU: a sampled block has several sources
    per destination, whose dense product is most of a layer's work, and parts of a batch share sources, so that work per
    source is repeated in every micro-batch. The torch kernels of other devices materialise one message per edge, which
    is narrower after a multiplication that narrows the rows.

    Args:
        num_src: sources of the block.
        num_dst: destinations of the block.
        in_dim: channels before the multiplication.
        out_dim: channels after it.
        compiled: the aggregate is computed by the compiled kernels of the CPU.
    """
    return out_dim < in_dim and not (compiled and num_dst * in_dim <= num_src * out_dim)


def multiplies_before_exchange(in_dim: int, out_dim: int, *, needs_gradient: bool, trains: bool = True) -> bool:
    """Return whether ranks multiply the rows that they own and exchange the products, in a layer that multiplies all
    rows before it aggregates them (GAT), because that sends no more bytes: then no rank multiplies rows of others.

    Rows travel forward, and gradients back: of products if the model is trained, of the layer's input if it needs one.
    The answer depends on what all ranks have alike, so that all exchange rows of the same width.

    Args:
        in_dim: channels before the multiplication.
        out_dim: channels after it, of all heads.
        needs_gradient: the layer's input does; features usually don't.
        trains: there will be a backward pass.
    """
    return out_dim * (1 + trains) <= in_dim * (1 + needs_gradient)


Exchanger = Callable[[Tensor], Tensor]
"""Fills the halo of a block: maps its owned source rows to the rows of [owned | halo]. It may have a method `start(h,
num_dst)` that begins to, and returns the destinations' rows and a function that finishes, such as
`workbench.cooperative.exchangers.HaloExchange.start`."""


def call_layer(layer: nn.Module, block: Block, h: Tensor, exchange: Exchanger | None) -> Tensor:
    """Call a layer of a block, whose halo it may fill itself: after, or during, work on its own rows.

    Args:
        layer: called with (block, h, exchange) if it sets `exchanges_itself`, else with (block, h).
        block: one layer of a batch.
        h: floating [owned sources, in_dim].
        exchange: fills the halo; None: the block has none.

    Returns:
        [num_dst, out_dim].
    """
    if exchange is None:
        return layer(block, h)
    if getattr(layer, "exchanges_itself", False):
        return layer(block, h, exchange)
    return layer(block, exchange(h))
