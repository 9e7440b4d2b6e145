"""Link prediction: batches of node pairs with negatives, and knowledge graphs of triples.

The records and draws behind MariusGNN's tasks; decoders and losses are in `nn`, steps and ranking in `training`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
