"""Estimate the device memory of a training step before it runs, and plan micro-batches that fit."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
