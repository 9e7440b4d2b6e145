"""Training from disk: in which order partitions of nodes and buckets of edges pass through a buffer.

The ideas of MariusGNN: the orders of BETA and COMET (and a balanced one) and their bias, the partition store, the
buffer and loaders over its states, and the choice of partitions, capacity and groups.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
