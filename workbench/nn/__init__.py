"""GNN layers on blocks (SAGE, GCN, GIN, GAT, R-GCN), models of them, and dropout that is exact under splitting.

A layer is `aggregate(block, h)`, then `update(h_dst, aggregated)`. Decoders and losses of node pairs are here too
(DistMult, ComplEx, TransE: MariusGNN's task), and `reuse` has BatchGNN's layers that keep their buffers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
