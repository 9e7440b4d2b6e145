"""`FakeAutograd`: operations on tensors without values, their backward pass, and the bytes live at every moment."""

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from workbench.memory.estimate import PHASES, TERMS, BlockSizes
from workbench.memory.training_setup import Backend
from workbench.meter.allocation_tracker import rounded_bytes

Backward = Callable[..., Sequence["FakeTensor | None"]]


class SimulatedAllocator:
    """Tracks live bytes by term, the peak of each phase, and the terms at the overall peak.

    A storage is freed when its last reference is dropped, as with a tensor's storage.
    """

    def __init__(self) -> None:
        self.live = dict.fromkeys(TERMS, 0)
        self.total = 0
        self.peaks = dict.fromkeys(PHASES, 0)
        self.peak = 0
        self.terms_at_peak = dict(self.live)
        self._phase = PHASES[0]

    def start_phase(self, phase: str) -> None:
        """Attribute subsequent peaks to `phase`."""
        self._phase = phase
        self._update_peaks()

    def allocate(self, nbytes: int, term: str) -> "Storage":
        """Allocate a storage, its size rounded up as the caching allocator does."""
        storage = Storage(self, rounded_bytes(nbytes), term)
        self.live[term] += storage.nbytes
        self.total += storage.nbytes
        self._update_peaks()
        return storage

    def allocate_temporary(self, nbytes: int, term: str) -> None:
        """Allocate and immediately free, which may raise the peak."""
        self.allocate(nbytes, term)

    def _update_peaks(self) -> None:
        if self.total > self.peaks[self._phase]:
            self.peaks[self._phase] = self.total
            if self.total > self.peak:
                self.peak, self.terms_at_peak = self.total, dict(self.live)


class Storage:
    """A simulated allocation, freed with its last reference."""

    __slots__ = ("allocator", "nbytes", "term")

    def __init__(self, allocator: SimulatedAllocator, nbytes: int, term: str) -> None:
        self.allocator, self.nbytes, self.term = allocator, nbytes, term

    def set_term(self, term: str) -> None:
        """Count these bytes under another term from now on."""
        live = self.allocator.live
        live[self.term] -= self.nbytes
        live[term] += self.nbytes
        self.term = term

    def __del__(self) -> None:
        self.allocator.live[self.term] -= self.nbytes
        self.allocator.total -= self.nbytes


class FakeTensor:
    """A tensor [rows, cols] without values.

    Args:
        storage: its allocation, shared with its views; None for a parameter, whose bytes are counted elsewhere.
        rows: size of the first dimension.
        cols: product of the other dimensions.
        itemsize: bytes per element.
        grad_fn: the node that produced it and the index among the node's outputs; None if it requires no gradient.
        is_view: it covers part of a larger storage; as a parameter's gradient it would be copied.
    """

    __slots__ = ("cols", "grad_fn", "is_view", "itemsize", "rows", "storage")

    def __init__(
        self,
        storage: Storage | None,
        rows: int,
        cols: int,
        itemsize: int,
        grad_fn: "tuple[Node, int] | None" = None,
        is_view: bool = False,
    ) -> None:
        self.storage, self.rows, self.cols, self.itemsize = storage, rows, cols, itemsize
        self.grad_fn, self.is_view = grad_fn, is_view

    @property
    def nbytes(self) -> int:
        return self.rows * self.cols * self.itemsize

    @property
    def requires_grad(self) -> bool:
        return self.grad_fn is not None

    def view(self, rows: int | None = None, cols: int | None = None, *, is_view: bool = False) -> "FakeTensor":
        """The same storage in another shape; its gradient is that of this tensor."""
        rows, cols = self.rows if rows is None else rows, self.cols if cols is None else cols
        return FakeTensor(self.storage, rows, cols, self.itemsize, self.grad_fn, is_view or self.is_view)

    def detach(self) -> "FakeTensor":
        """The same storage and shape, cut off from the autograd graph."""
        return FakeTensor(self.storage, self.rows, self.cols, self.itemsize, None, self.is_view)


class Node:
    """An operation in the autograd graph."""

    __slots__ = ("backward", "grads", "next_functions", "order", "saved")

    def __init__(
        self,
        order: float,
        next_functions: "Sequence[tuple[Node, int] | None]",
        backward: Backward,
        num_outputs: int = 1,
        saved: Sequence[Any] = (),
    ) -> None:
        self.order, self.next_functions, self.backward, self.saved = order, next_functions, backward, saved
        self.grads: list[FakeTensor | None] = [None] * num_outputs


