"""Training: gradient accumulation over micro-batches, steps, OOM recovery, epochs, evaluation, profiles.

Betty's training: a step on micro-batches equals the step on the whole batch. `micro_batches` brings it into loops of
DGL and PyG, `exactness` tells which models it is exact for; steps and ranks of link prediction are here too.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
