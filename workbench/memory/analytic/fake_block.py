"""The sizes of a block in the simulation, and the arrays that layers derive from it and cache in it."""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.memory.analytic.fake_autograd import FakeAutograd, FakeTensor
from workbench.memory.analytic.simulated_allocator import Storage
from workbench.memory.sizes import BlockSizes


class FakeSharedRows:
    """The simulated arrays that `workbench.core.block.SharedRows` derives for blocks of one CSR.

    A block that shares rows with no other is a group of its own, whose arrays are those of `Block`.

    Args:
        autograd: the simulation that allocates the derived arrays.
        group: sizes of the blocks, input layer first.
    """

    def __init__(self, autograd: FakeAutograd, group: Sequence[BlockSizes]) -> None:
        self._allocate, self._group = autograd.allocator.allocate, group
        self._expected = 0
        self._destinations: tuple[int, Storage] | None = None
        self._transposed: tuple[BlockSizes, list[Storage]] | None = None

    def expect_transposed(self, sizes: BlockSizes) -> None:
        self._expected = max(self._expected, sizes.num_dst)

    def derive_destinations(self, s: BlockSizes) -> None:
        if self._destinations is None or self._destinations[0] < s.num_edges:
            allocate = self._allocate
            rows, degrees = allocate(s.num_dst * s.index_bytes, "blocks"), allocate(s.num_dst * 8, "blocks")
            edges = allocate(s.num_edges * 8, "blocks")  # repeat_interleave makes 64-bit positions, then selects
            self._destinations = s.num_edges, allocate(s.num_edges * s.index_bytes, "blocks")
            del rows, degrees, edges

    def derive_transposed(self, sizes: BlockSizes) -> BlockSizes:
        """Allocate the transpose of the largest block that needs one, and return its sizes."""
        if self._transposed is None or self._transposed[0].num_dst < sizes.num_dst:
            rows = max(self._expected, sizes.num_dst)
            largest, *smaller = (s for s in self._group if s.num_dst <= rows)
            widths = (8 * (largest.num_src + 2), largest.index_bytes * largest.num_edges, 8 * largest.num_edges)
            ends = [8 * s.num_src for s in smaller]
            self._transposed = largest, [self._allocate(width, "blocks") for width in (*widths, *ends)]
        return self._transposed[0]


@dataclass
class FakeBlock:
    """A block's sizes, and the simulated arrays that layers derive from the block and cache in it.

    Args:
        autograd: the simulation that allocates the derived arrays.
        sizes: sizes of the block.
        shared: the arrays derived for it and the blocks that it shares rows with.
    """

    autograd: FakeAutograd
    sizes: BlockSizes
    shared: FakeSharedRows

    @staticmethod
    def of_batch(autograd: FakeAutograd, blocks: Sequence[BlockSizes]) -> "list[FakeBlock]":
        """Make the blocks of a batch, input layer first."""
        groups: list[list[BlockSizes]] = []
        for sizes in blocks:
            groups = [*groups[:-1], [*groups[-1], sizes]] if sizes.is_row_prefix else [*groups, [sizes]]
        shared = [(group, FakeSharedRows(autograd, group)) for group in groups]
        return [FakeBlock(autograd, sizes, arrays) for group, arrays in shared for sizes in group]

    def derive_destinations(self) -> None:
        """Allocate `Block.destinations`, which the torch forms use, unless cached."""
        self.shared.derive_destinations(self.sizes)

    def expect_transposed(self) -> None:
        """`Block.expect_transposed`."""
        self.shared.expect_transposed(self.sizes)

    def derive_transposed(self) -> BlockSizes:
        """Allocate `Block.transposed`, which the compiled forms use, unless cached; return the sizes of its arrays."""
        return self.shared.derive_transposed(self.sizes)

    def degrees(self, *, plus_one: bool = False) -> FakeTensor:
        """1 / in-degree as float32 [num_dst]; the torch form, and that of in-degree + 1, make 64-bit counts first."""
        if not self.autograd.on_cuda and not plus_one:
            return self.autograd.empty(self.sizes.num_dst, 1, 4)
        counts = self.autograd.empty(self.sizes.num_dst, 1, 8)
        if plus_one:
            counts = self.autograd.empty_like(counts)
        return self.autograd.empty(counts.rows, 1, 4)

    def out_degrees(self) -> FakeTensor:
        """1 / √out-degree as float32 [num_src], computed from 64-bit counts."""
        self.autograd.allocate_temporary(self.sizes.num_src * 8)
        return self.autograd.empty(self.sizes.num_src, 1, 4)
