"""Measurement and limits of memory and time, with one definition for CPU and CUDA."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
