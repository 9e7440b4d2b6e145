"""A warning for loaders that are created inside the loop over epochs, where each of them begins with epoch 0."""

import warnings
from collections.abc import Callable, Hashable
from weakref import WeakKeyDictionary

from torch import Tensor

from workbench.core.graph import Graph

_MOST_REPEATS = 2
_repeats: WeakKeyDictionary[Graph, dict[Hashable, int]] = WeakKeyDictionary()


def repeat_warner(graph: Graph, *configuration: object) -> Callable[[int], None]:
    """Return a function to call when a loop over a loader begins; it warns if equal loaders repeat epoch 0.

    The same batches in every epoch raise no error, and training goes worse. A loader that reaches epoch 1 resets the
    count, so that a notebook's cell may run again.

    Args:
        graph: the graph that is sampled; counts are dropped with it.
        configuration: everything else that determines the batches.
    """

    def note(epoch: int) -> None:
        counts = _repeats.setdefault(graph, {})
        key = tuple(map(_key, configuration))
        repeats = counts.pop(key, 0)
        if epoch:
            return
        counts[key] = repeats + 1
        if repeats == _MOST_REPEATS:
            warnings.warn(
                f"{repeats + 1} loaders with the same arguments were iterated from epoch 0, so all of them gave the "
                "same batches: same order, same neighbours. Create the loader once, before the loop over epochs (each "
                "loop over it is a new epoch), or pass epoch=: the number of the epoch, or 0 to repeat it on purpose",
                RuntimeWarning,
                stacklevel=3,
            )

    return note


def _key(value: object) -> Hashable:
    """Return a key that is equal for values that give the same batches: tensors by contents, otherwise identity."""
    if isinstance(value, Tensor):
        return tuple(value.shape), hash(value.cpu().numpy().tobytes())
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value
