"""What operations over a block's edges hold: sums, maxima, attention, messages laid out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from workbench.kernels.segment import MESSAGE_BYTES
from workbench.memory.analytic.dense import cast
from workbench.memory.analytic.ledger import Storage
from workbench.memory.analytic.tape import Shadow, Tape
from workbench.memory.sizes import BlockSizes


@dataclass
class ShadowBlock:
    """A block on a tape: its sizes, and what has been derived from it and is kept with it.

    Args:
        tape: where what is derived is held.
        sizes: of the block.
    """

    tape: Tape
    sizes: BlockSizes
    _derived: dict[str, list[Storage]] = field(default_factory=dict)

    def derive_destinations(self) -> None:
        """`Block.destinations`, for the torch forms."""
        if "destinations" not in self._derived:
            s, hold = self.sizes, self.tape.ledger.hold
            rows, degrees = hold(s.num_dst * s.index_bytes, "blocks"), hold(s.num_dst * 8, "blocks")
            edges = hold(s.num_edges * 8, "blocks")  # repeat_interleave makes 64-bit positions, then selects
            self._derived["destinations"] = [hold(s.num_edges * s.index_bytes, "blocks")]
            del rows, degrees, edges

    def derive_transposed(self) -> None:
        """`Block.transposed`, for the compiled forms."""
        if "transposed" not in self._derived:
            s, hold = self.sizes, self.tape.ledger.hold
            widths = (8 * (s.num_src + 1), s.index_bytes * s.num_edges, 8 * s.num_edges)
            self._derived["transposed"] = [hold(width, "blocks") for width in widths]
            self.tape.ledger.touch(8 * s.num_src, "blocks")

    def degrees(self, *, plus_one: bool = False) -> Shadow:
        """1 / in-degree as float32 [num_dst], by way of 64-bit counts."""
        counts = self.tape.new(self.sizes.num_dst, 1, 8)
        if plus_one:
            counts = self.tape.like(counts)
        return self.tape.new(counts.rows, 1, 4)

    def out_degrees(self) -> Shadow:
        """1 / √out-degree as float32 [num_src], by way of 64-bit counts."""
        self.tape.touch(self.sizes.num_src * 8)
        return self.tape.new(self.sizes.num_src, 1, 4)


def wide(itemsize: int) -> int:
    """Half precision is computed in float32."""
    return max(4, itemsize)


def _messages(tape: Tape, num_edges: int, row_bytes: int, copies: float = 1) -> Storage:
    """Messages of one range of edges; `copies` of them at once. Whoever does not keep them has them touched."""
    ranges = max(1, MESSAGE_BYTES // max(1, int(row_bytes * max(1, copies))))
    return tape.ledger.hold(int(min(num_edges, ranges) * row_bytes * copies), tape.term)


def _sum_rows(tape: Tape, block: ShadowBlock, rows: int, cols: int, itemsize: int, scaled: bool = False) -> Shadow:
    """A result of [rows, cols] summed over the edges."""
    out = tape.new(rows, cols, itemsize)
    if tape.on_cuda:
        block.derive_destinations()
        _messages(tape, block.sizes.num_edges, cols * itemsize + (itemsize if scaled else 0))
    return out


def segment_sum_and_own(
    tape: Tape, block: ShadowBlock, x: Shadow, scale: Shadow | None = None, weight: Shadow | None = None
) -> tuple[Shadow, Shadow]:
    """`workbench.kernels.segment_sum.segment_sum_and_own`; `weight` is attention, which needs a gradient, or None."""
    narrow = x.itemsize
    weight = None if weight is None else cast(tape, weight, wide(narrow))
    rows = cast(tape, x, wide(narrow))
    out, own = _sum_and_own(tape, block, rows, scale, weight)
    return cast(tape, out, narrow), cast(tape, own, narrow)


def _sum_and_own(
    tape: Tape, block: ShadowBlock, x: Shadow, scale: Shadow | None, weight: Shadow | None
) -> tuple[Shadow, Shadow]:
    sizes = block.sizes
    cols, itemsize, wants, scaled = x.cols, x.itemsize, x.source is not None, scale is not None
    out = _sum_rows(tape, block, sizes.num_dst, cols, itemsize)
    own = x.view(sizes.num_dst, is_view=True).detached()
    heads = None if weight is None else weight.cols

    def backward(grad: Shadow | None, own_grad: Shadow | None) -> Sequence[Shadow | None]:
        grad = own_grad if grad is None else grad
        for_x = None
        if wants:
            if not tape.on_cuda:
                block.derive_transposed()
            for_x = _sum_rows(tape, block, sizes.num_src, cols, itemsize, scaled)
        return for_x, None if heads is None else _edge_dots(tape, block, heads, cols, itemsize)

    tape.record([out, own], [x, weight], backward, saves=[scale] if weight is None else [x, weight, scale])
    return out, own


def _edge_dots(tape: Tape, block: ShadowBlock, heads: int, cols: int, itemsize: int) -> Shadow:
    out = tape.new(block.sizes.num_edges, heads, itemsize)
    if tape.on_cuda:
        _messages(tape, block.sizes.num_edges, cols * itemsize, copies=2)
    return out


def segment_max(tape: Tape, block: ShadowBlock, x: Shadow) -> Shadow:
    """`workbench.kernels.segment_max.segment_max`, which saves the winning edges."""
    return cast(tape, _max(tape, block, cast(tape, x, wide(x.itemsize))), x.itemsize)


def _max(tape: Tape, block: ShadowBlock, x: Shadow) -> Shadow:
    sizes, cols, itemsize = block.sizes, x.cols, x.itemsize
    out = tape.new(sizes.num_dst, cols, itemsize)
    winner = tape.new(sizes.num_dst, cols, sizes.edge_bytes)
    if tape.on_cuda:
        block.derive_destinations()
        kept = tape.ledger.hold(sizes.num_edges * sizes.edge_bytes, tape.term)
        rows = tape.ledger.hold(sizes.num_edges * 8, tape.term)
        messages = _messages(tape, sizes.num_edges, cols * itemsize, copies=2.25)  # with candidates and what wins
        tape.touch(winner.rows * cols)
        del kept, rows, messages

    def backward(grad: Shadow) -> Sequence[Shadow | None]:
        for_x = tape.new(sizes.num_src, cols, itemsize)
        if tape.on_cuda:
            _scatter_to_winners(tape, block, cols)
        return [for_x]

    tape.record([out], [x], backward, saves=[winner])
    return out


def _scatter_to_winners(tape: Tape, block: ShadowBlock, cols: int) -> None:
    edges = tape.new(block.sizes.num_dst, cols, 8)
    values = tape.new(block.sizes.num_dst, cols, 4)
    sources = tape.new(block.sizes.num_edges, 1, 8)
    tape.touch(edges.nbytes)
    del edges, values, sources


def edge_attention(tape: Tape, block: ShadowBlock, left: Shadow, right: Shadow) -> Shadow:
    """`workbench.kernels.edge_softmax.edge_attention`, which saves the scores and the attention."""
    narrow, sizes, heads = left.itemsize, block.sizes, left.cols
    left, right = cast(tape, left, wide(narrow)), cast(tape, right, wide(narrow))
    out = tape.new(sizes.num_edges, heads, left.itemsize)
    _score_edges(tape, block, out)
    wide_bytes = out.itemsize

    def backward(grad: Shadow) -> Sequence[Shadow | None]:
        return _attention_gradients(tape, block, heads, wide_bytes)

    tape.record([out], [left, right], backward, saves=[left, right, out])
    return cast(tape, out, narrow)


def _score_edges(tape: Tape, block: ShadowBlock, out: Shadow) -> None:
    """The compiled form lays scores of nodes out side by side, the torch form makes copies a value an edge."""
    sizes = block.sizes
    if tape.on_cuda:
        block.derive_destinations()
        rows, copies = tape.new(sizes.num_edges, 1, 8), tape.like(out)
        tape.touch(out.nbytes)
        del rows, copies
    else:
        _line_up_scores(tape, sizes, out)


def _line_up_scores(tape: Tape, sizes: BlockSizes, out: Shadow) -> None:
    left = tape.new(sizes.num_src, out.cols, out.itemsize)
    tape.touch(sizes.num_dst * out.cols * out.itemsize)
    del left


def _attention_gradients(tape: Tape, block: ShadowBlock, heads: int, itemsize: int) -> Sequence[Shadow]:
    sizes = block.sizes
    per_edge = tape.new(sizes.num_edges, heads, itemsize)
    for_right = tape.new(sizes.num_dst, heads, itemsize)
    if tape.on_cuda:
        copies = [tape.like(per_edge) for _ in range(3)]  # sums, what leaky_relu makes of them, the choice
        tape.touch(sizes.num_edges * heads)
        del copies
        edges = tape.new(sizes.num_edges, 1, 8)
        for_left = tape.new(sizes.num_src, heads, itemsize)
        _messages(tape, sizes.num_edges, heads * itemsize)
        del edges
    else:
        _line_up_scores(tape, sizes, per_edge)
        block.derive_transposed()
        for_left = tape.new(sizes.num_src, heads, itemsize)
    return for_left, for_right


def gather_edges(tape: Tape, block: ShadowBlock, x: Shadow, order: Storage) -> Shadow:
    """`workbench.kernels.gather.gather_edges`, which saves the order."""
    sizes, cols, itemsize = block.sizes, x.cols, x.itemsize
    sources = tape.ledger.hold(sizes.num_edges * sizes.index_bytes, tape.term)
    out = tape.new(sizes.num_edges, cols, itemsize)
    del sources

    def backward(grad: Shadow) -> Sequence[Shadow | None]:
        grad = cast(tape, grad.detached(), wide(itemsize))
        if tape.on_cuda:
            for_x = tape.new(sizes.num_src, cols, grad.itemsize)
            tape.touch(sizes.num_edges * sizes.index_bytes)
        else:
            position = tape.new(sizes.num_edges, 1, 8)
            tape.touch(sizes.num_edges * 8)
            block.derive_transposed()
            listed = tape.new(sizes.num_edges, 1, 8)
            for_x = tape.new(sizes.num_src, cols, grad.itemsize)
            del position, listed
        return [cast(tape, for_x, itemsize)]

    tape.record([out], [x], backward, saves=[order])
    return out
