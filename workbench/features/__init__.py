"""Feature stores: rows of features and labels, read by raw-graph id.

Stores in memory, on disk, learnt or cached wrap each other. `read` is local; what crosses a process, a disk or a bus in
bulk happens in `stage`, which fetches the rows of several batches at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
