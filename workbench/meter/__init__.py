"""Measurement and limits of memory and time, with one definition for CPU and CUDA.

Peak bytes are the most live bytes of a step beyond those at its entry, each storage counted once; epochs are measured
by phase, wherever threads and stores with state take part.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
