"""`RowParts`: rows of nodes, one consecutive range at a time, such as the partitions of a store on disk."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from workbench.core.errors import check_ids
from workbench.features.memory_rows import as_store


class RowRanges(Protocol):
    """What candidates and rows of triples are read from."""

    @property
    def num_rows(self) -> int: ...

    def read(self, ids: Tensor) -> Tensor:
        """Rows of some nodes, which are in memory together."""
        ...

    def ranges(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """All rows, as the first id and the rows of ranges of at most `size` rows."""
        ...


@dataclass(frozen=True, eq=False)
class RowParts:
    """Rows that pass through memory one part at a time.

    With a partition buffer, an order that holds every partition once is enough:

        def visit():
            for state in buffer.epoch(order):
                for part in order.loaded(state.number).tolist():
                    first = part * store.partition_rows
                    yield first, state.rows.read(first + torch.arange(store.layout.nodes_of(part)))

        wb.training.rank_triples(decoder, wb.training.RowParts(store.num_nodes, visit), triples)

    Args:
        num_rows: number of nodes.
        visit: called for every pass; returns the parts in any order, each as its first id and the rows [any, dim] of
            consecutive ids. A node that comes again in the same pass is skipped with its part.
    """

    num_rows: int
    visit: Callable[[], Iterable[tuple[int, Tensor]]]

    def read(self, ids: Tensor) -> Tensor:
        """Read rows by one pass over all parts.

        Args:
            ids: int64 [n].

        Raises:
            ValueError: the parts lack a row, or overlap.
            IndexError: an id is not in [0, num_rows).
        """
        check_ids("ids", ids, self.num_rows)
        order = torch.argsort(ids)
        sorted_ids, out = ids[order].contiguous(), None
        for first, rows in self._once():
            out = rows.new_empty(len(ids), *rows.shape[1:]) if out is None else out
            ends = torch.searchsorted(sorted_ids, torch.tensor([first, first + len(rows)])).tolist()
            here = order[ends[0] : ends[1]]
            out[here] = rows[(ids[here] - first).to(rows.device)]
        if out is None:
            raise ValueError("there is no part; visit must yield (first id, rows) of all nodes")
        return out

    def ranges(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for first, rows in self._once():
            for start in range(0, len(rows), size):
                yield first + start, rows[start : start + size]

    def _once(self) -> Iterator[tuple[int, Tensor]]:
        """The parts of a pass, each once; they must tile the ids, since a row in no part would never be written."""
        firsts: list[int] = []
        ends: dict[int, int] = {}
        count = 0
        for first, rows in self.visit():
            first = int(first)
            if len(rows):
                at = bisect_left(firsts, first)
                if firsts[at : at + 1] == [first]:
                    continue
                least, most = ends[firsts[at - 1]] if at else 0, firsts[at] if at < len(firsts) else self.num_rows
                if not least <= first <= most - len(rows):
                    raise ValueError(
                        f"a part has ids [{first}, {first + len(rows)}), but ids must be in [0, {self.num_rows}), each "
                        "in one part; pass the first id of each part, not its number"
                    )
                firsts.insert(at, first)
                ends[first] = first + len(rows)
                count += len(rows)
            yield first, rows
        if count != self.num_rows:
            raise ValueError(f"the parts have {count} rows, but num_rows is {self.num_rows}; visit every node once")


@dataclass(frozen=True, eq=False)
class _StoredRows:
    """Rows that can be read in any order."""

    store: Any

    @property
    def num_rows(self) -> int:
        return len(self.store)

    def read(self, ids: Tensor) -> Tensor:
        return self.store.read(ids)

    def ranges(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for first in range(0, self.num_rows, size):
            yield first, self.store.read(torch.arange(first, min(first + size, self.num_rows)))


def as_parts(rows: Any) -> RowRanges:
    """Wrap a tensor, an array or a store; parts are returned unchanged."""
    return rows if isinstance(rows, RowParts) else _StoredRows(as_store(rows, "rows"))
