"""`load_dataset`: a set by name, from wherever it is."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from workbench.core.dataset import Dataset
from workbench.core.errors import DataError
from workbench.core.knowledge import KnowledgeGraph
from workbench.datasets.archive import read_archive
from workbench.datasets.cache import cached
from workbench.datasets.features import choose_features
from workbench.datasets.folders import cache_folder, check_name, data_folder
from workbench.datasets.known import how_to_get
from workbench.datasets.ogb import ogb_files, ogb_folder, read_ogb
from workbench.datasets.raw import Options, RawSet, Split, shape_graph
from workbench.datasets.split import choose_split

_HERE = Path(__file__).parent
_CODE = (*sorted(_HERE.glob("*.py")), _HERE.parent / "core" / "graph_build.py", _HERE.parent / "core" / "dataset.py")
_GENERATORS = tuple(sorted((_HERE / "standin").glob("*.py")))


class Source(NamedTuple):
    """Where a set comes from: `kind` "archive", "OGB" or "stand-in", how it is read, and the files that decide."""

    kind: str
    location: str
    files: tuple[Path, ...]
    code: tuple[Path, ...]
    read: Callable[[], RawSet | Dataset | KnowledgeGraph]


def load_dataset(
    name: str,
    *,
    root: str | os.PathLike[str] | None = None,
    undirected: bool | None = None,
    self_loops: bool | None = None,
    features: str = "given",
    split: int = 0,
    scale: float | None = None,
    seed: int = 0,
) -> Any:
    """A data set by name: an archive `NAME.npz` of the data folder, else an OGB folder there, else a stand-in.

    It is read and checked once; later loads open it memory-mapped from the cache. Nothing is downloaded: that does
    `workbench data get NAME`. Sets without labels have y = −1 everywhere and no classes; sets without a public split
    get a seeded one, 60 / 20 / 20 % of each class (`Dataset.split` says which).

    Args:
        name: such as "ogbn-arxiv", "cora", "fb15k-237" or "synthetic-products".
        root: data folder; default: WORKBENCH_DATA, else ~/.local/share/workbench.
        undirected: True: reverse edges added, duplicates merged, rows sorted; False: edges as stored; None: as
            published, so that a set that stores each undirected edge once has both directions.
        self_loops: True: exactly one on every node; False: none; None: as stored.
        features: "given": what the source has. Sparse ones become dense. A source without any gives width 0
            (`Dataset.features` is "none"). The archive of ogbn-arxiv has a language model's ranked guesses at the class
            instead of the published features: they become 1 / rank a class ("ranked-classes") and must not be compared
            with results on the published ones. "random:128": uniform ones, of that width, mean 0 and variance 1.
            "degree": log(1 + in-degree).
        split: which of several public splits, from 0.
        scale: size of a stand-in, in (0, 1]; default: its own.
        seed: of a stand-in, of random features and of the split where none is public.

    Returns:
        A `Dataset`, or of a knowledge graph a `KnowledgeGraph`.

    Raises:
        FileNotFoundError: no such set here; the message says how to get it.
        DataError: a file holds what it may not.
        CapacityError: more than fits into memory.
        ValueError: an option that is not known or does not suit the set.
    """
    options = Options(undirected, self_loops, features, split, seed)
    source = find_source(name, data_folder(root), scale=scale, seed=seed)
    return cached(
        name, source.location, source.files, options.as_dict(), lambda: build(source, name, options), code=source.code
    )


def find_source(name: str, folder: Path, *, scale: float | None = None, seed: int = 0) -> Source:
    """Where a set comes from.

    Args:
        name: of the set.
        folder: with data.
        scale: of a stand-in.
        seed: of a stand-in.

    Raises:
        FileNotFoundError: from nowhere.
        ValueError: a name that is none, or a scale for what is no stand-in.
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
        raise ValueError(f"scale is {scale}, but {name} is no stand-in: only synthetic-* sets are made to a size")
    return source


def _stand_in(name: str, scale: float | None, seed: int) -> Source:
    from workbench.datasets.standin.build import build_standin
    from workbench.datasets.standin.room import check_room, find

    size = find(name, scale)[1]

    def read() -> Dataset | KnowledgeGraph:
        check_room(name, size, cache_folder())
        return build_standin(name, scale=size, seed=seed)

    return Source("stand-in", f"{name} scale={size!r} seed={seed}", (), (*_CODE, *_GENERATORS), read)


def build(source: Source, name: str, options: Options) -> Dataset | KnowledgeGraph:
    """Read a source and apply the options.

    Raises:
        DataError: a file holds what it may not.
        ValueError: an option that does not suit the set.
    """
    read = source.read()
    if isinstance(read, KnowledgeGraph):
        if options != Options(seed=options.seed):
            raise ValueError(f"{name} is a knowledge graph; it takes no options of graphs: use .graph(inverse=True)")
        return read
    if isinstance(read, RawSet):
        return _assemble(read, name, options, source.location)
    if options == Options(seed=options.seed):
        return read
    return replace(_assemble(_raw_of(read), name, options, source.location), split=read.split)


def _raw_of(dataset: Dataset) -> RawSet:
    """A set that was built, as if it were read."""
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
