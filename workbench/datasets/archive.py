"""The archive format `NAME.npz`: one published data set, as plain arrays without pickled objects.

`ARRAYS` and `KNOWLEDGE_GRAPH` list the keys. Beyond that, `gpt_pred` [num_nodes, ranks], a language model's predictions
of each node's class, best first, padded with -1, is used if there are no other features, and requires `class_names`;
one-hot classes are refused, because they may be several labels per node; splits as masks take precedence over those as
ids; `node_year` is ignored. Any other key is an error, because it may be one of these, misspelt or damaged. `FileArray`
checks arrays as stored.
"""

import io
import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from workbench.core.dataset import LinkSplit
from workbench.core.errors import CapacityError, DataError, available_bytes
from workbench.core.suggestions import did_you_mean
from workbench.core.units import format_bytes
from workbench.datasets.file_array import FileArray
from workbench.datasets.raw import RankedClasses, RawSet, SparseRows, Split, check_disjoint
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


class Npz:
    """An archive whose arrays are read and validated one at a time.

    Args:
        path: path of the archive.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                members, counted = archive.infolist(), _count_entries(path, len(archive.comment))
        except _BROKEN_ZIP as error:
            raise DataError(f"{path} is not a complete zip archive ({error}); get or write it again") from error
        if counted != len(members):
            raise DataError(
                f"{path} lists {len(members)} of its {counted} entries; it is damaged: get or write it again"
            )
        self._members = {info.filename.removesuffix(_SUFFIX): info for info in members}
        self._check_members(members)
        self.keys = frozenset(self._members)
        self.nbytes = sum(info.file_size for info in members)
        required, free = 2 * self.nbytes, available_bytes()
        if required > free:
            raise CapacityError(
                f"{path} requires about {format_bytes(required)} of memory to read, but {format_bytes(free)} are free; "
                "free some or read it on a larger machine"
            )

    def _check_members(self, members: list[zipfile.ZipInfo]) -> None:
        """Refuse entries that NumPy would not write, before anything is allocated."""
        for info in members:
            name = info.filename
            if not name.endswith(_SUFFIX) or self._members[name.removesuffix(_SUFFIX)] is not info:
                self.fail(
                    f"the entry {name!r} is duplicated or not an array; every entry must be one array, KEY{_SUFFIX}"
                )
            ratio = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _MAX_DEFLATE_RATIO}.get(info.compress_type)
            if ratio is None:
                self.fail(
                    f"{info.filename} is compressed by method {info.compress_type}; it must be stored or deflated"
                )
            if info.file_size > ratio * info.compress_size:
                self._fail_size(name.removesuffix(_SUFFIX), info.file_size, info.compress_size, "compressed ")

    def fail(self, problem: str) -> NoReturn:
        """Raise a `DataError` that names the file."""
        raise DataError(f"{self.path}: {problem}")

    def _fail_size(self, key: str, stated: int, actual: int, how: str = "") -> NoReturn:
        self.fail(
            f"{key} should have {format_bytes(stated)}, but has {format_bytes(actual)} {how}in the file; "
            "the file is damaged: get or write it again"
        )

    def require(self, keys: Iterable[str]) -> None:
        """Refuse an archive without some of these keys."""
        missing = [key for key in keys if key not in self.keys]
        if missing:
            found = ", ".join(sorted(self.keys)) or "nothing"
            self.fail(f"{', '.join(missing)} missing; the archive contains {found}: save it too")

    def allow(self, keys: Collection[str]) -> None:
        """Refuse unknown keys, so that a misspelt or damaged one is not mistaken for a missing optional one."""
        unknown = sorted(self.keys.difference(keys))
        if unknown:
            meant = did_you_mean(unknown[0], keys)
            self.fail(
                f"unknown key {', '.join(map(repr, unknown))}; rename or drop it (known: {', '.join(keys)})"
                + f"; {meant}" * bool(meant)
            )

    def read(self, key: str) -> FileArray:
        """Read an array after validating its size; zipfile verifies its checksum.

        Returns:
            The array as stored, to be checked and converted.

        Raises:
            DataError: it is missing, damaged, or contains anything but numbers and strings.
        """
        self.require([key])
        self.check_header(key)
        values = np.lib.format.read_array(io.BytesIO(self._bytes(key)), allow_pickle=False)
        return FileArray(self.path, key, values)

    def check_header(self, key: str) -> None:
        """Compare the size in an array's header with that of its entry, before allocating it."""
        info = self._members[key]
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(info) as stream:
                shape, _, dtype = _READERS[np.lib.format.read_magic(stream)](stream)
                actual = info.file_size - stream.tell()
        except (*_BROKEN_ZIP, *_BROKEN_HEADER) as error:
            self.fail(f"{key} can't be read ({error}); the file is damaged: get or write it again")
        if dtype.hasobject:
            self.fail(
                f"{key} contains pickled objects, which are never loaded; save an array of numbers or strings: "
                f"np.array({key}.tolist()), of rows of equal length"
            )
        if dtype.kind not in "biufSU" or not dtype.itemsize or min(shape, default=0) < 0:
            self.fail(f"{key} has dtype {dtype} and shape {list(shape)}; it must contain real numbers or strings")
        if math.prod(shape) * dtype.itemsize != actual:
            self._fail_size(key, math.prod(shape) * dtype.itemsize, actual)

    def _bytes(self, key: str) -> bytes:
        """Read an entry; zipfile verifies its checksum, and that its name agrees with the directory."""
        info = self._members[key]
        try:
            with zipfile.ZipFile(self.path) as archive:
                data = archive.read(info)
        except _BROKEN_ZIP as error:
            self.fail(f"{key} can't be read ({error}); the file is damaged: get or write it again")
        if len(data) != info.file_size:
            self._fail_size(key, info.file_size, len(data))
        return data


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


ARRAYS = (
    ("edge_index, num_nodes", "integers [2, edges], row 0 source and row 1 destination; number of nodes"),
    ("x", "features [num_nodes, width]; or sparse ones as x_indptr, x_indices, x_data, x_shape (CSR)"),
    (
        "y",
        "class ids [num_nodes] or [num_nodes, 1], -1 or NaN for unlabelled; or several labels per node as 0 and 1 "
        "[num_nodes, classes], not one-hot; optional class_names",
    ),
    (
        "train_idx, val_idx, test_idx",
        "node ids of the split, each node once; or several splits as train_masks, val_masks, test_masks "
        "[splits, num_nodes], bool",
    ),
    ("valid_edge, valid_edge_neg, test_edge, test_edge_neg", "edges [2, any] for link prediction"),
)
"""Names of arrays, and their contents."""

KNOWLEDGE_GRAPH = (
    "A knowledge graph has train, valid and test [any, 3] (head, relation, tail), num_entities, num_relations and, "
    "optionally, entity_names and relation_names."
)

OPTIONAL = "All arrays but edge_index and num_nodes are optional; another name is an error."

_SUFFIX = ".npy"

_MAX_DEFLATE_RATIO = 1032
"""Upper bound of deflate's compression ratio."""

_BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)

_BROKEN_HEADER = (KeyError, TypeError, SyntaxError, MemoryError)

_END = struct.Struct("<4s4H2LH")
"""The end-of-central-directory record of a zip archive; its fifth field is the number of entries."""

_READERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _count_entries(path: Path, comment_bytes: int) -> int:
    """Read the number of entries from the end record: zipfile silently misses entries after a wrong length."""
    with path.open("rb") as file:
        file.seek(-comment_bytes - _END.size, io.SEEK_END)
        return _END.unpack(file.read(_END.size))[4]
