"""What the advisor counts before it prices anything: sampled batches, their parts, and a few timed steps.

Counts depend on the data, the model, the sampler and the batch size. Budgets, devices and machines come later, so one
set of counts answers for all of them.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, sqrt
from statistics import NormalDist, fmean, median, stdev
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from workbench.advisor.in_buffer import Store, batches_in_buffer, timed_batches
from workbench.core.dataset import Dataset
from workbench.core.errors import CapacityError, available_bytes, check_at_least, check_type
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Smoothed
from workbench.core.trace import AccessTrace
from workbench.memory.estimator import Estimator, estimator_for
from workbench.memory.search import Budget, CandidateBuilder, lower_bound_exceeds, smallest_fitting
from workbench.memory.traced.dry_run import work
from workbench.memory.training_setup import Optimizer, TrainingSetup
from workbench.outofcore.reading import expected_buckets
from workbench.partition.batch.partitioner import Partitioner
from workbench.placement.access_probability import inclusion_probability
from workbench.sampling.batches import Batches
from workbench.sampling.labor import LaborSampler
from workbench.sampling.loader import batches
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.sampler import Sampler
from workbench.training.exactness.check import check_exact
from workbench.training.profile import profile_epoch
from workbench.training.step import train_step

TRIED_BATCHES, SPLIT_BATCHES = 3, 10
"""Batches, the largest of those sampled, that are partitioned for every number of micro-batches that is tried, and for
the one that is chosen: a smaller batch may have a larger part."""

_LEAST_GROWTH = 0.05
"""Micro-batches that are added, at least, to a number that does not fit, relative to it; as many may be too many."""

_ESTIMATED_PARTS = 64
"""Micro-batches of a batch, those with the most nodes and edges, that are estimated."""

_REPETITIONS = 4
"""Of a step that is timed: the fastest of each phase counts, as whatever else the machine does only adds time."""

_TURNS, _FEWEST_TURNS, _TURN_SECONDS = 100, 3, 1.0
"""Batches that are sampled and trained on in turn, as programs do; the fewest, and seconds after which they do."""

MARGIN = 0.02
"""Fraction by which an estimate of memory may be too low."""


class Mean(NamedTuple):
    """A mean over batches.

    Args:
        value: the mean.
        error: half the width of its 95 % interval, relative to it; 0 if all batches of an epoch were counted.
    """

    value: float
    error: float


def mean_of(values: list[float], population: int) -> Mean:
    """The mean of some of the batches of an epoch.

    Args:
        values: one per batch.
        population: batches per epoch; the interval shrinks as more of them were counted.
    """
    mean = fmean(values)
    if len(values) >= population or len(values) < 2 or not mean:
        return Mean(mean, 0.0)
    missing = (1 - len(values) / population) ** 0.5
    return Mean(mean, 1.96 * stdev(values) / len(values) ** 0.5 * missing / mean)


class StepTime(NamedTuple):
    """Seconds of a training step, linear in the nodes and edges of the batch: fixed + per_item · (nodes + edges).

    Args:
        fixed: of every micro-batch.
        per_item: of a node or an edge.
        residual: largest relative difference between the line and the times it was fitted to.
        per_row: seconds of reading a row from the host's memory.
        sampling: seconds of sampling a batch between two steps, relative to one batch after the other.
    """

    fixed: float
    per_item: float
    residual: float
    per_row: float
    sampling: float = 1.0

    def step(self, mb: MiniBatch) -> float:
        """Seconds of a step on a whole batch, with reading its rows."""
        return self.fixed + self.per_item * work(mb) + self.per_row * mb.num_inputs


@dataclass(frozen=True, eq=False)
class Sampled:
    """Batches of one way of sampling.

    Args:
        loader: that samples more of them.
        batches: consecutive batches, of one device or of several in turn.
        seconds: of sampling each.
        batches_per_epoch: number of batches of all devices, with one of fewer seeds counted as a fraction.
        graph_seconds: of building the graphs of an epoch that they are sampled from; 0 for the whole graph.
    """

    loader: Batches[tuple[int, MiniBatch]]
    batches: tuple[MiniBatch, ...]
    seconds: tuple[float, ...]
    batches_per_epoch: float
    graph_seconds: float = 0.0

    def mean(self, of: Callable[[MiniBatch], float]) -> Mean:
        """Mean over batches of some count."""
        return mean_of([float(of(mb)) for mb in self.batches], ceil(self.batches_per_epoch))

    def largest(self, values: list[int]) -> int:
        """The largest of an epoch, given one value per batch: of these, or the median maximum of so many."""
        epoch = ceil(self.batches_per_epoch)
        if len(values) >= epoch or len(values) < 2:
            return max(values)
        beyond = NormalDist().inv_cdf(0.5 ** (1 / epoch)) * stdev(values)
        return max(*values, round(fmean(values) + beyond))

    @cached_property
    def growth(self) -> float:
        """Input nodes that no batch of another epoch exceeds, with a probability of 99 %, relative to the largest of
        `one_epoch`."""
        from scipy.special import stdtrit

        seeds, epoch = max(mb.num_seeds for mb in self.batches), ceil(self.batches_per_epoch)
        full = [mb.num_inputs for mb in self.batches if mb.num_seeds == seeds]
        most = max(mb.num_inputs for mb in self.batches)
        if len(full) > 1:
            beyond = float(stdtrit(len(full) - 1, 0.99 ** (1 / epoch))) * stdev(full) * sqrt(1 + 1 / len(full))
            most = max(most, fmean(full) + beyond)
        return most / max(mb.num_inputs for mb in self.batches[:epoch])

    @cached_property
    def inputs(self) -> Mean:
        return self.mean(lambda mb: mb.num_inputs)

    @cached_property
    def work(self) -> Mean:
        """Nodes and edges per batch."""
        return self.mean(work)

    @cached_property
    def nbytes(self) -> Mean:
        """Bytes of a batch's arrays."""
        return self.mean(lambda mb: mb.nbytes)

    @cached_property
    def trace(self) -> AccessTrace:
        """Rows that each batch reads."""
        return AccessTrace.of(mb.node_ids for mb in self.batches)

    @cached_property
    def one_epoch(self) -> AccessTrace:
        """Rows that each batch of the first epoch reads, or of its beginning.

        They are in ascending order, in which plans of reads take half the time. How many rows are read does not depend
        on it, but which of those that are used again at the same time.
        """
        first = self.batches[: ceil(self.batches_per_epoch)]
        return AccessTrace.of(torch.from_numpy(np.sort(mb.node_ids.numpy())) for mb in first)


