"""Messages of a relay: the nodes whose rows one rank asks of their owner, and the rows that the owner answers with.

Both are int64 vectors, in which bytes are padded to words. A request without nodes and its answer are empty vectors.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import check_vector
from workbench.sampling.candidates import row_offsets
from workbench.sampling.drawn import Drawn, check_drawn

_WORD = 8  # bytes
_COLUMNS = ("sources", "edge_ids", "edge_weight", "edge_type")
_DTYPES = (
    None,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
)
_CODES = len(_DTYPES)


class Request(NamedTuple):
    """Nodes of one owner that a rank's mini-batches expand.

    Args:
        steps: number of each mini-batch, which selects its random variates.
        nodes: int64, per mini-batch.
        excluded: int64, raw-graph edge ids that must not be drawn, per mini-batch.
    """

    steps: Sequence[int]
    nodes: Sequence[Tensor]
    excluded: Sequence[Tensor]

    @property
    def num_nodes(self) -> int:
        return sum(map(len, self.nodes))


class Rows(NamedTuple):
    """Drawn rows, with all that a block stores per edge.

    Args:
        indptr: int64 [n + 1], from any number on.
        columns: "sources", and those of "edge_ids", "edge_weight" and "edge_type" that there are.
    """

    indptr: Tensor
    columns: Mapping[str, Tensor]

    @property
    def num_edges(self) -> int:
        return int(self.indptr[-1] - self.indptr[0])

    def split(self, counts: Sequence[int]) -> "Iterator[Rows]":
        """Divide the rows into consecutive ones, which are views."""
        ends = self.indptr[list(accumulate(counts, initial=0))].tolist()
        first = ends[0]
        for (low, high), (begin, end) in zip(pairwise(accumulate(counts, initial=0)), pairwise(ends), strict=True):
            parts = {name: values[begin - first : end - first] for name, values in self.columns.items()}
            yield Rows(self.indptr[low : high + 1], parts)


def encode_request(request: Request) -> Tensor:
    """Write a request: number of mini-batches, their steps, numbers of nodes and of excluded edges, then both."""
    if not request.num_nodes:
        return torch.empty(0, dtype=torch.int64)
    lengths = [*map(len, request.nodes), *map(len, request.excluded)]
    head = torch.tensor([len(request.steps), *request.steps, *lengths], device=request.nodes[0].device)
    return torch.cat([head, *request.nodes, *request.excluded])


def decode_request(message: Tensor, rank: int) -> Request:
    """Read a request.

    Args:
        message: as `encode_request` returns it.
        rank: that sent it, for the error.

    Raises:
        TypeError: not an int64 vector.
        ValueError: its length is not the one that its head says.
    """
    check_vector(f"the request of rank {rank}", message, None, (torch.int64,))
    if not len(message):
        return Request((), (), ())
    count = int(message[0])
    head = message[1 : 1 + 3 * count].tolist()
    steps, lengths = head[:count], head[count:]
    _check_length(message, 1 + 3 * count + sum(lengths), "request", rank)
    vectors = message[1 + 3 * count :].split(lengths)
    return Request(steps, vectors[:count], vectors[count:])


def encode_rows(parts: Sequence[Rows]) -> Tensor:
    """Write consecutive rows: one number for the dtypes of the columns, the lengths of the rows, the columns."""
    if not sum(len(part.indptr) - 1 for part in parts):
        return torch.empty(0, dtype=torch.int64)
    kinds = {name: parts[0].columns[name].dtype for name in _COLUMNS if name in parts[0].columns}
    device = parts[0].indptr.device
    code = sum(_CODES**place * _DTYPES.index(kinds.get(name)) for place, name in enumerate(_COLUMNS))
    fields = [[torch.tensor([code], device=device)], [part.indptr.diff().to(torch.int32) for part in parts]]
    fields += [[part.columns[name] for part in parts] for name in kinds]
    sizes = [_words(sum(values.nbytes for values in field)) for field in fields]
    message = torch.empty(sum(sizes), dtype=torch.int64, device=device)
    for field, words in zip(fields, message.split(sizes), strict=True):
        _write(words, field)
    return message


def decode_rows(message: Tensor, num_rows: int, rank: int) -> Rows:
    """Read rows.

    Args:
        message: as `encode_rows` returns it.
        num_rows: number of rows that were asked for.
        rank: that sent it, for the error.

    Raises:
        TypeError: not an int64 vector.
        ValueError: its length is not that of so many rows.
    """
    check_vector(f"the answer of rank {rank}", message, None, (torch.int64,))
    lengths_end = 1 + _words(4 * num_rows) if num_rows else 0
    if not num_rows or len(message) < lengths_end:
        _check_length(message, lengths_end, "answer", rank)
        return Rows(message.new_zeros(1), {})
    kinds = _kinds(int(message[0]))
    indptr = row_offsets(message[1:lengths_end].view(torch.int32)[:num_rows].long())
    num_edges = int(indptr[-1])
    sizes = [_words(num_edges * dtype.itemsize) for dtype in kinds.values()]
    _check_length(message, lengths_end + sum(sizes), "answer", rank)
    columns = {
        name: words.view(dtype)[:num_edges]
        for (name, dtype), words in zip(kinds.items(), message[lengths_end:].split(sizes), strict=True)
    }
    check_drawn(Drawn(indptr, columns["sources"]), num_rows)
    return Rows(indptr, columns)


def row_bytes(rows: Rows) -> int:
    """Bytes of rows in a message, without its head and padding: 4 per row, and those of the columns."""
    return 4 * (len(rows.indptr) - 1) + sum(values.nbytes for values in rows.columns.values())


def _kinds(code: int) -> dict[str, torch.dtype]:
    found = ((name, _DTYPES[code // _CODES**place % _CODES]) for place, name in enumerate(_COLUMNS))
    return {name: dtype for name, dtype in found if dtype is not None}


def _words(num_bytes: int) -> int:
    return -(-num_bytes // _WORD)


def _write(words: Tensor, values: Sequence[Tensor]) -> None:
    """Write the bytes of vectors one after the other, then zeros."""
    to, at = words.view(torch.uint8), 0
    for one in values:
        to[at : at + one.nbytes] = one.contiguous().view(torch.uint8)
        at += one.nbytes
    to[at:] = 0


def _check_length(message: Tensor, expected: int, what: str, rank: int) -> None:
    if len(message) != expected:
        raise ValueError(
            f"the {what} of rank {rank} has {len(message)} numbers, not {expected}; all ranks must sample with the "
            "same sampler and send what sample_relayed yields"
        )
