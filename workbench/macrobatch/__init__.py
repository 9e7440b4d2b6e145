"""Macrobatches: windows of mini-batches sampled with one relay per hop, their rows fetched once per group.

The ideas of BatchGNN (Hoang et al.): windows on ranks and in one process, counts and cost model of their traffic, the
plan of their size, and the aggregation cache, which precomputes the first layer's full-neighbour aggregates.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
