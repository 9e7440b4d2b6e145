"""Ranks: processes that run one function together over `torch.distributed`.

They are started, watched and ended together, and an error names rank, stage and stack. The exchanges of ids and rows
that cooperative minibatching and macrobatches share are here; what a paper does with ranks is in its own package.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
