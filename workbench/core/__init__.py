"""Records passed between stages (graph, block, batch, data set): validation, storage, splitting and random streams."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
