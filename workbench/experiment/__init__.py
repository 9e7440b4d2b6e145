"""Experiments: figures as pairs of YAML and Python, their sweeps run, resumed, stored and checked.

A point is finished if its key matches, which covers the definitions that the figure's `run` reaches. Claims compare the
shape of a table with the paper's statement; recorded tables keep what they were made with.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