@dataclass(frozen=True, eq=False)
class Parts:
    """What it costs to divide a batch into micro-batches, on average over the batches that were divided.

    Args:
        num_parts: micro-batches.
        peak_bytes: of the largest micro-batch of an epoch, estimated.
        inputs: input nodes of all micro-batches, relative to the batch's.
        work: nodes and edges of all micro-batches, relative to the batch's.
        seconds: of partitioning and splitting one batch.
    """

    num_parts: int
    peak_bytes: int
    inputs: float = 1.0
    work: float = 1.0
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Estimated:
    """Peaks of the batches of one way of sampling, whole and divided, on one kind of device.

    Args:
        sampled: the batches.
        estimator: of a training step's memory.
        partitioner: of batches.
    """

    sampled: Sampled
    estimator: Estimator
    partitioner: Partitioner
    _known: dict[int, Parts] = field(default_factory=dict)
    _tried: dict[int, Parts] = field(default_factory=dict)

    @cached_property
    def _peaks(self) -> list[int]:
        return [self.estimator(mb).peak_bytes for mb in self.sampled.batches]

    @cached_property
    def error(self) -> float:
        """Relative error that the estimator states of itself; 0 for an exact model of the layers."""
        return max(self.estimator(mb).error or 0.0 for mb in self.sampled.batches[:1])

    @cached_property
    def peak_bytes(self) -> int:
        """Peak of the largest batch of an epoch."""
        return self.sampled.largest(self._peaks)

    def parts(self, num_parts: int) -> Parts:
        """Divide the largest batches, or look up what is known."""
        if num_parts not in self._known:
            count = TRIED_BATCHES if num_parts == self._limit else SPLIT_BATCHES
            self._known[num_parts] = self._counted(num_parts, self._largest(count))
        return self._known[num_parts]

    def _roughly(self, num_parts: int) -> Parts:
        """Divide a few batches, or look up what is known."""
        if num_parts == self._limit:
            return self.parts(num_parts)
        if num_parts not in self._known | self._tried:
            self._tried[num_parts] = self._counted(num_parts, self._largest(TRIED_BATCHES))
        return (self._tried | self._known)[num_parts]

    @property
    def _limit(self) -> int:
        """Seeds of a batch, and so the most micro-batches."""
        return max(mb.num_seeds for mb in self.sampled.batches)

    def _largest(self, count: int) -> list[MiniBatch]:
        order = sorted(range(len(self._peaks)), key=lambda place: -self._peaks[place])[:count]
        return [self.sampled.batches[place] for place in order]

    def _counted(self, num_parts: int, batches: Sequence[MiniBatch]) -> Parts:
        if num_parts == 1:
            return Parts(1, self.peak_bytes)
        peaks, inputs, items, seconds = [], [], [], []
        for whole in batches:
            start = time.perf_counter()
            micro = whole.split(self._assignment(whole, num_parts))
            seconds.append(time.perf_counter() - start)
            largest = sorted(range(len(micro)), key=lambda place: -work(micro[place]))[:_ESTIMATED_PARTS]
            estimates = [self.estimator(micro[place], accumulating=place > 0) for place in largest]
            peaks.append(max(estimate.peak_bytes for estimate in estimates))
            inputs.append(sum(part.num_inputs for part in micro) / whole.num_inputs)
            items.append(sum(map(work, micro)) / work(whole))
        unseen = self.peak_bytes / max(self._peaks)
        typical = median(seconds)  # the first one may compile
        return Parts(num_parts, round(max(peaks) * unseen), fmean(inputs), fmean(items), typical)

    def _assignment(self, whole: MiniBatch, num_parts: int) -> Tensor:
        if num_parts == self._limit:  # every seed is a part
            return torch.arange(whole.num_seeds)
        return self.partitioner.prepare(whole).cut(min(num_parts, whole.num_seeds)).assignment

    def fewest(self, memory_bytes: int) -> Parts | None:
        """The fewest micro-batches that fit, as `plan_micro_batches` searches them; None: no number fits."""
        budget = Budget(memory_bytes, MARGIN, self.error)
        if budget_share(budget, self.peak_bytes) > 1 and self._seeds_exceed(memory_bytes):
            return None
        found = smallest_fitting(lambda count: budget_share(budget, self._roughly(count).peak_bytes), self._limit)
        while found is not None and (share := budget_share(budget, self.parts(found).peak_bytes)) > 1:
            larger = ceil(max(1 + _LEAST_GROWTH, share) * found)  # near what a seed needs, a share hardly exceeds 1
            found = min(larger, self._limit) if found < self._limit else None
        return None if found is None else self.parts(found)

    def _seeds_exceed(self, memory_bytes: int) -> bool:
        """Whether the most expensive seeds of the largest batches alone prove that no number of parts fits."""
        seen = int(memory_bytes * max(self._peaks) / self.peak_bytes)
        budget = Budget(seen, max(MARGIN, self.error))
        builders = (CandidateBuilder(self.estimator, self.partitioner, mb) for mb in self._largest(TRIED_BATCHES))
        return any(lower_bound_exceeds(builder, budget) for builder in builders)


