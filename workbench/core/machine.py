"""`Machine`: the speeds that cost models divide counted bytes and operations by."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Real
from types import MappingProxyType
from typing import Any, NamedTuple

from workbench.core.errors import check_at_least, check_choice


@dataclass(frozen=True)
class Machine:
    """The speeds of one processing element (PE), such as a GPU, among equal ones.

    The three bandwidths are those of the complexity analysis of Cooperative Minibatching, which counts bytes alone;
    `flops` is an addition for models whose arithmetic takes longer than their memory traffic.

    Args:
        gamma: γ, bytes per second of the PE's own memory.
        alpha: α, bytes per second between the PE and the others in an all-to-all exchange.
        beta: β, bytes per second from storage (disk, network, host memory) to the PE.
        flops: floating-point operations per second; infinite: arithmetic takes no time.

    Raises:
        ValueError: a speed that is not a positive number.

    Source: Cooperative Minibatching, section 3.1, Table 1.
    """

    gamma: float
    alpha: float
    beta: float
    flops: float = float("inf")

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            if not (isinstance(value, Real) and not isinstance(value, bool) and float(value) > 0):
                unit = "operations" if name == "flops" else "bytes"
                raise ValueError(
                    f"{name} is {value!r}; it must be a positive number of {unit} per second, such as 64e9, or "
                    "float('inf') for no cost"
                )


MACHINES: Mapping[str, Machine] = MappingProxyType(
    {
        "A100": Machine(gamma=2e12, alpha=600e9, beta=64e9),
        "V100": Machine(gamma=0.9e12, alpha=300e9, beta=32e9),
    }
)
"""GPUs as Table 4 of Cooperative Minibatching gives them: memory, NVLink, PCI-e."""

LINKS = ("disk", "host", "device", "peer", "rank")
"""Where data come from: a file, the memory of this process, its device, another device of the machine, another rank."""

ITEMS = ("rows", "ids", "edges", "gradients", "parameters", "relays")
"""What crosses a link: rows, ids, edges, gradients of rows, and values of parameters' gradients.

A relay is a round of requests to all ranks and of their answers; its bytes are those of its headers alone.
"""


class Count(NamedTuple):
    """A number of items and their bytes."""

    items: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class TrafficCounts:
    """The counts of a `Traffic` at one moment, or the difference between two.

    Args:
        counts: by (link, item), in the order of `LINKS` and `ITEMS`; pairs that nothing reports are absent.
    """

    counts: Mapping[tuple[str, str], Count] = field(default_factory=dict)

    def __sub__(self, earlier: "TrafficCounts") -> "TrafficCounts":
        """Counts since an earlier moment."""
        none = Count()
        before = {key: earlier.counts.get(key, none) for key in self.counts}
        return TrafficCounts(
            {key: Count(c.items - before[key].items, c.nbytes - before[key].nbytes) for key, c in self.counts.items()}
        )

    def count(self, link: str, item: str = "rows") -> int:
        """Number of items that crossed a link."""
        return self.counts.get((link, item), Count()).items

    def nbytes(self, link: str, item: str | None = None) -> int:
        """Bytes that crossed a link, of one kind of item or of all."""
        return sum(c.nbytes for (at, what), c in self.counts.items() if at == link and item in (None, what))

    def row(self) -> dict[str, int]:
        """A table row: `disk_rows`, `disk_rows_bytes`, …, for each pair of link and item that something reports."""
        columns: dict[str, int] = {}
        for (link, item), count in self.counts.items():
            columns |= {f"{link}_{item}": count.items, f"{link}_{item}_bytes": count.nbytes}
        return columns


class Traffic:
    """Counts rows, ids, edges, gradients, parameters and relays, and their bytes, by the link they cross; thread-safe.

    Stores, samplers and exchanges that share one `Traffic` add to it:

    >>> links = Traffic()
    >>> links.add("disk", "rows", 3, 300)
    >>> before = links.snapshot()
    >>> links.add("disk", "rows", 1, 100)
    >>> (links.snapshot() - before).row()
    {'disk_rows': 1, 'disk_rows_bytes': 100}
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Count] = {}
        self._lock = threading.Lock()

    def add(self, link: str, item: str, count: int, nbytes: int) -> None:
        """Add items that crossed a link; adding 0 makes the pair's columns part of every row.

        Args:
            link: a name of `LINKS`.
            item: a name of `ITEMS`.
            count: number of items, at least 0.
            nbytes: their size in bytes, at least 0.

        Raises:
            ValueError: an unknown link or item, or a negative number.
        """
        check_choice("link", link, LINKS)
        check_choice("item", item, ITEMS)
        check_at_least("count", count, 0)
        check_at_least("nbytes", nbytes, 0)
        with self._lock:
            before = self._counts.get((link, item), Count())
            self._counts[link, item] = Count(before.items + int(count), before.nbytes + int(nbytes))

    def snapshot(self) -> TrafficCounts:
        """The counts at this moment."""
        with self._lock:
            counts = dict(self._counts)
        return TrafficCounts({key: counts[key] for link in LINKS for item in ITEMS if (key := (link, item)) in counts})

    def row(self) -> dict[str, int]:
        """The counts as a table row: `disk_rows`, `disk_rows_bytes`, …."""
        return self.snapshot().row()

    def __reduce__(self) -> Any:
        return Traffic, ()  # what another process counts is its own

    def __repr__(self) -> str:
        return f"Traffic({', '.join(f'{name}={value:,}' for name, value in self.row().items())})"
