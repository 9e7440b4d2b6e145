"""Training: gradient accumulation over micro-batches, steps, OOM recovery, epochs, evaluation, profiles."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
