"""A point that is running in another thread, as it would in another process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.tracking.record import Point
from workbench.tracking.store import Store

PATIENCE_SECONDS = 20


@contextmanager
def running_elsewhere(store: Store, point: Point) -> Iterator[None]:
    """Hold the point's lock from before the block until 0.2 s into it, then finish the point with the square -1."""
    held, leave = threading.Event(), threading.Event()

    def run() -> None:
        with store.lock(point.key) as mine:
            assert mine
            held.set()
            leave.wait(PATIENCE_SECONDS)
            store.finish(store.start(point), [{"square": -1}])

    thread = threading.Thread(target=run)
    thread.start()
    assert held.wait(PATIENCE_SECONDS)
    threading.Timer(0.2, leave.set).start()
    yield
    thread.join()
