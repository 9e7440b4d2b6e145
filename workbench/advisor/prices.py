"""`Pricer`: peak memory, bytes by link and seconds per epoch of a configuration, from counts and a machine's speeds.

Batches are sampled and divided on the host. On a GPU that has room for it, the work of the host and the copies overlap
with the training of batches before; on a CPU, which does both, they don't. Reads of a disk overlap where they are read
ahead.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from math import ceil, isfinite, isqrt
from statistics import median
from typing import Any

import torch
from torch import Tensor

from workbench.advisor.configuration import CHANGES, INEXACT, SAME, Configuration
from workbench.advisor.counts import MARGIN, Counts, Estimated, Parts, Sampled, StepTime, default_loss
from workbench.advisor.machine import Machine
from workbench.advisor.work import StepWork, step_work
from workbench.cooperative.cost_model import PeCounts
from workbench.cooperative.sampling import batches as cooperative_batches
from workbench.cooperative.work import cooperative_work
from workbench.core.errors import CapacityError
from workbench.core.randomness import permutation
from workbench.core.units import format_bytes
from workbench.features.cache.simulate import simulate_cache
from workbench.features.disk_rows import MAX_READ, read_cost
from workbench.kernels.threads import run_tasks
from workbench.macrobatch.plan import WindowUnions
from workbench.memory.traced.dry_run import work
from workbench.outofcore.reading import Reading, ReadingPlan, plan_reading
from workbench.outofcore.tuning import DiskModel
from workbench.partition.graph import partition_graph
from workbench.placement.placement import place_rows

STAGES = ("sample", "partition", "read", "copy", "exchange", "compute")
"""sample: batches. partition: them into micro-batches. read: rows from the host's memory or a disk. copy: to the
device. exchange: between devices. compute: forward, backward and optimizer step."""

KAPPA = 64
"""Batches per group of dependent ones, where the idea is priced."""

WINDOWS = (1, 8)
"""Batches whose rows are fetched together where rows have owners."""

CACHE_POLICIES = ("static", "lru")

GROUPS = (1, 2, 4, 8, 16)
"""Batches whose rows are read together."""

BLOCK_BYTES = 4096
"""Of a disk whose block is not known."""

EDGE_BYTES = 16
MOST_PARTITIONS = 64
"""Of MariusGNN's buffer, on disk; fewer where partitions or buckets of edges were smaller than one disk read."""

_INDEX_BYTES = 8  # of the host's memory, per row of a store that has some of them on a device
_MOST_PREFETCHED = 3
"""Batches whose rows are copied to a GPU ahead of the one in training, where it has room for them."""

