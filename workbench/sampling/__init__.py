"""Samplers, which draw a `MiniBatch` from a graph and seeds, and the loader that iterates over an epoch.

Neighbour sampling, LABOR, random walks, LADIES and MariusGNN's DENSE; a sampler defines `draw`, whose variates are a
hash of (seed, step, layer, ids). A sampler that belongs to one paper's idea of ranks or devices is in its package.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
