"""Cooperative minibatching: ranks sample and train one global batch together, each the rows that it owns.

The idea of Cooperative Minibatching in Graph Neural Networks (Balin et al.): owned sampling and its exchanges, the step
and full-neighbour inference on ranks, and, without ranks, counts of the work of all of them and the cost model.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