_GLOBAL_BATCHES = 3  # of all devices, beside the last one
_FEWEST_PARTITIONS = 8


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A configuration with its price.

    Args:
        configuration: the configuration.
        peak_bytes: memory of a device: of a step, and of the rows that stay on it.
        host_bytes: the host's memory for rows and, unless it is in a buffer, the graph.
        fits: whether both are within the budgets.
        link_bytes: bytes of rows per epoch and device by where they come from: "disk", "host", "device", "peer" or
            "rank".
        seconds: per epoch by stage, some of which overlap.
        epoch_seconds: of an epoch, with what overlaps.
        error: half the width of the interval that the seconds are expected in, relative to them.
        why: why it does not fit, or can't be priced; "" if it fits.
        is_exact: whether its micro-batches, if any, compute the gradient of the whole batch.
    """

    configuration: Configuration
    peak_bytes: int
    host_bytes: int
    fits: bool
    link_bytes: Mapping[str, float]
    seconds: Mapping[str, float]
    epoch_seconds: float
    error: float
    why: str = ""
    is_exact: bool = True

    @property
    def result(self) -> str:
        """How its losses differ from those of the plain program, but for rounding and the random numbers of dropout."""
        return CHANGES if self.configuration.changes_samples else SAME if self.is_exact else INEXACT

    @property
    def choice(self) -> Mapping[str, Any]:
        """What the configuration does otherwise than the plain program, which prefetches, too, if a GPU has room."""
        plain = Configuration(prefetched=self.configuration.prefetched)
        return {name: value for name, value in vars(self.configuration).items() if value != getattr(plain, name)}

    @property
    def predicted(self) -> Mapping[str, float]:
        found = {"peak_bytes": self.peak_bytes, "host_bytes": self.host_bytes, "epoch_seconds": self.epoch_seconds}
        links = {f"from_{link}_bytes": nbytes for link, nbytes in self.link_bytes.items()}
        return {**found, **links, **{f"{stage}_seconds": seconds for stage, seconds in self.seconds.items()}}

    @property
    def can_be_priced(self) -> bool:
        return self.epoch_seconds == self.epoch_seconds  # not a number without a price

    @property
    def moved_bytes(self) -> float:
        """Bytes per epoch from the slowest place that rows come from."""
        return next((nbytes for link in ("disk", "rank", "host") if (nbytes := self.link_bytes.get(link, 0.0))), 0.0)


def unpriced(configuration: Configuration, why: str) -> Priced:
    """A configuration that can't be priced, and why."""
    nan = float("nan")
    return Priced(
        configuration=configuration,
        peak_bytes=0,
        host_bytes=0,
        fits=False,
        link_bytes={},
        seconds={},
        epoch_seconds=nan,
        error=nan,
        why=f"can't be priced: {why}",
    )


