"""Placement of feature rows in the buffers of several devices: which rows each holds, and what reading them costs.

The ideas of Rethinking Graph Data Placement (Song and Jiang): access probabilities, Algorithm 1, searches with a lower
bound, baselines, stores of placed rows, and locality-aware sampling with the controller of its factor.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
