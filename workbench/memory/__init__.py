"""Estimate the device memory of a training step before it runs, and plan micro-batches that fit.

Betty's estimator and planner. `analytic` prices the library's layers on tensors without values, `traced` any other
module from dry runs, and `search` finds the fewest parts; Betty's own eight terms are kept beside them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