@dataclass(frozen=True, eq=False)
class Pricer:
    """Prices configurations for one machine and its budgets.

    Args:
        counts: of data, model, sampler and batch size.
        machine: speeds.
        memory_bytes: memory of a device.
        host_bytes: memory of the host, for graph and rows.
        devices: number of devices.
        measured: compute is timed on this machine; otherwise modelled by the machine's speeds.
    """

    counts: Counts
    machine: Machine
    memory_bytes: int
    host_bytes: int
    devices: int
    measured: bool
    _readings: dict[Any, ReadingPlan] = field(default_factory=dict, init=False)

    @property
    def device(self) -> str:
        return "cpu" if self.machine.is_cpu else "cuda"

    @property
    def graph_bytes(self) -> int:
        return self.counts.data.graph.nbytes

    @property
    def feature_bytes(self) -> int:
        return self.counts.data.x.nbytes

    @property
    def features_fit(self) -> bool:
        """Whether graph and features are within the host's memory."""
        return self.graph_bytes + self.feature_bytes <= self.host_bytes

    def candidates(self) -> Iterator[Configuration]:
        """All configurations of the ideas that this machine can use, with as much memory as there is."""
        for labor in (False, True) if self.counts.can_be_labor else (False,):
            for reading in self._with_parts(labor):
                yield reading
                remembers = reading.window > 1 or reading.reading in ("belady", "packed") or reading.cache == "lru"
                if remembers and self.counts.can_depend:
                    yield replace(reading, kappa=KAPPA)

    def count_for_disk(self) -> None:
        """Count what is asked for once features do not fit into the host's memory, so that any of it is priced at once.

        Steps on the batches of a buffer are timed for a quarter of its partitions, for all sizes.
        """
        counts, p = self.counts, self._partitions
        counts.hottest_rows()
        ways = product((False, True) if counts.can_be_labor else (False,), (1, KAPPA) if counts.can_depend else (1,))
        _ = [counts.sampled(labor=labor, kappa=kappa).one_epoch for labor, kappa in ways]
        if p < 2:
            return
        counts.buckets(p)
        if self.measured:
            counts.step_time(self.device, buffer=(p, max(2, p // 4)))

    def _with_parts(self, labor: bool) -> Iterator[Configuration]:
        estimated = self.counts.estimated(self.device, labor=labor)
        parts = estimated.fewest(self.memory_bytes)
        plain = Configuration(labor=labor, devices=self.devices)
        if parts is None:
            yield replace(plain, num_parts=max(mb.num_seeds for mb in estimated.sampled.batches))
            return
        found = replace(plain, num_parts=parts.num_parts, prefetched=self._prefetched(estimated, parts))
        if self.features_fit:
            yield from self._in_memory(found, parts)
        else:
            yield found  # and the reason why it does not fit
            yield from self._from_disk(found)
        if self.devices > 1:
            yield from (replace(found, spread="owned", window=window) for window in WINDOWS)

    def _prefetched(self, estimated: Estimated, parts: Parts) -> int:
        """Batches that a GPU has room for beside the one in training: none of several parts, or of several devices.

        `wb.prefetch` holds one more than its depth, so there are two at least.
        """
        if self.machine.is_cpu or self.devices > 1 or parts.num_parts > 1:
            return 0
        room = (self.memory_bytes - with_margin(estimated, parts)) // max(1, self._item_bytes(estimated.sampled))
        return min(room, _MOST_PREFETCHED) if room > 1 else 0

    def _rows_beside(self, c: Configuration, parts: Parts) -> int:
        """Rows that a device has room for beside its steps."""
        estimated = self.counts.estimated(self.device, labor=c.labor)
        room = self.memory_bytes - self._without_rows(c, estimated.sampled, parts, with_margin(estimated, parts))
        return max(0, min(room // self.counts.row_bytes, len(self.counts.data.x)))

    def _without_rows(
        self, c: Configuration, sampled: Sampled, parts: Parts, step_bytes: int, missed: float = 1.0
    ) -> int:
        """Bytes of a device but for the rows that stay on it, given those of a step and the share of missed rows.

        While a cache is read, its misses are there beside the rows asked for and, if it keeps some, a copy of these:
        all in a first read, during which no step runs. Rows that are prefetched or staged are there beside a step's.
        """
        asked = sampled.largest([mb.num_inputs for mb in sampled.batches]) * self.counts.row_bytes
        asked = ceil(asked * parts.inputs / parts.num_parts)
        copies = {"": 0, "static": 1, "lru": 2}[c.cache]
        if c.prefetched:
            return step_bytes + c.prefetched * self._item_bytes(sampled) + ceil(copies * missed * asked)
        if c.spread == "placement":
            return step_bytes + asked
        return max(step_bytes, (1 + copies) * asked)

    def _item_bytes(self, sampled: Sampled) -> int:
        """Bytes of a batch and the rows that it reads, as they are copied to a device: those of the largest."""
        return sampled.largest([mb.nbytes + mb.num_inputs * self.counts.row_bytes for mb in sampled.batches])

    def _in_memory(self, plain: Configuration, parts: Parts) -> Iterator[Configuration]:
        yield plain
        if not self.machine.is_cpu:
            for policy in CACHE_POLICIES:
                if rows := self._rows_beside(replace(plain, cache=policy), parts):
                    yield replace(plain, cache=policy, cached_rows=rows)
            placed = replace(plain, spread="placement", peer_cost=min(1.0, self.machine.beta / self.machine.alpha))
            if self.devices > 1 and (rows := self._rows_beside(placed, parts)):
                yield replace(placed, placed_rows=rows)
        if self.devices > 1 and self.counts.sampler.rows_are_independent:
            yield replace(plain, spread="cooperation", num_parts=1)

    def _from_disk(self, plain: Configuration) -> Iterator[Configuration]:
        rows = self._pool_rows
        if rows < 1:
            return
        if not self._knows_disk or self.devices > 1:
            yield replace(plain, reading="static", held_rows=rows)  # and the reason why it has no price
            return
        plain = replace(plain, held_rows=rows, gap_bytes=self._gap_bytes)
        yield replace(plain, reading="static")
        ways = [(plain.labor, kappa) for kappa in ((1, KAPPA) if self.counts.can_depend else (1,))]
        for labor, kappa in ways:
            self.counts.sampled(labor=labor, kappa=kappa)  # timed, so one after the other
        with suppress(CapacityError):  # which is raised again below
            run_tasks([partial(self.reading, *way) for way in ways])
        try:
            plan = self.reading(plain.labor, 1)
        except CapacityError:  # but those of dependent batches may fit
            window = len(self.counts.sampled(labor=plain.labor).one_epoch)
            yield replace(plain, reading="belady", window=window, prefetched=0)
            return
        seen = set[str]()
        for reading in (plan.best, *plan.others):
            if reading.method in seen or (reading.method == "buffer" and plain.labor):
                continue
            seen.add(reading.method)
            yield self._read_by(plain, reading)

    def _read_by(self, plain: Configuration, reading: Reading) -> Configuration:
        plain = replace(plain, prefetched=0)
        if reading.method == "buffer":
            sizes = {"partitions": reading.num_partitions, "capacity": reading.capacity}
            return replace(plain, reading="buffer", held_rows=0, **sizes)
        window = len(self.counts.sampled(labor=plain.labor).one_epoch)
        return replace(plain, reading=reading.method, window=window, group=reading.group)

    @property
    def _pool_rows(self) -> int:
        return min((self.host_bytes - self.graph_bytes) // self.counts.row_bytes, len(self.counts.data.x))

    @cached_property
    def disk(self) -> DiskModel:
        if not self._knows_disk:
            raise ValueError("the speed of the machine's disk is not known, pass disk= and disk_reads= to wb.Machine")
        machine = self.machine
        writes = min(machine.disk_writes, machine.disk)
        return DiskModel(machine.disk, machine.disk_reads, machine.disk_block_bytes or BLOCK_BYTES, writes)

    @property
    def _knows_disk(self) -> bool:
        return isfinite(self.machine.disk) and isfinite(self.machine.disk_reads)

    @property
    def _partitions(self) -> int:
        """As MariusGNN chooses them: p = min(features / D, √(edges / D)) of disk reads of D bytes.

        A buffer does few reads at the same time, so that only long ones take the disk's bandwidth. There are no more
        partitions than nodes; fewer than 2 are no buffer.
        """
        graph, read = self.counts.data.graph, max(self.disk.read_bytes, MAX_READ)
        chosen = min(self.feature_bytes // read, isqrt(EDGE_BYTES * graph.num_edges // read))
        return min(MOST_PARTITIONS, graph.num_nodes, max(_FEWEST_PARTITIONS, chosen))

    @property
    def _gap_bytes(self) -> int:
        return min(self.disk.read_bytes, MAX_READ)

    def reading(self, labor: bool, kappa: int) -> ReadingPlan:
        """How `plan_reading` reads the batches of an epoch; nothing that was read for one is kept for the next.

        The plan leaves the memory that the largest batch of another epoch may need beyond the largest of this one.
        Where a part of an epoch was sampled, two groups are in it, which must be in memory one after the other.
        """
        if (labor, kappa) not in self._readings:
            sampled = self.counts.sampled(labor=labor, kappa=kappa)
            memory = self._pool_rows * self.counts.row_bytes
            number = len(sampled.one_epoch)
            is_whole = number >= sampled.batches_per_epoch
            partition_rows = ceil(len(self.counts.data.x) / self._partitions)
            buffer: dict[str, Any] = {
                "num_edges": self.counts.data.graph.num_edges,
                "edge_bytes": EDGE_BYTES,
                "num_partitions": self._partitions,
                "num_train_partitions": ceil(len(self.counts.data.train_idx) / partition_rows),
                "buckets": self.counts.buckets(self._partitions),
            }
            self._readings[labor, kappa] = plan_reading(
                sampled.one_epoch,
                num_rows=len(self.counts.data.x),
                row_bytes=self.counts.row_bytes,
                memory=memory,
                disk=self.disk,
                groups=[group for group in GROUPS if is_whole or group == 1 or 2 * group <= number],
                margin=1 - 1 / sampled.growth,
                **(buffer if self._partitions > 1 else {}),
            )
        return self._readings[labor, kappa]

    def price(self, configuration: Configuration) -> Priced:
        """Price one configuration.

        Args:
            configuration: of `candidates`, or one's own.
        """
        try:
            return self._price(configuration)
        except (ValueError, CapacityError, NotImplementedError) as error:
            return unpriced(configuration, str(error).partition(";")[0])

    def _price(self, c: Configuration) -> Priced:
        sampled = self._sampled(c)
        estimated = self.counts.estimated(self.device, labor=c.labor)
        parts = estimated.parts(c.num_parts)
        rows = _Rows(self, c, sampled, parts)
        steps = self._steps(c, sampled)
        beside = partial(self._without_rows, c, sampled, parts, missed=rows.missed)
        peak_bytes = beside(parts.peak_bytes) + rows.device_bytes
        host_bytes = rows.host_bytes
        seconds = self._seconds(c, sampled, parts, rows, steps)
        why = self._why_not(estimated, beside(with_margin(estimated, parts)) + rows.device_bytes, host_bytes)
        inputs, items = sampled.inputs.error, sampled.work.error
        fit = self._step_time(c).residual if self.measured else 0.25
        return Priced(
            configuration=c,
            peak_bytes=peak_bytes,
            host_bytes=host_bytes,
            fits=not why,
            link_bytes={link: steps * nbytes for link, nbytes in rows.link_bytes.items()},
            seconds=seconds,
            epoch_seconds=self._elapsed(c, seconds, sampled.batches_per_epoch * rows.ahead_seconds),
            error=max(inputs, items) + fit,
            why=why,
            is_exact=c.num_parts == 1 or self.counts.is_exact,
        )

    def _steps(self, c: Configuration, sampled: Sampled) -> float:
        """Steps of a device per epoch."""
        if c.spread != "cooperation":
            return sampled.batches_per_epoch / c.devices
        return ceil(len(self.counts.data.train_idx) / (c.devices * self.counts.batch_size))

    def _sampled(self, c: Configuration) -> Sampled:
        if c.reading == "buffer":
            return self.counts.in_buffer(c.partitions, c.capacity)
        return self.counts.sampled(labor=c.labor, kappa=c.kappa)

    def _why_not(self, estimated: Estimated, needed_bytes: int, host_bytes: int) -> str:
        if needed_bytes > self.memory_bytes:
            needed = "even one seed at a time needs" if estimated.fewest(self.memory_bytes) is None else "needs"
            return f"{needed} {format_bytes(needed_bytes)} of {format_bytes(self.memory_bytes)} of device memory"
        if host_bytes > self.host_bytes:
            return f"needs {format_bytes(host_bytes)} of {format_bytes(self.host_bytes)} of host memory"
        return ""

    def _seconds(
        self, c: Configuration, sampled: Sampled, parts: Parts, rows: "_Rows", per_device: float
    ) -> dict[str, float]:
        """Seconds per epoch by stage. The host samples, divides and gathers for all devices, which copy at once; rows
        that have owners are on a host per device.

        Args:
            c: the configuration.
            sampled: the batches.
            parts: what dividing them costs.
            rows: what a batch reads.
            per_device: steps of a device.
        """
        hosts = c.devices if c.spread == "owned" else 1
        per_host = c.devices * per_device / hosts
        sampling = median(sampled.seconds) * (self._step_time(c).sampling if self.measured else 1)
        passes = 2 if c.reading == "packed" else 1
        return {
            "sample": passes * sampled.batches_per_epoch * sampling / hosts + sampled.graph_seconds,
            "partition": per_host * parts.seconds,
            "read": per_host * rows.read_seconds,
            "copy": per_device * rows.copy_seconds,
            "exchange": per_device * (rows.exchange_seconds + self._gradient_seconds(c)),
            "compute": per_device * self.compute_seconds(rows.items, c),
        }

    def _gradient_seconds(self, c: Configuration) -> float:
        """All-reduce of the gradients: twice their bytes in and out."""
        nbytes = sum(parameter.nbytes for parameter in self.counts.model.parameters())
        link = self.machine.network if c.spread == "owned" else self.machine.alpha
        return 2 * nbytes / link if c.devices > 1 else 0.0

    def _elapsed(self, c: Configuration, seconds: Mapping[str, float], ahead_seconds: float) -> float:
        host = seconds["sample"] + seconds["partition"] + seconds["read"] + seconds["copy"]
        device = seconds["compute"] + seconds["exchange"]
        if c.prefetched:
            return max(host, device)
        return host + device - min(ahead_seconds, seconds["copy"] + device)

    def _step_time(self, c: Configuration) -> StepTime:
        buffer = (c.partitions, c.capacity) if c.reading == "buffer" else None
        return self.counts.step_time(self.device, labor=c.labor, buffer=buffer)

    def compute_seconds(self, items: float, c: Configuration) -> float:
        """Seconds of a step on a batch of so many nodes and edges in all its parts."""
        if self.measured:
            time = self._step_time(c)
            return c.num_parts * time.fixed + items * time.per_item
        step, counted = self._step_work
        of_batch = max(step.nbytes / self.machine.gamma, step.flops / self.machine.flops)
        return items / counted * of_batch + step.optimizer_bytes / self.machine.gamma

    @cached_property
    def _step_work(self) -> tuple[StepWork, int]:
        """Work of a step on a small part of a batch, and the nodes and edges of this part."""
        data, mb = self.counts.data, self.counts.sampled().batches[0]
        assignment = torch.arange(mb.num_seeds) * 16 // max(16, mb.num_seeds)
        part = mb.split(assignment)[0]
        return step_work(self.counts.model, part, data.x, data.y, default_loss(data)), work(part)

    def gather_seconds(self, rows: float, c: Configuration) -> float:
        """Seconds in which the host gathers rows from its memory."""
        if self.measured and self.machine.is_cpu:
            return rows * self._step_time(c).per_row
        return rows * self.counts.row_bytes / self.machine.gather

    def hidden_bytes(self) -> tuple[int, ...]:
        """Bytes of a row that each hidden layer reads, from the seeds."""
        step, _ = self._step_work
        if not step.widths:
            raise ValueError("the model's layers read no blocks, so what they exchange is unknown")
        return (*reversed(step.widths[1:]),)


def with_margin(estimated: Estimated, parts: Parts) -> int:
    """Bytes that a step may need, if its peak is estimated too low by as much as the estimator states."""
    return ceil(parts.peak_bytes * (1 + max(MARGIN, estimated.error)))


class _Rows:
    """What one batch of a device reads, in bytes by link and in seconds.

    Args:
        pricer: machine, budgets and counts.
        c: the configuration.
        sampled: the batches.
        parts: what dividing them costs.
    """

    def __init__(self, pricer: Pricer, c: Configuration, sampled: Sampled, parts: Parts) -> None:
        self._pricer, self._c, self._sampled = pricer, c, sampled
        self._row_bytes = pricer.counts.row_bytes
        self._asked = sampled.inputs.value * parts.inputs
        self._repeats = parts.inputs
        self.items = sampled.work.value * parts.work
        self.device_bytes, self.missed, self.exchange_seconds = 0, 1.0, 0.0
        self.host_bytes = pricer.graph_bytes + pricer.feature_bytes
        self.read_seconds = self.copy_seconds = 0.0
        self.ahead_seconds = 0.0
        """Of `read_seconds`, in a thread that reads what comes next."""
        self.link_bytes: dict[str, float] = {}
        price: Callable[[], None] = {
            "alone": self._cached if c.cache else self._in_memory if c.reading == "memory" else self._from_disk,
            "placement": self._placed,
            "cooperation": self._cooperating,
            "owned": self._fetched_from_owners,
        }[c.spread]
        price()

    def _from_host(self, rows: float, batch_bytes: float) -> None:
        """Gather rows in the host's memory and copy them, with the batch, to the device."""
        self.read_seconds += self._pricer.gather_seconds(rows, self._c)
        if not self._pricer.machine.is_cpu:
            self.copy_seconds += (rows * self._row_bytes + batch_bytes) / self._pricer.machine.beta

    @property
    def _batch_bytes(self) -> float:
        return self._sampled.nbytes.value * self._repeats

    def _in_memory(self) -> None:
        self.link_bytes = {"host": self._asked * self._row_bytes}
        self._from_host(self._asked, self._batch_bytes)

    def _cached(self) -> None:
        """A cache on the device, whose misses come from the host."""
        c, trace = self._c, self._sampled.trace
        hottest = self._pricer.counts.hottest_rows() if c.cache == "static" else None
        options: dict[str, Any] = {"rows": hottest, "warmup": 0 if c.cache == "static" else 0.5}
        size = len(self._pricer.counts.data.x)
        found = simulate_cache(trace, c.cached_rows, policy=c.cache, semantics="batch", num_rows=size, **options)
        self.missed = found.miss_rate
        missed = self._asked * self.missed
        self.device_bytes = c.cached_rows * self._row_bytes
        self.host_bytes += size * _INDEX_BYTES
        self.link_bytes = {"host": missed * self._row_bytes, "device": (self._asked - missed) * self._row_bytes}
        self._from_host(missed, self._batch_bytes)

    def _from_disk(self) -> None:
        pricer, c = self._pricer, self._c
        if c.devices > 1:
            raise ValueError("what several devices read from one disk is not planned")
        self.host_bytes = pricer.graph_bytes + c.held_rows * self._row_bytes
        if c.reading == "static":
            nbytes, reads = self._missed_reads()
            seconds = pricer.disk.seconds(nbytes, reads)
        else:
            found = self._found()
            self.host_bytes = found.buffer_bytes or self.host_bytes
            # A buffer is read once per epoch, whatever its batches.
            count = self._sampled.batches_per_epoch if c.reading == "buffer" else len(self._sampled.one_epoch)
            nbytes, seconds = (found.read_bytes + found.written_bytes) / count, found.seconds / count
            self.ahead_seconds = (found.seconds - found.first_seconds) / count
        self.link_bytes = {"disk": nbytes, "host": self._asked * self._row_bytes}
        self._from_host(self._asked, self._batch_bytes)
        self.read_seconds += seconds

    def _found(self) -> Reading:
        """The way of reading that the configuration has."""
        plan, c = self._pricer.reading(self._c.labor, self._c.kappa), self._c
        group = c.group if c.reading != "buffer" else 0
        found = [one for one in (plan.best, *plan.others) if (one.method, one.group) == (c.reading, group)]
        if not found:
            raise CapacityError(f"the rows of {2 * group} batches do not fit into the host's memory")
        return found[0]

    def _missed_reads(self) -> tuple[float, float]:
        """Bytes and reads of a batch's rows that a static cache does not hold."""
        pricer, size = self._pricer, len(self._pricer.counts.data.x)
        held = torch.zeros(size, dtype=torch.bool)
        held[pricer.counts.hottest_rows()[: self._c.held_rows]] = True
        options = {"block": pricer.disk.block_bytes, "max_gap": self._c.gap_bytes, "file_bytes": size * self._row_bytes}
        missed: list[Tensor] = [ids[~held[ids]] for ids in self._sampled.trace]
        costs = [read_cost(ids, self._row_bytes, **options) for ids in missed]
        scale = self._repeats / len(costs)
        return scale * sum(nbytes for nbytes, _ in costs), scale * sum(reads for _, reads in costs)

    def _placed(self) -> None:
        """Rows placed on all devices by their probability of access, others on the host."""
        pricer, c, machine = self._pricer, self._c, self._pricer.machine
        placement = place_rows(
            pricer.counts.access_probability(),
            num_devices=c.devices,
            rows_per_device=c.placed_rows,
            peer_cost=c.peer_cost,
        )
        ids = self._sampled.trace.ids
        reads = placement.count_reads(0, ids).double() / len(ids) * self._asked
        own, peers, host = float(reads[0]), float(reads[1:-1].sum()), float(reads[-1])
        self.device_bytes = c.placed_rows * self._row_bytes
        self.host_bytes += len(pricer.counts.data.x) * _INDEX_BYTES
        self.link_bytes = {"host": host * self._row_bytes, "peer": peers * self._row_bytes}
        self.link_bytes["device"] = own * self._row_bytes
        self._from_host(host, self._batch_bytes)
        self.exchange_seconds = peers * self._row_bytes / machine.alpha

    def _fetched_from_owners(self) -> None:
        """Each host has the rows of its device's nodes; rows of others are fetched once per window of batches."""
        pricer, c, machine, counts = self._pricer, self._c, self._pricer.machine, self._pricer.counts
        owner = partition_graph(counts.data.graph, c.devices, method="random", seed=counts.seed)
        window = min(c.window, ceil(len(counts.data.train_idx) // c.devices / counts.batch_size))  # ends with the epoch
        remote = WindowUnions.of(ids[owner[ids] != 0] for ids in self._sampled.trace).counts(window)
        every = WindowUnions.of(self._sampled.trace).counts(window)
        fetched = float(remote.sum()) / len(self._sampled.batches)
        staged = int(every.max()) * self._row_bytes
        self.host_bytes = pricer.graph_bytes + ceil(pricer.feature_bytes / c.devices) + staged
        own = float(every.sum()) / len(self._sampled.batches) - fetched
        self.link_bytes = {"host": own * self._row_bytes, "rank": fetched * self._row_bytes}
        self.read_seconds = pricer.gather_seconds(own + fetched, c)
        self._from_host(self._asked, self._batch_bytes)
        self.exchange_seconds = fetched * self._row_bytes / machine.network

    def _cooperating(self) -> None:
        """One batch of all devices' seeds: each loads the rows that it owns, and exchanges those of each layer."""
        pricer, c, machine = self._pricer, self._c, self._pricer.machine
        counts = pricer.counts
        seeds = counts.data.train_idx[permutation(counts.seed, len(counts.data.train_idx))]
        owner = partition_graph(counts.data.graph, c.devices, method="random", seed=counts.seed)
        batches = seeds.split(c.devices * counts.batch_size)
        last = len(batches) - 1  # which may have fewer seeds
        full = min(last, _GLOBAL_BATCHES)
        counted = {step: self._pe_counts(batches[step], owner, step) for step in {*range(full), last}}
        found = [pe for step in range(last) for pe in counted[step % full]] + counted[last]
        mean = PeCounts.mean(found)
        widths = (*pricer.hidden_bytes(), self._row_bytes)
        hidden = 2 * sum(width * halo for width, halo in zip(widths[:-1], mean.halo[:-1], strict=True))
        features = self._row_bytes * mean.halo[-1]
        self.items = sum(mean.needed) + sum(mean.edges)
        self.link_bytes = {"host": mean.owned[-1] * self._row_bytes, "peer": features + hidden}
        self._from_host(mean.owned[-1], self._batch_bytes)
        self.exchange_seconds = (features + hidden) / machine.alpha

    def _pe_counts(self, seeds: Tensor, owner: Tensor, step: int) -> list[PeCounts]:
        """Of every device, for one batch of all."""
        counts, c = self._pricer.counts, self._c
        sampler = counts.variant(labor=c.labor)
        found = cooperative_batches(
            counts.data.graph, seeds, sampler=sampler, owner=owner, num_ranks=c.devices, step=step
        )
        return PeCounts.of(cooperative_work(found))
