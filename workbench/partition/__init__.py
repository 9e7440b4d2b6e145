"""Partitioning of a batch's seeds or a graph's nodes: pure functions that return one int64 part per seed or node.

`batch` has Betty's micro-batches (REG and its baselines, and ours), `refine` improves any partition of a batch,
`graph` gives the nodes of a graph to ranks, and `isolated` runs METIS and Mt-KaHyPar in processes of their own.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