def budget_share(budget: Budget, peak_bytes: int) -> float:
    """Share of a budget that a step needs; it fits if at most 1."""
    return peak_bytes * (1 + max(budget.margin, budget.error)) / max(1, budget.memory_bytes)


def default_loss(data: Dataset) -> Callable[..., Tensor]:
    """Cross entropy, or its binary form for several labels per node."""
    return binary_cross_entropy_with_logits if data.y.is_floating_point() else cross_entropy


def silent(text: str) -> None:
    """Tells nobody."""


class Counts:
    """Counts of one data set, model, sampler and batch size; each is made on its first use.

    Args:
        data: the data set.
        model: the model, which is copied where it is run.
        sampler: of the plain program.
        batch_size: seeds per batch.
        optimizer: "adam", "adamw" or "sgd".
        num_batches: batches sampled of every way of sampling.
        seed: of the order of batches and of partitions.
        report: told what is being counted.
    """

    devices = 1
    """Devices whose batches are sampled, each those of its share of the seeds."""

    def __init__(
        self,
        data: Dataset,
        model: nn.Module,
        sampler: Sampler,
        batch_size: int,
        *,
        optimizer: Optimizer = "adam",
        num_batches: int = 24,
        seed: int = 0,
        report: Callable[[str], object] = silent,
    ) -> None:
        check_type("data", data, Dataset, 'pass wb.load_dataset("ogbn-arxiv"), or wb.Dataset.build(graph, x, y, …)')
        check_type("model", model, nn.Module, "pass the torch.nn.Module that is to be trained")
        check_at_least("batch_size", batch_size, 1)
        check_at_least("num_batches", num_batches, 2)
        if not data.num_features:
            raise ValueError(f'{data.name} has no features to read; load it with features="random:128" or "degree"')
        if not len(data.train_idx):
            raise ValueError(f"{data.name} has no training nodes, so there is no batch; pass a data set with a split")
        self.data, self.model, self.sampler, self.seed = data, model, sampler, seed
        self.batch_size = min(batch_size, len(data.train_idx))
        self._num_batches, self.optimizer, self._report = num_batches, optimizer, report
        self._sampled: dict[tuple[bool, int], Sampled] = {}
        self._estimated: dict[tuple[bool, str], Estimated] = {}
        self._times: dict[tuple[str, str], StepTime] = {}
        self._in_buffer: dict[tuple[int, int], Sampled] = {}
        self._stores: dict[int, Store] = {}
        self._buckets: dict[int, Tensor] = {}
        self._hottest: Tensor | None = None
        self._of_devices: dict[int, Counts] = {1: self}

    def for_devices(self, devices: int) -> "Counts":
        """Counts of programs on several devices, of which each samples an equal share of the seeds, as `run_ranks`
        trains them.

        The same counts if a share has more batches than are sampled: then one last batch matters little.

        Raises:
            ValueError: fewer training nodes than devices.
        """
        num_train = len(self.data.train_idx)
        if devices > num_train:
            raise ValueError(
                f"devices is {devices}, but {self.data.name} has {num_train} training nodes, and every device needs "
                f"one; pass at most devices={num_train}, or a data set with more"
            )
        if ceil(num_train // devices / self.batch_size) > self._num_batches:
            return self._of_devices[1]
        if devices not in self._of_devices:
            found = self._of_devices[devices] = copy.copy(self)
            found.devices = devices
            found._sampled, found._estimated, found._times = {}, {}, {}
        return self._of_devices[devices]

    @property
    def row_bytes(self) -> int:
        return self.data.x[:1].nbytes

    @property
    def steps_per_epoch(self) -> int:
        """Of a device."""
        return ceil(len(self.data.train_idx) // self.devices / self.batch_size)

    @property
    def fanouts(self) -> tuple[int, ...] | None:
        """Of a sampler with one per layer; None if it has none, or they differ by edge type."""
        fanouts = getattr(self.sampler, "fanouts", None)
        return fanouts if fanouts is not None and all(isinstance(fanout, int) for fanout in fanouts) else None

    @property
    def can_be_labor(self) -> bool:
        """Whether LABOR draws in place of the sampler: one that draws neighbours uniformly, without replacement."""
        sampler = self.sampler
        return isinstance(sampler, NeighborSampler) and not (sampler.replace or sampler.weighted or sampler.dependence)

    @property
    def can_depend(self) -> bool:
        return isinstance(self.sampler, NeighborSampler | LaborSampler) and self.sampler.dependence is None

    @cached_property
    def is_exact(self) -> bool:
        """Whether gradients of micro-batches add up to the whole batch's; if not, the program warns."""
        model = copy.deepcopy(self.model).cpu()
        return check_exact(model, self.sampled().batches[0], in_dim=self.data.num_features).exact is not False

    def variant(self, *, labor: bool = False, kappa: int = 1) -> Sampler:
        """The sampler, or LABOR with its fanouts, of independent or dependent batches."""
        sampler: Any = self.sampler
        if labor:
            sampler = LaborSampler(sampler.fanouts, edge_ids=sampler.edge_ids, seed=sampler.seed)
        return replace(sampler, dependence=Smoothed(kappa)) if kappa > 1 else sampler

    def sampled(self, *, labor: bool = False, kappa: int = 1) -> Sampled:
        """Sample batches one way."""
        if (labor, kappa) not in self._sampled:
            name = f"{'LABOR' if labor else type(self.sampler).__name__}{f', κ = {kappa}' if kappa > 1 else ''}"
            self._report(f"sampling {self._num_batches} batches: {name}")
            self._sampled[labor, kappa] = self._sample(self.variant(labor=labor, kappa=kappa))
        return self._sampled[labor, kappa]

    def in_buffer(self, num_partitions: int, capacity: int) -> Sampled:
        """Sample batches as from MariusGNN's buffer."""
        if (num_partitions, capacity) not in self._in_buffer:
            self._report(f"sampling in a buffer of {capacity} of {num_partitions} partitions")
            if num_partitions not in self._stores:
                self._stores[num_partitions] = Store(self.data, num_partitions, self.seed)
            sizes = {"capacity": capacity, "batch_size": self.batch_size, "num_batches": self._num_batches}
            found = batches_in_buffer(self._stores[num_partitions], self.sampler, **sizes)
            self._in_buffer[num_partitions, capacity] = Sampled(*found)
        return self._in_buffer[num_partitions, capacity]

    def _sample(self, sampler: Sampler) -> Sampled:
        """Whole epochs if they are short, else the first batches of one: the last, smaller one is a fraction.

        Those of several devices are of as many of them as there are epochs to sample.
        """
        options = {"sampler": sampler, "batch_size": self.batch_size, "seed": self.seed}
        share, steps = len(self.data.train_idx) // self.devices, self.steps_per_epoch
        epochs = self._num_batches // steps
        ids = [self.data.train_idx[rank :: self.devices][:share] for rank in range(min(self.devices, max(1, epochs)))]
        loaders = [batches(self.data.graph, each, **options) for each in ids]
        next(iter(loaders[0].epoch(0)))  # compiles kernels
        count = epochs // len(ids) * steps if epochs else self._num_batches
        per_epoch = self.devices * steps if epochs else len(self.data.train_idx) / self.batch_size
        found, seconds = zip(*(timed_batches(loader, count) for loader in loaders), strict=True)
        return Sampled(loaders[0], sum(found, ()), sum(seconds, ()), per_epoch)

    def estimated(self, device: str, *, labor: bool = False) -> Estimated:
        """Peaks on a kind of device, "cpu" or "cuda".

        Raises:
            ValueError: a model whose memory can't be estimated.
        """
        if (labor, device) not in self._estimated:
            sampled = self.sampled(labor=labor)
            self._report("estimating memory")
            setup = TrainingSetup(
                self.model,
                default_loss(self.data),
                self.optimizer,
                backend=device,
                in_dim=self.data.num_features,
            )
            estimator = estimator_for(setup, max(sampled.batches, key=work))
            self._estimated[labor, device] = Estimated(sampled, estimator, Partitioner("auto", seed=self.seed))
        return self._estimated[labor, device]

    def step_time(self, device: str, *, labor: bool = False, buffer: tuple[int, int] | None = None) -> StepTime:
        """Time steps of a copy of the model on this machine: on one of the batches, on parts of it, and on batches that
        are sampled in between.

        Args:
            device: "cpu" or "cuda".
            labor: of LABOR's batches.
            buffer: partitions and capacity of a buffer, of whose batches steps are timed if none are known of another.

        Raises:
            CapacityError: not even a small part of a batch fits into this machine's memory.
        """
        way = "buffer" if buffer else "LABOR" if labor else "plain"
        if (device, way) not in self._times:
            sampled = self.in_buffer(*buffer) if buffer else self.sampled(labor=labor)
            self._report("timing a few training steps")
            self._times[device, way] = self._timed(device, sampled)
        return self._times[device, way]

    def _timed(self, device: str, sampled: Sampled) -> StepTime:
        whole = sorted(sampled.batches, key=work)[len(sampled.batches) // 2]
        partitioner = Partitioner("range").prepare(whole)
        model = copy.deepcopy(self.model).to(device)
        # Ids of a buffer's batches are not the graph's: rows and labels are those of other nodes, in the same time.
        optimizer, x, y, loss = torch.optim.Adam(model.parameters()), self.data.x, self.data.y, default_loss(self.data)
        room = available_bytes() / 2 if device == "cpu" else torch.cuda.mem_get_info()[0] / 2
        estimator, times, fetched = self.estimated(device).estimator, [], []
        for num_parts in (1, 2, 4, 16):
            if num_parts > whole.num_seeds:
                break
            micro = [whole] if num_parts == 1 else whole.split(partitioner.cut(num_parts).assignment)
            if max(estimator(part).peak_bytes for part in micro) > room:
                continue
            passes = [
                profile_epoch(model, [micro], x, y, loss, optimizer, warm_up=not turn, measure_memory=False).seconds
                for turn in range(_REPETITIONS)
            ]
            least = {phase: min(seconds[phase] for seconds in passes) for phase in passes[0]}
            computed = sum(least[phase] for phase in ("forward", "backward", "step", "other"))
            times.append((len(micro), sum(map(work, micro)), computed))
            fetched.append(least["fetch"] / sum(part.num_inputs for part in micro))
        if not times:
            raise CapacityError("not even a sixteenth of a batch fits into this machine's memory; lower batch_size")
        alone = StepTime(*fitted(times), per_row=min(fetched))
        if times[0][0] > 1 or device != "cpu":  # whole batches don't fit, or another device trains meanwhile
            return alone
        return in_turn(sampled, alone, lambda mb: train_step(model, mb, x, y, loss, optimizer))

    def buckets(self, num_partitions: int) -> Tensor:
        """float64 [p, p], expected edges between the partitions of MariusGNN's buffer."""
        if num_partitions not in self._buckets:
            self._buckets[num_partitions] = expected_buckets(self.data.graph, self.data.train_idx, num_partitions)
        return self._buckets[num_partitions]

    def hottest_rows(self) -> Tensor:
        """Ids of all rows, those that batches read most probably first."""
        if self._hottest is None:
            self._report("computing access probabilities")
            self._hottest = self.access_probability().argsort(descending=True, stable=True)
        return self._hottest

    def access_probability(self) -> Tensor:
        """float64 [num_nodes], how likely a batch reads each row; of the batches sampled if fanouts differ by type."""
        data = self.data
        if self.fanouts is None:
            ids = self.sampled().trace.ids
            return torch.bincount(ids, minlength=data.graph.num_nodes).double() / len(self.sampled().batches)
        return inclusion_probability(data.graph, data.train_idx, fanouts=self.fanouts, batch_size=self.batch_size)


def in_turn(sampled: Sampled, alone: StepTime, train: Callable[[MiniBatch], object]) -> StepTime:
    """Times as in a program, whose samples and steps find each other's data in the caches, and each other's threads.

    Args:
        sampled: batches.
        alone: times of steps that were repeated.
        train: takes a step.
    """
    sampling, training = [], []
    before = start = time.perf_counter()
    for _, mb in sampled.loader.steps(_TURNS):
        between = time.perf_counter()
        train(mb)
        after = time.perf_counter()
        sampling.append(between - before)
        training.append((after - between) / alone.step(mb))
        if len(training) >= _FEWEST_TURNS and after - start > _TURN_SECONDS:
            break
        before = after
    pace = median(training)
    return alone._replace(
        fixed=pace * alone.fixed,
        per_item=pace * alone.per_item,
        per_row=pace * alone.per_row,
        sampling=median(sampling) / median(sampled.seconds),
    )


def fitted(times: list[tuple[int, int, float]]) -> tuple[float, float, float]:
    """The line through the times of steps, by least relative squares; neither term is negative.

    Args:
        times: micro-batches, nodes and edges, and seconds of each step.

    Returns:
        Seconds of a micro-batch and of an item, and the largest relative difference from the line.

    >>> fitted([(1, 100, 3.0), (2, 100, 4.0)])
    (1.0, 0.02, 0.0)
    """
    seconds = torch.tensor([row[2] for row in times], dtype=torch.float64)
    terms = torch.tensor([row[:2] for row in times], dtype=torch.float64) / seconds[:, None]
    ones = torch.ones(len(times), 1, dtype=torch.float64)
    fixed, per_item = torch.linalg.lstsq(terms, ones, driver="gelsd").solution[:, 0].tolist()
    if min(fixed, per_item) < 0 or len(times) == 1:
        fixed, per_item = 0.0, float((terms[:, 1:].T @ ones) / (terms[:, 1:].T @ terms[:, 1:]))
    residual = (terms @ torch.tensor([fixed, per_item], dtype=torch.float64) - 1).abs().max()
    return round(fixed, 12), round(per_item, 15), round(float(residual), 9)
