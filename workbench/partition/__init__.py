"""Partitioning of a batch's seeds or a graph's nodes: pure functions that return one int64 part per seed or node."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
