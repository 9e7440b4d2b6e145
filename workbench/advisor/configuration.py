"""`Configuration`: which of the ideas a training program uses, and how much of each."""

from dataclasses import dataclass
from typing import Literal

READINGS = ("memory", "static", "belady", "packed", "buffer")
"""Where a batch's rows come from: the host's memory; or a disk, behind a static cache, read ahead by Belady's rule,
packed in the order of use, or through MariusGNN's buffer."""

Reading = Literal["memory", "static", "belady", "packed", "buffer"]

SPREADS = ("alone", "placement", "cooperation", "owned")
"""How devices share their work: not at all; with rows placed on all of them; as cooperative minibatching; or each has
the rows of the nodes that it owns in its host's memory, and fetches others, a macrobatch at a time."""

Spread = Literal["alone", "placement", "cooperation", "owned"]

SAME = "same result"
CHANGES = "changes the samples"
INEXACT = "changes the gradient"
"""Of micro-batches, of whose seeds a layer such as BatchNorm sees only some."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A way to train: without any idea, each batch is sampled, read from the host's memory and trained as a whole.

    Args:
        labor: sample with LABOR in place of the sampler given.
        kappa: κ, batches per group of dependent ones; 1: independent batches.
        num_parts: micro-batches per batch.
        reading: a name of `READINGS`.
        held_rows: rows of the reading that are in the host's memory: of the static cache, or of the pool.
        window: batches that are sampled ahead: they are planned together if rows are read ahead, and fetched together
            if rows have owners.
        group: batches whose rows are read together, if rows are read ahead.
        gap_bytes: bytes between two rows on disk up to which one read covers both.
        partitions: partitions of MariusGNN's buffer on disk.
        capacity: of these, partitions in the buffer.
        cache: policy of a cache on the device; "": no cache.
        cached_rows: rows of this cache.
        devices: number of devices.
        spread: a name of `SPREADS`.
        placed_rows: rows placed on each device.
        peer_cost: cost of a placed row of another device, relative to one of the host.
        prefetched: batches whose rows are copied to a device while it trains on others; 0: none, or 2 and more.
    """

    labor: bool = False
    kappa: int = 1
    num_parts: int = 1
    reading: Reading = "memory"
    held_rows: int = 0
    window: int = 0
    group: int = 1
    gap_bytes: int = 0
    partitions: int = 0
    capacity: int = 0
    cache: str = ""
    cached_rows: int = 0
    devices: int = 1
    spread: Spread = "alone"
    placed_rows: int = 0
    peer_cost: float = 1.0
    prefetched: int = 0

    @property
    def ideas(self) -> tuple[str, ...]:
        """The ideas used, in words; none for the plain program."""
        reading = {
            "static": "disk, static cache",
            "belady": "disk, read ahead",
            "packed": "disk, packed rows",
            "buffer": f"disk, buffer of {self.capacity}/{self.partitions}",
        }
        found = ["LABOR"] if self.labor else []
        found += [f"κ = {self.kappa}"] if self.kappa > 1 else []
        found += [reading[self.reading]] if self.reading in reading else []
        found += [f"{self.cache} cache"] if self.cache else []
        if self.spread == "owned":
            found += [f"macrobatches of {self.window}" if self.window > 1 else "rows fetched from owners"]
        elif self.spread != "alone":
            found += [self.spread]
        return (*found, f"{self.num_parts} micro-batches") if self.num_parts > 1 else (*found,)

    @property
    def changes_samples(self) -> bool:
        """Whether a step's gradient is another random estimate than without the ideas.

        Cooperating devices draw the seeds of a step from all training nodes, others each from its share.
        """
        return self.labor or self.kappa > 1 or self.leaves_neighbours_out or self.spread == "cooperation"

    @property
    def leaves_neighbours_out(self) -> bool:
        """Whether batches are sampled from a part of the graph, which costs accuracy."""
        return self.reading == "buffer"

    def __str__(self) -> str:
        return ", ".join(self.ideas) or "plain"
