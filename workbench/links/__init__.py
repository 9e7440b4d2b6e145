"""Link prediction: batches of node pairs with negatives, and knowledge graphs of triples."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
