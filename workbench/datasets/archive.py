"""The archive format `NAME.npz`: one published data set, as plain arrays without pickled objects.

Node data sets and topologies contain

- `edge_index` [2, edges] integers, row 0 source, row 1 destination, and `num_nodes`;
- optional features: `x` [num_nodes, width], or the CSR arrays `x_indptr`, `x_indices`, `x_data`, `x_shape`; or
  `gpt_pred` [num_nodes, ranks], a language model's predictions of each node's class, best first, padded with -1;
- optional labels `y`: class ids [num_nodes] from 0, -1 for unlabelled; or several labels per node, [num_nodes, classes]
  of 0 and 1; optional `class_names`, one per class (required by `gpt_pred`);
- an optional split: node ids `train_idx`, `val_idx`, `test_idx`; or several splits as `train_masks`, `val_masks`,
  `test_masks` [splits, num_nodes] bool, which take precedence;
- `valid_edge`, `valid_edge_neg`, `test_edge`, `test_edge_neg` [2, any] for link prediction;
- optional `node_year`, which is ignored.

Knowledge graphs contain `train`, `valid`, `test` [any, 3] (head, relation, tail), `num_entities`, `num_relations` and
optional `entity_names`, `relation_names`.

Any other key is an error, because it may be one of these, misspelt or damaged.
"""

from pathlib import Path

import torch
from torch import Tensor

from workbench.core.errors import DataError
from workbench.core.link_split import LinkSplit
from workbench.datasets.npz import Npz
from workbench.datasets.raw import RankedClasses, RawSet, SparseRows, Split
from workbench.links.knowledge_graph import KnowledgeGraph

_SPLIT = ("train", "val", "test")
_IDS, _MASKS = (tuple(f"{part}_{form}" for part in _SPLIT) for form in ("idx", "masks"))
_LINKS = ("valid_edge", "valid_edge_neg", "test_edge", "test_edge_neg")
_CSR = ("x_indptr", "x_indices", "x_data", "x_shape")
_IGNORED = ("node_year",)
_NODE_KEYS = ("edge_index", "num_nodes", "x", *_CSR, "gpt_pred", "y", "class_names", *_IDS, *_MASKS, *_LINKS, *_IGNORED)
_TRIPLE_KEYS = ("train", "valid", "test", "num_entities", "num_relations", "entity_names", "relation_names")
STORED_ONCE = ("tolokers", "ogbl-ddi")
"""Data sets whose archive contains each undirected edge once; others contain directed edges or both directions."""


def read_archive(path: Path) -> RawSet | KnowledgeGraph:
    """Read and validate an archive.

    Args:
        path: path of `NAME.npz`.

    Returns:
        The data set as stored, or the knowledge graph.

    Raises:
        DataError: invalid contents; the message names file, key and value.
        CapacityError: the arrays exceed the memory.
    """
    npz = Npz(path)
    if "num_entities" in npz.keys:
        npz.allow(_TRIPLE_KEYS)
        return _read_triples(npz)
    npz.allow(_NODE_KEYS)
    nodes = npz.count("num_nodes", minimum=1)
    edges = npz.ids("edge_index", (2, None), nodes)
    if not edges.shape[1]:
        npz.fail("edge_index has no edges")
    y = _read_labels(npz, nodes)
    names = npz.texts("class_names")
    classes = len(names) if names else None
    return RawSet(
        edges[0],
        edges[1],
        nodes,
        stored_once=path.stem in STORED_ONCE,
        x=_read_features(npz, nodes, classes),
        y=y,
        splits=_read_splits(npz, nodes),
        num_classes=classes,
        link_split=_read_links(npz, nodes, edges),
    )


def _read_triples(npz: Npz) -> KnowledgeGraph:
    entities, relations = npz.count("num_entities", minimum=1), npz.count("num_relations", minimum=1)
    train, valid, test = (npz.integers(part, (None, 3)) for part in ("train", "valid", "test"))
    if not len(train):
        npz.fail("train has no triples")
    entity_names, relation_names = npz.texts("entity_names"), npz.texts("relation_names")
    try:
        return KnowledgeGraph.build(
            train,
            valid,
            test,
            num_entities=entities,
            num_relations=relations,
            name=npz.path.stem,
            entity_names=entity_names,
            relation_names=relation_names,
        )
    except (ValueError, IndexError) as error:
        raise DataError(f"{npz.path}: {error}") from error


def _read_labels(npz: Npz, nodes: int) -> Tensor | None:
    if "y" not in npz.keys:
        return None
    if npz.array("y").ndim == 2:
        return npz.floats("y", (nodes, None))
    return npz.ids("y", (nodes,), torch.iinfo(torch.int64).max, minimum=-1).to(torch.int64)


def _read_features(npz: Npz, nodes: int, classes: int | None) -> Tensor | SparseRows | RankedClasses | None:
    if "x" in npz.keys:
        return npz.floats("x", (nodes, None))
    if not npz.keys.isdisjoint(_CSR):
        npz.require(_CSR)
        return _read_sparse(npz, nodes)
    if "gpt_pred" in npz.keys:
        npz.require(["class_names"])
        classes = classes or 0
        return RankedClasses(npz.ids("gpt_pred", (nodes, None), classes, minimum=-1).to(torch.int64), classes)
    return None


def _read_sparse(npz: Npz, nodes: int) -> SparseRows:
    rows, width = npz.integers("x_shape", (2,)).tolist()
    if rows != nodes or width < 0:
        npz.fail(f"x_shape is [{rows}, {width}]; it must be [{nodes}, columns]")
    values = npz.floats("x_data", (None,))
    indices = npz.ids("x_indices", (len(values),), width).to(torch.int64)
    indptr = npz.ids("x_indptr", (nodes + 1,), len(values) + 1).to(torch.int64)
    if int(indptr[0]) or int(indptr[-1]) != len(values) or bool((indptr.diff() < 0).any()):
        npz.fail(f"x_indptr must be non-decreasing from 0 to {len(values)}, the entries of x_data")
    return SparseRows(indptr, indices, values, width)


def _read_splits(npz: Npz, nodes: int) -> tuple[Split, ...]:
    if not npz.keys.isdisjoint(_MASKS):
        npz.require(_MASKS)
        rows = [npz.flags(key, (None, nodes)) for key in _MASKS]
        if len({len(r) for r in rows}) > 1:
            npz.fail(
                f"{', '.join(_MASKS)} have {', '.join(str(len(r)) for r in rows)} splits; they must have equally many"
            )
        return tuple(Split(*(mask.nonzero().squeeze(1) for mask in split)) for split in zip(*rows, strict=True))
    if npz.keys.isdisjoint(_IDS):
        return ()
    npz.require(_IDS)
    return (Split(*(npz.ids(key, (None,), nodes).to(torch.int64) for key in _IDS)),)


def _read_links(npz: Npz, nodes: int, edges: Tensor) -> LinkSplit | None:
    if npz.keys.isdisjoint(_LINKS):
        return None
    npz.require(_LINKS)
    pairs = {key: npz.ids(key, (2, None), nodes).to(torch.int64) for key in _LINKS}
    return LinkSplit(train_edge=edges.to(torch.int64), **pairs)
