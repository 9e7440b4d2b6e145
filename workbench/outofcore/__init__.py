"""Training from disk: in which order partitions of nodes and buckets of edges pass through a buffer (MariusGNN)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
