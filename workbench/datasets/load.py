"""`load_dataset`: find a data set by name, read it, apply the options."""

import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from workbench.core.dataset import Dataset
from workbench.core.errors import DataError
from workbench.core.graph import Undirected
from workbench.datasets.archive import read_archive
from workbench.datasets.cache import cached
from workbench.datasets.catalog import check_name, how_to_get
from workbench.datasets.ogb import ogb_files, ogb_folder, read_ogb
from workbench.datasets.raw import Options, RawSet, Split, choose_features, choose_split, shape_graph
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.paths import cache_folder, data_folder

_HERE = Path(__file__).parent
_KERNELS = ("kernels/csr.py", "kernels/hash.py", "kernels/transpose.py")
_READERS = ("core/graph.py", "core/dataset.py", "core/randomness.py", "links/knowledge_graph.py", *_KERNELS)
_CODE = (*sorted(_HERE.glob("*.py")), *(_HERE.parent / file for file in _READERS))
_GENERATORS = tuple(sorted((_HERE.parent / "standin").glob("*.py")))


class Source(NamedTuple):
    """The source of a data set.

    Args:
        kind: "archive", "OGB" or "stand-in".
        location: the path, or the parameters of the generator.
        files: data files, whose contents are part of the cache key.
        code: Python files, whose contents are part of the cache key.
        read: reads or generates the data set.
    """

    kind: str
    location: str
    files: tuple[Path, ...]
    code: tuple[Path, ...]
    read: Callable[[], RawSet | Dataset | KnowledgeGraph]


def load_dataset(
    name: str,
    *,
    root: str | os.PathLike[str] | None = None,
    undirected: Undirected | None = None,
    self_loops: bool | None = None,
    features: str = "given",
    split: int = 0,
    scale: float | None = None,
    seed: int = 0,
) -> Any:
    """Load a data set by name: an archive `NAME.npz` in the data folder, an OGB folder there, or a stand-in.

    The data set is read and validated once; later calls open it memory-mapped from the cache. Nothing is downloaded:
    `workbench data get NAME` does that. Data sets without labels have y = -1 everywhere and no classes; those without a
    public split get a seeded one, 60 / 20 / 20 % of each class (`Dataset.split` names the origin).

    Args:
        name: name of the data set, such as "ogbn-arxiv", "cora", "fb15k-237" or "synthetic-products".
        root: data folder; None: WORKBENCH_DATA, or ~/.local/share/workbench if that is not set.
        undirected: True: add reverse edges, merge duplicates, sort rows; "multi": add reverse edges, keep duplicates
            (the reverse of edge e has edge id e + number of edges); False: edges as stored; None: as published, so that
            a data set that stores each undirected edge once gets both directions. The reverse of an edge of type r has
            type r + number of types.
        self_loops: True: exactly one per node, with undirected="multi" its reverse as well; False: none; None: as
            stored.
        features: "given": those of the source, densified if sparse, of width 0 if the source has none
            (`Dataset.features` is "none"). The archive of ogbn-arxiv has a language model's ranked predictions of the
            class instead of the published features; they are encoded as 1 / rank per class ("ranked-classes"), and
            results are not comparable with those on the published features. "random:128": uniform features of this
            width, mean 0 and variance 1. "degree": log(1 + in-degree).
        split: number of the public split, from 0.
        scale: scale of a stand-in, in (0, 1]; None: its default.
        seed: seed of a stand-in, of random features and of the split if none is public.

    Returns:
        A `Dataset`, or a `KnowledgeGraph`.

    Raises:
        FileNotFoundError: the data set is not in the data folder; the message says how to get it.
        DataError: invalid data in a file.
        CapacityError: the data set exceeds the memory.
        TypeError: an option of another type.
        ValueError: an option that is unknown or does not apply to the data set.
        OSError: the process may not open more files: each array of a data set keeps one open.
    """
    options = Options(undirected, self_loops, features, split, seed)
    source = find_source(name, data_folder(root), scale=scale, seed=options.seed)
    loaded = cached(
        name, source.location, source.files, options.as_dict(), lambda: build(source, name, options), code=source.code
    )
    plain = {"root": None if root is None else str(root), "scale": None if scale is None else float(scale)}
    _calls[loaded] = _call(name, **plain, **options.as_dict())
    return loaded


