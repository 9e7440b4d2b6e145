"""Macrobatches: windows of mini-batches sampled with one relay per hop, their rows fetched once per group."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
