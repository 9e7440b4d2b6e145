"""Experiments: figures as pairs of YAML and Python, their sweeps run, resumed, stored and checked."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
