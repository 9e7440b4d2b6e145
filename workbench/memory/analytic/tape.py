"""Tensors without values, and autograd over them: sizes flow as tensors would, and live as long.

An operation on shadows holds the room of its results in a ledger, keeps what torch would save for the backward pass and
says what the backward pass makes. Lifetimes are Python's, so code that mirrors a layer frees what the layer frees.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from workbench.memory.analytic.ledger import Ledger, Storage
from workbench.memory.kernels import Kernels

Backward = Callable[..., Sequence["Shadow | None"]]


class Shadow:
    """A tensor [rows, cols] without values.

    Args:
        storage: the room that it lies in; views share it.
        rows: of the tensor.
        cols: its other dimensions, multiplied.
        itemsize: bytes of an element.
        source: the node that made it and which of the node's results it is; None if it needs no gradient.
        is_view: whether it is part of a larger room; a parameter's gradient that is would be copied.
    """

    __slots__ = ("cols", "is_view", "itemsize", "rows", "source", "storage")

    def __init__(
        self,
        storage: Storage | None,
        rows: int,
        cols: int,
        itemsize: int,
        source: "tuple[Node, int] | None" = None,
        is_view: bool = False,
    ) -> None:
        self.storage, self.rows, self.cols, self.itemsize = storage, rows, cols, itemsize
        self.source, self.is_view = source, is_view

    @property
    def nbytes(self) -> int:
        return self.rows * self.cols * self.itemsize

    def view(self, rows: int | None = None, cols: int | None = None, *, is_view: bool = False) -> "Shadow":
        """The same room in another shape; gradients flow as they are."""
        rows, cols = self.rows if rows is None else rows, self.cols if cols is None else cols
        return Shadow(self.storage, rows, cols, self.itemsize, self.source, is_view or self.is_view)

    def detached(self) -> "Shadow":
        return Shadow(self.storage, self.rows, self.cols, self.itemsize, None, self.is_view)


class Node:
    """An operation that gradients pass backwards."""

    __slots__ = ("backward", "grads", "order", "saved", "targets")

    def __init__(
        self,
        order: float,
        targets: "Sequence[tuple[Node, int] | None]",
        backward: Backward,
        outputs: int = 1,
        saved: Sequence[Any] = (),
    ) -> None:
        self.order, self.targets, self.backward, self.saved = order, targets, backward, saved
        self.grads: list[Shadow | None] = [None] * outputs


class Tape:
    """What one step is recorded on.

    Args:
        kernels: which forms of operations are priced.
    """

    def __init__(self, kernels: Kernels) -> None:
        self.kernels, self.ledger = kernels, Ledger()
        self.term = "hidden"
        self.gradients: list[_Accumulate] = []
        self._orders = itertools.count()

    @property
    def on_cuda(self) -> bool:
        return self.kernels.device == "cuda"

    def new(self, rows: int, cols: int, itemsize: int, term: str | None = None) -> Shadow:
        """A fresh tensor."""
        return Shadow(self.ledger.hold(rows * cols * itemsize, term or self.term), rows, cols, itemsize)

    def like(self, other: Shadow, term: str | None = None) -> Shadow:
        """A fresh tensor of the shape and type of another."""
        return self.new(other.rows, other.cols, other.itemsize, term)

    def touch(self, nbytes: int) -> None:
        """A temporary of one operation."""
        self.ledger.touch(nbytes, self.term)

    def parameter(self, shape: Sequence[int], itemsize: int, *, accumulating: bool = False) -> Shadow:
        """A leaf, whose gradient stays on the tape. Its own room is counted elsewhere."""
        rows = shape[0] if len(shape) else 1
        leaf = Shadow(None, rows, math.prod(shape[1:]), itemsize)
        self.gradients.append(_Accumulate(self, self.like(leaf, "gradients") if accumulating else None))
        leaf.source = (Node(math.inf, [], self.gradients[-1]), 0)
        return leaf

    def record(
        self,
        outputs: Sequence[Shadow],
        inputs: Sequence[Shadow | None],
        backward: Backward,
        saves: Sequence["Shadow | Storage | None"] = (),
    ) -> None:
        """Say where the outputs come from.

        Args:
            outputs: of the operation.
            inputs: what it was given that may need a gradient.
            backward: gets a gradient each output and gives one each input.
            saves: what lives until it has run.
        """
        targets = [None if t is None else t.source for t in inputs]
        if any(target is not None for target in targets):
            kept = [t.storage if isinstance(t, Shadow) else t for t in saves]  # not the shadow: an output's is its node
            node = Node(next(self._orders), targets, backward, len(outputs), kept)
            for slot, output in enumerate(outputs):
                output.source = (node, slot)

    def backward(self, loss: Shadow) -> None:
        """Run the gradients back, latest operation first as torch does; gradients of activations are workspace."""
        assert loss.source is not None
        root, self.term = loss.source[0], "workspace"
        waiting = _dependencies(root)
        root.grads[0] = self.like(loss)
        ready = [(-root.order, id(root), root)]
        loss.source = None
        while ready:
            node = heapq.heappop(ready)[2]
            for target in self._run(node):
                waiting[target] -= 1
                if not waiting[target]:
                    heapq.heappush(ready, (-target.order, id(target), target))

    def _run(self, node: Node) -> list[Node]:
        """Run a node and hand its gradients on; the nodes that got (or missed) one."""
        targets = node.targets
        grads, node.grads = node.grads, []
        missing = all(grad is None for grad in grads)
        made = [None] * len(targets) if missing else node.backward(*grads)
        del grads
        node.backward, node.targets, node.saved = _released, [], ()
        for target, grad in zip(targets, made, strict=True):
            if target is not None and grad is not None:
                _deliver(self, *target, grad)
        return [target[0] for target in targets if target is not None]


def _released(*_: Any) -> Sequence[None]:
    raise RuntimeError("a shadow's gradients run back once")


def _deliver(tape: Tape, node: Node, slot: int, grad: Shadow) -> None:
    """Into the node's buffer; the second is added in place, unless the first is part of something else."""
    first = node.grads[slot]
    if first is None:
        node.grads[slot] = grad
    elif first.is_view:
        node.grads[slot] = tape.like(first)


def _dependencies(root: Node) -> dict[Node, int]:
    """How many gradients each node waits for."""
    waiting: dict[Node, int] = {root: 0}
    todo = [root]
    while todo:
        for target in todo.pop().targets:
            if target is not None:
                if target[0] not in waiting:
                    waiting[target[0]] = 0
                    todo.append(target[0])
                waiting[target[0]] += 1
    return waiting


class _Accumulate:
    """Takes a parameter's gradient: keeps it, copies it if it is a part of something, or adds it to what there is."""

    def __init__(self, tape: Tape, grad: Shadow | None) -> None:
        self._tape, self.grad = tape, grad

    def __call__(self, fresh: Shadow) -> Sequence[None]:
        if self.grad is None and fresh.is_view:
            self.grad = self._tape.like(fresh, "gradients")
        elif self.grad is None:
            assert fresh.storage is not None
            fresh.storage.book("gradients")
            self.grad = fresh
        return ()
