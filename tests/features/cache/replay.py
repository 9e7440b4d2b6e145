"""The policies in plain Python, on lists and sets, and both semantics as their definitions say."""

from collections.abc import Callable

from workbench.core.trace import AccessTrace


class Reference:
    """A cache that is told of hits and admits rows.

    Args:
        capacity: number of rows.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.queue: list[int] = []  # oldest first

    @property
    def resident(self) -> set[int]:
        return set(self.queue)

    def hit(self, row: int, next_use: float) -> None: ...

    def evict(self) -> None:
        del self.queue[0]

    def admit(self, row: int, next_use: float) -> None:
        if len(self.resident) == self.capacity:
            self.evict()
        self.queue.append(row)


class Fifo(Reference): ...


class Lru(Reference):
    def hit(self, row: int, next_use: float) -> None:
        self.queue.remove(row)
        self.queue.append(row)


class Clock(Reference):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.used: set[int] = set()

    def hit(self, row: int, next_use: float) -> None:
        self.used.add(row)

    def evict(self) -> None:
        while (row := self.queue.pop(0)) in self.used:
            self.used.remove(row)
            self.queue.append(row)


class Sieve(Clock):
    hand = 0

    def evict(self) -> None:
        self.hand %= len(self.queue)
        while (row := self.queue[self.hand]) in self.used:
            self.used.remove(row)
            self.hand = (self.hand + 1) % len(self.queue)
        last = self.hand == len(self.queue) - 1
        del self.queue[self.hand]
        self.hand = 0 if last else self.hand  # rows that are inserted now come after it


class S3Fifo(Reference):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.small: list[int] = []
        self.ghosts: list[int] = []
        self.count: dict[int, int] = {}
        self.small_limit, self.ghost_limit = max(1, int(capacity * 0.1)), int(capacity * 0.9)
        self.has_evicted = False

    @property
    def resident(self) -> set[int]:
        return {*self.queue, *self.small}

    def hit(self, row: int, next_use: float) -> None:
        self.count[row] += 1

    def evict(self) -> None:
        self.has_evicted = True
        before = len(self.resident)
        while len(self.resident) == before:
            if len(self.queue) > self.capacity - self.small_limit or not self.small:
                row = self.queue.pop(0)
                if self.count[row]:
                    self.count[row] = min(3, self.count[row]) - 1
                    self.queue.append(row)
            else:
                self.evict_small()

    def evict_small(self) -> None:
        while self.small:
            row = self.small.pop(0)
            if self.count[row] < 2:
                self.ghosts = [*self.ghosts, row][-self.ghost_limit :] if self.ghost_limit else []
                return
            self.count[row] = 0
            self.queue.append(row)

    def admit(self, row: int, next_use: float) -> None:
        known = row in self.ghosts
        if known:
            self.ghosts.remove(row)
        if len(self.resident) == self.capacity:
            self.evict()
        full = not self.has_evicted and len(self.small) >= self.small_limit
        (self.queue if known or full else self.small).append(row)
        self.count[row] = 0


class Belady(Reference):
    bypass = False

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.next: dict[int, float] = {}

    @property
    def resident(self) -> set[int]:
        return set(self.next)

    def hit(self, row: int, next_use: float) -> None:
        self.next[row] = next_use

    def admit(self, row: int, next_use: float) -> None:
        if len(self.next) == self.capacity:
            farthest = max(self.next, key=lambda r: self.next[r])
            if self.bypass and next_use >= self.next[farthest]:
                return
            del self.next[farthest]
        self.next[row] = next_use


class BeladyBypass(Belady):
    bypass = True


REFERENCES: dict[str, Callable[[int], Reference]] = {
    "lru": Lru,
    "fifo": Fifo,
    "clock": Clock,
    "sieve": Sieve,
    "s3-fifo": S3Fifo,
    "belady": Belady,
    "belady-bypass": BeladyBypass,
}


def next_use(reads: list[list[int]], row: int, read: int, position: int, *, later_read: bool) -> float:
    """The place of the next use: in a later read, or of a later access."""
    places = [(r, i) for r, ids in enumerate(reads) for i, other in enumerate(ids) if other == row]
    later = [place for place in places if (place[0] > read if later_read else place > (read, position))]
    return min((1000.0 * r + i for r, i in later), default=float("inf"))


def replay(trace: AccessTrace, cache: Reference, *, batches: bool) -> list[int]:
    """Hits per read."""
    reads = [ids.tolist() for ids in trace]
    return [(_batch if batches else _accesses)(reads, read, cache) for read in range(len(reads))]


def _accesses(reads: list[list[int]], read: int, cache: Reference) -> int:
    hits = 0
    for position, row in enumerate(reads[read]):
        found = row in cache.resident
        hits += found
        (cache.hit if found else cache.admit)(row, next_use(reads, row, read, position, later_read=False))
    return hits


def _batch(reads: list[list[int]], read: int, cache: Reference) -> int:
    future = {row: next_use(reads, row, read, 0, later_read=True) for row in reads[read]}
    before = cache.resident
    hits = [row for row in reads[read] if row in before]
    for row in hits:
        cache.hit(row, future[row])
    for row in reads[read]:
        if row not in before and row not in cache.resident:
            cache.admit(row, future[row])
    return len(hits)
