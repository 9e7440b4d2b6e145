"""Calls of models of DGL's and PyG's layers that their parameters do not tell: for trials, which go on if one fails."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from workbench.core.minibatch import MiniBatch
from workbench.interop.pyg_parts import edge_rows, node_rows
from workbench.nn.conventions import Convention, check_one_sample_per_node, of_seeds
from workbench.nn.pyg_parameters import packages_of


def other_conventions(model: nn.Module) -> Iterator[Convention]:
    """Yield calls of a model with two arguments, or a batch of PyG alone, that `convention_of` does not choose.

    They are for a trial, which goes on to the next one if a call fails.

    Args:
        model: a module, without the wrapper of `torch.compile` or data parallelism.
    """
    packages = packages_of(model)
    if "torch_geometric" in packages:
        yield Convention("x, edges by position", lambda mb, x: ((x, _edge_index(mb)), {}), of_seeds)
        yield Convention("edges, x by position", lambda mb, x: ((_edge_index(mb), x), {}), of_seeds)
        yield Convention("x, layers by position", lambda mb, x: ((x, mb.to_pyg().adjs), {}))
        yield Convention("x, batch", lambda mb, x: ((x, _pyg_batch(mb, x)), {}), of_seeds)
        yield Convention("batch", lambda mb, x: ((_pyg_batch(mb, x),), {}), of_seeds)
    if "dgl" in packages:
        yield Convention("x, dgl_blocks", lambda mb, x: ((x, mb.to_dgl()), {}))
        yield Convention("dgl_block, x", lambda mb, x: ((_only(mb.to_dgl()), x), {}))
        yield Convention("x, dgl_block", lambda mb, x: ((x, _only(mb.to_dgl())), {}))
        yield Convention("dgl_blocks", lambda mb, _: ((mb.to_dgl(),), {}))
    yield Convention("x, blocks", lambda mb, x: ((x, mb.blocks), {}))


def _only(blocks: list[Any]) -> Any:
    (block,) = blocks
    return block


def _edge_index(mb: MiniBatch) -> Tensor:
    check_one_sample_per_node(mb)
    return mb.to_pyg().edge_index


def _pyg_batch(mb: MiniBatch, x: Any) -> Any:
    """A batch of PyG with its features and all attributes that it carries."""
    batch = mb.to_pyg()
    for name, rows in node_rows(mb).items():
        setattr(batch, name, rows())
    if getattr(batch, "edge_index", None) is not None:
        for name, per_layer in edge_rows(mb).items():
            setattr(batch, name, per_layer()[0])
    batch.x = x
    return batch