_DEFAULTS = {name: option.default for name, option in inspect.signature(load_dataset).parameters.items()}
_calls: "WeakKeyDictionary[Any, str]" = WeakKeyDictionary()


def loading_call(data: Dataset | KnowledgeGraph) -> str | None:
    """The expression that loads a data set again; None if `load_dataset` did not return it."""
    return _calls.get(data)


def _call(name: str, **options: Any) -> str:
    asked = [f"{key}={value!r}" for key, value in options.items() if value != _DEFAULTS[key]]
    return f"wb.load_dataset({', '.join([repr(name), *asked])})"


def find_source(name: str, folder: Path, *, scale: float | None = None, seed: int = 0) -> Source:
    """Find the source of a data set.

    Args:
        scale: scale of a stand-in, in (0, 1]; None: its default.
    """
    check_name(name)
    archive, ogb = folder / f"{name}.npz", ogb_folder(name, folder)
    if archive.is_file():
        source = Source("archive", str(archive), (archive,), _CODE, lambda: read_archive(archive))
    elif ogb is not None:
        source = Source("OGB", str(ogb), ogb_files(ogb), _CODE, lambda: read_ogb(name, ogb))
    elif name.startswith("synthetic-"):
        return _stand_in(name, scale, seed)
    else:
        raise FileNotFoundError(
            f"there is neither {archive.name} nor an OGB folder of {name} in {folder}; {how_to_get(name)}"
        )
    if scale is not None:
        raise ValueError(f"scale is {scale}, but {name} is not a stand-in: only synthetic-* data sets have a scale")
    return source


def _stand_in(name: str, scale: float | None, seed: int) -> Source:
    from workbench.standin.build import build_standin, check_capacity, find_standin

    size = find_standin(name, scale)[1]

    def read() -> Dataset | KnowledgeGraph:
        check_capacity(name, size, cache_folder())
        return build_standin(name, scale=size, seed=seed)

    return Source("stand-in", f"{name} scale={size!r} seed={seed}", (), (*_CODE, *_GENERATORS), read)


def build(source: Source, name: str, options: Options) -> Dataset | KnowledgeGraph:
    """Read a source and apply the options."""
    read = source.read()
    if isinstance(read, KnowledgeGraph):
        if options != Options(seed=options.seed):
            raise ValueError(f"{name} is a knowledge graph and accepts no graph options; use .graph(inverse=True)")
        return read
    if isinstance(read, RawSet):
        return _assemble(read, name, options, source.location)
    if options == Options(seed=options.seed):
        return read
    return replace(_assemble(_raw_of(read), name, options, source.location), split=read.split)


def _raw_of(dataset: Dataset) -> RawSet:
    """Convert a data set back to a `RawSet`, so that options can be applied to it."""
    graph = dataset.graph
    return RawSet(
        graph.indices,
        torch.repeat_interleave(torch.arange(graph.num_nodes, dtype=graph.indices.dtype), graph.in_degrees()),
        graph.num_nodes,
        x=dataset.x,
        y=dataset.y,
        splits=(Split(dataset.train_idx, dataset.val_idx, dataset.test_idx),),
        num_classes=dataset.num_classes,
        edge_type=graph.edge_type,
        node_type=graph.node_type,
    )


def _assemble(raw: RawSet, name: str, options: Options, location: str) -> Dataset:
    graph = shape_graph(raw, undirected=options.undirected, self_loops=options.self_loops)
    x, label = choose_features(raw, graph, options.features, options.seed)
    y = torch.full((raw.num_nodes,), -1) if raw.y is None else raw.y
    ids, origin = choose_split(raw, y, number=options.split, seed=options.seed)
    try:
        return Dataset.build(
            graph,
            x,
            y,
            **ids._asdict(),
            num_classes=raw.num_classes,
            name=name,
            split=origin,
            features=label,
            link_split=raw.link_split,
        )
    except (TypeError, ValueError, IndexError) as error:
        raise DataError(f"{location}: {error}") from error
