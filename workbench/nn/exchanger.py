"""`Exchanger`: what fills the halo of a block, for layers that do so themselves."""

from collections.abc import Callable

from torch import Tensor, nn

from workbench.core.block import Block

Exchanger = Callable[[Tensor], Tensor]
"""Fills the halo of a block: maps its owned source rows to the rows of [owned | halo]. It may have a method `start(h,
num_dst)` that begins to, and returns the destinations' rows and a function that finishes, such as
`workbench.distributed.exchangers.HaloExchange.start`."""


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
