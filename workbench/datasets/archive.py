"""The archive format `NAME.npz`: one published data set, as plain arrays without pickled objects.

Node data sets and topologies contain

- `edge_index` [2, edges] integers, row 0 source, row 1 destination, and `num_nodes`, one integer;
- optional features: `x` [num_nodes, width], finite, converted to float32; or the CSR arrays `x_indptr`, `x_indices`,
  `x_data`, `x_shape`; or, used if there are no others, `gpt_pred` [num_nodes, ranks], a language model's predictions of
  each node's class, best first, padded with -1;
- optional labels `y`: classes [num_nodes] or [num_nodes, 1] from 0, -1 for unlabelled, integers or whole floats, whose
  NaN is unlabelled too (OGB's form); or several labels per node, [num_nodes, classes] of 0 and 1. One-hot classes are
  refused, because they may be either. Optional `class_names`, one per class (required by `gpt_pred`);
- an optional split into disjoint parts: node ids `train_idx`, `val_idx`, `test_idx`, each once; or several splits as
  `train_masks`, `val_masks`, `test_masks` [splits, num_nodes], bool or integers 0 and 1, which take precedence;
- `valid_edge`, `valid_edge_neg`, `test_edge`, `test_edge_neg` [2, any] for link prediction;
- optional `node_year`, which is ignored.

Knowledge graphs contain `train`, `valid`, `test` [any, 3] (head, relation, tail), `num_entities`, `num_relations` and
optional `entity_names`, `relation_names`.

Any other key is an error, because it may be one of these, misspelt or damaged. `FileArray` checks arrays as stored.
"""

from pathlib import Path

import torch
from torch import Tensor

from workbench.core.errors import DataError
from workbench.core.link_split import LinkSplit
from workbench.datasets.node_split import check_disjoint
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
    if "num_entities" in npz.keys or ("train" in npz.keys and "edge_index" not in npz.keys):
        npz.allow(_TRIPLE_KEYS)
        return _read_triples(npz)
    npz.allow(_NODE_KEYS)
    nodes = npz.read("num_nodes").count(minimum=1)
    edges = npz.read("edge_index").ids((2, None), nodes)
    if not edges.shape[1]:
        npz.fail("edge_index has no edges")
    names = _read_names(npz, "class_names")
    classes = len(names) if names else None
    return RawSet(
        edges[0],
        edges[1],
        nodes,
        stored_once=path.stem in STORED_ONCE,
        x=_read_features(npz, nodes, classes),
        y=npz.read("y").labels(nodes, classes) if "y" in npz.keys else None,
        splits=_read_splits(npz, nodes),
        num_classes=classes,
        link_split=_read_links(npz, nodes, edges),
    )


def _read_triples(npz: Npz) -> KnowledgeGraph:
    entities, relations = (npz.read(f"num_{kind}").count(minimum=1) for kind in ("entities", "relations"))
    train, valid, test = (npz.read(part).integers((None, 3)) for part in ("train", "valid", "test"))
    if not len(train):
        npz.fail("train has no triples")
    entity_names, relation_names = _read_names(npz, "entity_names"), _read_names(npz, "relation_names")
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
        columns = "; the columns are head, relation, tail" if isinstance(error, IndexError) else ""
        raise DataError(f"{npz.path}: {error}{columns}") from error


def _read_names(npz: Npz, key: str) -> list[str] | None:
    return npz.read(key).texts() if key in npz.keys else None


def _read_features(npz: Npz, nodes: int, classes: int | None) -> Tensor | SparseRows | RankedClasses | None:
    sparse = not npz.keys.isdisjoint(_CSR)
    if "x" in npz.keys:
        if sparse:
            npz.fail(f"x and {', '.join(k for k in _CSR if k in npz.keys)} are both features; drop one form")
        return npz.read("x").numbers((nodes, None))
    if sparse:
        npz.require(_CSR)
        return _read_sparse(npz, nodes)
    if "gpt_pred" in npz.keys:
        npz.require(["class_names"])
        classes = classes or 0
        ranked = npz.read("gpt_pred").integers((nodes, None), minimum=-1, limit=classes)
        return RankedClasses(ranked.to(torch.int64), classes)
    return None


def _read_sparse(npz: Npz, nodes: int) -> SparseRows:
    rows, width = npz.read("x_shape").integers((2,)).tolist()
    if rows != nodes or width < 0:
        npz.fail(f"x_shape is [{rows}, {width}]; it must be [{nodes}, columns]")
    values = npz.read("x_data").numbers((None,))
    indices = npz.read("x_indices").ids((len(values),), width).to(torch.int64)
    indptr = npz.read("x_indptr").ids((nodes + 1,), len(values) + 1).to(torch.int64)
    if int(indptr[0]) or int(indptr[-1]) != len(values) or bool((indptr.diff() < 0).any()):
        npz.fail(
            f"x_indptr must be non-decreasing from 0 to {len(values)}, the entries of x_data: save the parts of one CSR"
        )
    return SparseRows(indptr, indices, values, width)


def _read_splits(npz: Npz, nodes: int) -> tuple[Split, ...]:
    """Read both forms, so that neither is ignored where it is invalid."""
    ids, masks = (not npz.keys.isdisjoint(keys) for keys in (_IDS, _MASKS))
    of_ids, of_masks = _read_ids(npz, nodes) if ids else (), _read_masks(npz, nodes) if masks else ()
    return of_masks if masks else of_ids


def _read_ids(npz: Npz, nodes: int) -> tuple[Split]:
    npz.require(_IDS)
    split = Split(*(npz.read(key).node_ids(nodes) for key in _IDS))
    check_disjoint(split, _IDS, npz.path)
    return (split,)


def _read_masks(npz: Npz, nodes: int) -> tuple[Split, ...]:
    npz.require(_MASKS)
    rows = [npz.read(key).flags((None, nodes)) for key in _MASKS]
    if len({len(r) for r in rows}) > 1:
        npz.fail(f"{', '.join(_MASKS)} have {', '.join(str(len(r)) for r in rows)} splits; they must have equally many")
    splits = tuple(Split(*(mask.nonzero().squeeze(1) for mask in split)) for split in zip(*rows, strict=True))
    for number, split in enumerate(splits):
        check_disjoint(split, tuple(f"{key}[{number}]" for key in _MASKS), npz.path)
    return splits


def _read_links(npz: Npz, nodes: int, edges: Tensor) -> LinkSplit | None:
    if npz.keys.isdisjoint(_LINKS):
        return None
    npz.require(_LINKS)
    pairs = {key: npz.read(key).ids((2, None), nodes).to(torch.int64) for key in _LINKS}
    return LinkSplit(train_edge=edges.to(torch.int64), **pairs)
