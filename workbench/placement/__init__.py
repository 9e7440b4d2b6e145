"""Placement of feature rows in the buffers of several devices: which rows each holds, and what reading them costs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