class FakeAutograd:
    """Records operations on fake tensors and runs their backward pass.

    Args:
        backend: the kernels whose allocations are simulated.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend, self.allocator = backend, SimulatedAllocator()
        self.term = "hidden"
        self.leaves: dict[int, FakeTensor] = {}
        self.gradients: list[AccumulateGrad] = []
        self.layer_blocks: list[FakeBlock] = []  # which layers made; nodes refer to them until the loss is freed
        self.buffers: dict[Any, Storage] = {}  # by name; they outlive the step (`workbench.memory.analytic.reuse`)
        self._orders = itertools.count()

    @property
    def on_cuda(self) -> bool:
        return self.backend.device == "cuda"

    @property
    def sums_in_torch(self) -> bool:
        """Whether sums and maxima over edges are torch's forms, which allocate messages."""
        return self.on_cuda and not self.backend.fused

    def empty(self, rows: int, cols: int, itemsize: int, term: str | None = None) -> FakeTensor:
        """Allocate a tensor; by default under the current `term`."""
        return FakeTensor(self.allocator.allocate(rows * cols * itemsize, term or self.term), rows, cols, itemsize)

    def empty_like(self, other: FakeTensor, term: str | None = None) -> FakeTensor:
        """Allocate a tensor of the shape and element size of another."""
        return self.empty(other.rows, other.cols, other.itemsize, term)

    def allocate_temporary(self, nbytes: int) -> None:
        """Allocate and immediately free the temporary of one operation."""
        self.allocator.allocate_temporary(nbytes, self.term)

    def add_leaves(self, module: nn.Module, *, accumulating: bool) -> None:
        """Make leaves of a module's trainable parameters, whose own bytes are counted elsewhere.

        Args:
            accumulating: their gradients, which outlive the backward pass, exist already.
        """
        for p in module.parameters():
            if p.requires_grad:
                leaf = FakeTensor(None, p.shape[0] if p.dim() else 1, math.prod(p.shape[1:]), p.element_size())
                grad = self.empty_like(leaf, "gradients") if accumulating else None
                self.gradients.append(AccumulateGrad(self, grad))
                leaf.grad_fn = (Node(math.inf, [], self.gradients[-1]), 0)
                self.leaves[id(p)] = leaf

    def leaf(self, parameter: Tensor | None) -> FakeTensor | None:
        """The leaf of a parameter; None if it is frozen, or None itself."""
        return self.leaves.get(id(parameter))

    def record(
        self,
        outputs: Sequence[FakeTensor],
        inputs: Sequence[FakeTensor | None],
        backward: Backward,
        saves: Sequence["FakeTensor | Storage | None"] = (),
    ) -> None:
        """Add an operation to the autograd graph, if one of its inputs requires a gradient.

        Args:
            saves: tensors or storages that stay alive until the backward function has run.
        """
        next_functions = [None if t is None else t.grad_fn for t in inputs]
        if any(function is not None for function in next_functions):
            # storages, since an output that was saved would refer to its own node
            saved = [t.storage if isinstance(t, FakeTensor) else t for t in saves]
            node = Node(next(self._orders), next_functions, backward, len(outputs), saved)
            for slot, output in enumerate(outputs):
                output.grad_fn = (node, slot)

    def backward(self, loss: FakeTensor) -> None:
        """Run the backward pass, latest operation first as torch does; gradients of activations are workspace."""
        assert loss.grad_fn is not None
        root, self.term = loss.grad_fn[0], "workspace"
        dependencies = _dependencies(root)
        root.grads[0] = self.empty_like(loss)
        ready = [(-root.order, id(root), root)]
        loss.grad_fn = None
        while ready:
            node = heapq.heappop(ready)[2]
            for following in self._run(node):
                dependencies[following] -= 1
                if not dependencies[following]:
                    heapq.heappush(ready, (-following.order, id(following), following))

    def _run(self, node: Node) -> list[Node]:
        """Run a node and pass its gradients on; returns the nodes that received one or, without gradients, none."""
        next_functions = node.next_functions
        grads, node.grads = node.grads, []
        undefined = all(grad is None for grad in grads)
        input_grads = [None] * len(next_functions) if undefined else node.backward(*grads)
        del grads
        node.backward, node.next_functions, node.saved = _already_freed, [], ()
        for function, grad in zip(next_functions, input_grads, strict=True):
            if function is not None and grad is not None:
                _add_to_buffer(self, *function, grad)
        return [function[0] for function in next_functions if function is not None]


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
        arrays: its own arrays, of a block that a layer makes; those of a batch are counted with the batch.
    """

    autograd: FakeAutograd
    sizes: BlockSizes
    shared: FakeSharedRows
    arrays: Sequence[Storage] = ()

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


def _already_freed(*_: Any) -> Sequence[None]:
    raise RuntimeError("backward through the same fake graph twice; record the operations again")


def _add_to_buffer(autograd: FakeAutograd, node: Node, slot: int, grad: FakeTensor) -> None:
    """Add to the gradients that a node collects, in place unless the first is a view."""
    first = node.grads[slot]
    if first is None:
        node.grads[slot] = grad
    elif first.is_view:
        node.grads[slot] = autograd.empty_like(first)


def _dependencies(root: Node) -> dict[Node, int]:
    """For each node the number of gradients that it waits for."""
    dependencies: dict[Node, int] = {root: 0}
    stack = [root]
    while stack:
        for function in stack.pop().next_functions:
            if function is not None:
                if function[0] not in dependencies:
                    dependencies[function[0]] = 0
                    stack.append(function[0])
                dependencies[function[0]] += 1
    return dependencies


class AccumulateGrad:
    """Accumulates a parameter's gradient: keeps the first, or a copy if it is a view, and adds the others in place."""

    def __init__(self, autograd: FakeAutograd, grad: FakeTensor | None) -> None:
        self._autograd, self.grad = autograd, grad

    def __call__(self, incoming: FakeTensor) -> Sequence[None]:
        if self.grad is None and incoming.is_view:
            self.grad = self._autograd.empty_like(incoming, "gradients")
        elif self.grad is None:
            assert incoming.storage is not None
            incoming.storage.set_term("gradients")
            self.grad = incoming
        return ()
