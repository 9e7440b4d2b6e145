"""Cooperative minibatching: ranks sample and train one global batch together, each the rows that it owns."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
