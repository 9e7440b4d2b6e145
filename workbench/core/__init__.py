"""Records passed between stages (graph, block, batch, data set): validation, storage, splitting and random streams.

Everything above passes these frozen records on. The variates of dependent minibatches, `Smoothed` and `Nested` of
Cooperative Minibatching, are here too, because every sampler draws from them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
