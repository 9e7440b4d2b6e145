"""Samplers, which draw a `MiniBatch` from a graph and seeds, and the loader that iterates over an epoch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
