"""The bytes of other batches, predicted from traces of small ones (`fit_memory`), for modules of any kind.

Storage sizes are regressed on the sizes of a batch: exact integer combinations first, else non-negative least squares.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from workbench.core.minibatch import MiniBatch
from workbench.interop.dgl import node_data_widths
from workbench.memory.analytic.layers import LABEL_BYTES
from workbench.memory.estimate import TERMS, BatchSizes, BlockSizes, MemoryEstimate
from workbench.memory.traced.dry_run import (
    AllocationProgram,
    AllocationTrace,
    DryRun,
    Terms,
    batches_of_all_degrees,
    sub_batches,
)
from workbench.meter.allocation_tracker import rounded_bytes
from workbench.nn.losses import LossFunction
from workbench.nn.signature import Forward

_MAX_REGRESSORS = 3

_BUCKETS = 32

_STABLE = (0, 1, 2, 3, 8, 9)  # sizes of a block that extrapolate well

_LINEAR = 4  # the first sizes of a block, which grow linearly with the batch

_INACCURATE = 0.1

_BLOCK_SIZES = 13

_SIZES = _BLOCK_SIZES + 2 * _BUCKETS


def size_vector(sizes: BatchSizes) -> np.ndarray:
    """int64 [77 · layers + 1]: the sizes of a batch that a model's tensors may be proportional to.

    For each block: sources, destinations, edges; destinations with in-edges; the largest in-degree, and that and its
    square times the destinations (padded neighbours and their pairs); pairs of edges with a common destination; number
    and sum of the distinct in-degrees; sources², destinations · sources and destinations² (dense adjacencies, full
    attention); destinations of in-degree 1, …, 32; destinations of at least these in-degrees. Last: edges of all
    blocks.
    """
    per_block = [_block_sizes(block) for block in sizes.blocks]
    return np.concatenate([*per_block, [sum(block.num_edges for block in sizes.blocks)]]).astype(np.int64)


def _block_sizes(block: BlockSizes) -> np.ndarray:
    assert block.degree_counts is not None
    counts = block.degree_counts.numpy()
    degrees = np.arange(len(counts))
    largest, empty = max(len(counts) - 1, 0), int(counts[0]) if len(counts) else 0
    sizes = (
        block.num_src,
        block.num_dst,
        block.num_edges,
        block.num_dst - empty,
        largest,
        block.num_dst * largest,
        block.num_dst * largest**2,
        int((counts * degrees**2).sum()),
        int((counts > 0).sum()),
        int(degrees[counts > 0].sum()),
        block.num_src**2,
        block.num_src * block.num_dst,
        block.num_dst**2,
    )
    buckets = np.zeros(_BUCKETS + 1, np.int64)
    buckets[: len(counts)] = counts[: _BUCKETS + 1]
    at_least = block.num_dst - np.cumsum(buckets[:-1])
    return np.concatenate([sizes, buckets[1:], at_least])


def bucket_columns(num_sizes: int) -> np.ndarray:
    """bool [sizes]: the columns that count destinations of one in-degree."""
    size = np.arange(num_sizes) % _SIZES
    return (size >= _BLOCK_SIZES) & (size < _BLOCK_SIZES + _BUCKETS)


@dataclass(frozen=True, eq=False)
class LinearFit:
    """Linear functions of the sizes of a batch, each shared by the values that it fits.

    Args:
        coefficients: [functions, 1 + sizes], the intercept first.
        function_of: [values], index of the function of each value.
    """

    coefficients: np.ndarray
    function_of: np.ndarray

    def __call__(self, sizes: np.ndarray) -> np.ndarray:
        """Predict int64 [values] from the sizes [sizes] of a batch."""
        return np.rint(self.coefficients @ np.concatenate([[1], sizes])).astype(np.int64)[self.function_of]


def fit_linear(sizes: np.ndarray, values: np.ndarray, target: np.ndarray) -> LinearFit:
    """Fit the simplest linear function of the sizes to every value.

    Candidates are integer combinations of up to three sizes of adjacent blocks, with or without an integer intercept,
    simplest first; among equally simple ones that are exact for every observation, the one that predicts most for
    `target` is chosen. A value without an exact fit is fitted by non-negative least squares.

    Args:
        sizes: int64 [observations, sizes].
        values: int64 [observations, values].
        target: int64 [sizes], sizes of the largest batch to predict.
    """
    distinct, function_of = np.unique(values, axis=1, return_inverse=True)
    coefficients = np.full((distinct.shape[1], 1 + sizes.shape[1]), np.nan)  # NaN: not fitted yet
    constant = (distinct == distinct[:1]).all(0)
    coefficients[constant] = 0
    coefficients[constant, 0] = distinct[0, constant]
    for columns in _candidate_columns(sizes):
        unfitted = np.flatnonzero(np.isnan(coefficients[:, 0]))
        if not len(unfitted):
            break
        _fit_exactly(coefficients, unfitted, columns, sizes, distinct, target)
    _fit_approximately(coefficients, function_of.reshape(-1), sizes, distinct)
    return LinearFit(coefficients, function_of.reshape(-1))


def _candidate_columns(sizes: np.ndarray) -> Iterator[np.ndarray]:
    """Candidate column sets of [1, sizes]: arrays [candidates, columns] of equally many columns, simplest first."""
    columns = _distinct_columns(sizes)
    without_buckets = [c for c in columns if c % _SIZES < _BLOCK_SIZES]
    for count in range(1, _MAX_REGRESSORS + 1):
        subsets = combinations(without_buckets if count > 1 else columns, count)
        adjacent = [s for s in subsets if s[-1] // _SIZES - s[0] // _SIZES <= 1]
        if not adjacent or len(sizes) < count + 3:
            return
        yield np.array(adjacent) + 1
        yield np.array([(-1, *s) for s in adjacent]) + 1


def _distinct_columns(sizes: np.ndarray) -> list[int]:
    """Columns that vary; of several equal ones, the first."""
    first: dict[bytes, int] = {}
    for column in np.flatnonzero((sizes != sizes[:1]).any(0)):
        first.setdefault(sizes[:, column].tobytes(), int(column))
    return list(first.values())


def _fit_exactly(
    coefficients: np.ndarray,
    unfitted: np.ndarray,
    columns: np.ndarray,
    sizes: np.ndarray,
    values: np.ndarray,
    target: np.ndarray,
) -> None:
    """Fill in the functions for which a candidate with integer coefficients is exact."""
    regressors = np.concatenate([np.ones((len(sizes), 1)), sizes], 1)
    design = regressors[:, columns].transpose(1, 0, 2)  # [candidates, observations, columns]
    scale = np.abs(design).max(1, keepdims=True)
    solutions = np.rint(np.linalg.pinv(design / scale) @ values[:, unfitted] / scale.transpose(0, 2, 1))
    exact = (design @ solutions == values[:, unfitted]).all(1)  # [candidates, unfitted]
    predictions = (np.concatenate([[1], target])[columns][:, :, None] * solutions).sum(1)
    best = np.where(exact, predictions, -np.inf).argmax(0)
    for position in np.flatnonzero(exact.any(0)):
        function, candidate = unfitted[position], best[position]
        coefficients[function] = 0
        coefficients[function, columns[candidate]] = solutions[candidate, :, position]


def _fit_approximately(
    coefficients: np.ndarray, function_of: np.ndarray, sizes: np.ndarray, values: np.ndarray
) -> None:
    """Fill in the functions without an exact fit.

    Storages are numbered in execution order, so the nearest exactly fitted one tells the block that a storage belongs
    to. Sizes of other blocks correlate with this block's while batches are small, and would extrapolate wrongly.
    """
    exact = np.flatnonzero(np.any(coefficients[:, 1:] > 0, axis=1)[function_of])
    for function in np.flatnonzero(np.isnan(coefficients[:, 0])).tolist():
        position = function_of.tolist().index(function)
        nearest = exact[np.abs(exact - position).argmin()] if len(exact) else None
        if nearest is None:
            coefficients[function] = fit_non_negative(sizes, values[:, function])
        else:
            block = int(coefficients[function_of[nearest], 1:].argmax()) // _SIZES
            coefficients[function] = _best_multiple(sizes, values[:, function], block)


def _best_multiple(sizes: np.ndarray, values: np.ndarray, block: int) -> np.ndarray:
    """[1 + sizes]: the most accurate multiple of one size of a block; least squares over all if that is inaccurate."""
    columns = [block * _SIZES + size for size in range(_LINEAR) if block * _SIZES + size < sizes.shape[1]]
    multiples = [values.sum() / max(1, sizes[:, column].sum()) for column in columns]
    errors = [np.abs(m * sizes[:, c] - values).sum() for c, m in zip(columns, multiples, strict=True)]
    best = int(np.argmin(errors))
    if errors[best] > _INACCURATE * values.sum():
        return fit_non_negative(sizes, values)
    result = np.zeros(1 + sizes.shape[1])
    result[1 + columns[best]] = multiples[best]
    return result


def fit_non_negative(sizes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[1 + sizes]: non-negative coefficients with the least sum of squared relative errors, the intercept first.

    Only sources, destinations, edges, destinations with in-edges, and number and sum of distinct in-degrees are used
    as regressors: with more, the fit follows few observations closely and extrapolates poorly.

    Args:
        sizes: int64 [observations, sizes].
        values: int64 [observations].
    """
    from scipy.optimize import nnls  # slow to import, and used only for modules without an exact fit

    columns = [c for c in _distinct_columns(sizes) if c % _SIZES in _STABLE]
    weight = 1 / (values + 0.05 * values.max() + 1)
    design = np.concatenate([np.ones((len(sizes), 1)), sizes[:, columns]], 1) * weight[:, None]
    scale = design.max(0) + 1e-300
    result = np.zeros(1 + sizes.shape[1])
    result[[0, *(column + 1 for column in columns)]] = nnls(design / scale, values * weight)[0] / scale
    return result


PhaseTerms = Callable[[np.ndarray], Mapping[str, Terms]]
"""Maps the sizes of a batch to live bytes by term at the peak of each phase, without the fixed bytes."""

_MIN_SAME_PROGRAM = 6

_ACCURATE = 0.1

_VALIDATION_STRIDE = 3


@dataclass(frozen=True, eq=False)
class ReplayPredictor:
    """Replays one allocation program with storage sizes that are linear in the sizes of the batch.

    Args:
        program: the allocation program shared by the traces.
        storage_bytes: maps the sizes of a batch to the bytes of each storage.
    """

    program: AllocationProgram
    storage_bytes: LinearFit

    @staticmethod
    def of(sizes: np.ndarray, traces: Sequence[AllocationTrace], target: np.ndarray) -> "ReplayPredictor | None":
        """Fit to the traces that have the most common program; None if they are too few."""
        program, count = Counter(trace.program for trace in traces).most_common(1)[0]
        if count < min(_MIN_SAME_PROGRAM, len(traces)):
            return None
        matching = [i for i, trace in enumerate(traces) if trace.program == program]
        values = np.stack([traces[i].nbytes for i in matching])
        return ReplayPredictor(program, fit_linear(sizes[matching], values, target))

    @staticmethod
    def exactly(sizes: np.ndarray, traces: Sequence[AllocationTrace], target: np.ndarray) -> "ReplayPredictor | None":
        """Fit to the traces; None unless they share a program and all bytes fit, those of the largest held out, too."""
        if len({trace.program for trace in traces}) > 1:
            return None
        values, largest = np.stack([trace.nbytes for trace in traces]), int(sizes[:, -1].argmax())
        others = np.arange(len(sizes)) != largest
        if others.any():
            trial = fit_linear(sizes[others], values[others], target)
            if not np.array_equal(trial(sizes[largest]), values[largest]):
                return None
        fitted = fit_linear(sizes, values, target)
        if any(not np.array_equal(fitted(row), nbytes) for row, nbytes in zip(sizes, values, strict=True)):
            return None
        return ReplayPredictor(traces[0].program, fitted)

    def __call__(self, sizes: np.ndarray) -> Mapping[str, Terms]:
        return self.program.replay(self.storage_bytes(sizes))


@dataclass(frozen=True, eq=False)
class PeakRegression:
    """Predicts the peak of each phase as a linear function of the sizes, for programs that depend on the data.

    Args:
        coefficients: [1 + sizes] for each phase, the intercept first.
        fractions: for each phase, the terms' fractions of the peak, taken from the largest trace.
    """

    coefficients: Mapping[str, np.ndarray]
    fractions: Mapping[str, Mapping[str, float]]

    @staticmethod
    def of(sizes: np.ndarray, traces: Sequence[AllocationTrace], target: np.ndarray) -> "PeakRegression":
        """Fit to all traces by non-negative least squares."""
        peaks = [trace.peaks() for trace in traces]
        totals = {phase: np.array([sum(peak[phase].values()) for peak in peaks]) for phase in peaks[0]}
        largest = int(sizes[:, -1].argmax())
        return PeakRegression(
            {phase: fit_non_negative(sizes, values) for phase, values in totals.items()},
            {
                phase: {t: n / max(1, sum(terms.values())) for t, n in terms.items()}
                for phase, terms in peaks[largest].items()
            },
        )

    def scaled_up(self, fraction: float) -> "PeakRegression":
        """The same regression with all peaks raised by a fraction of themselves."""
        return PeakRegression({phase: c * (1 + fraction) for phase, c in self.coefficients.items()}, self.fractions)

    def __call__(self, sizes: np.ndarray) -> Mapping[str, Terms]:
        regressors = np.concatenate([[1], sizes])
        totals = {phase: float(c @ regressors) for phase, c in self.coefficients.items()}
        return {
            phase: {term: round(fraction * total) for term, fraction in self.fractions[phase].items()}
            for phase, total in totals.items()
        }


@dataclass(frozen=True, eq=False)
class HybridPredictor:
    """Replays the most common program, and bounds it by the peak regression for batches with other in-degrees.

    A loop over in-degrees skips those that a batch does not have; replaying the full program then overestimates.

    Args:
        replay: predicts by replay.
        regression: predicts by peak regression.
        required: bool [sizes], in-degree columns that were positive in all traces of the program.
        unseen: bool [sizes], in-degree columns that were positive in none of them.
    """

    replay: ReplayPredictor
    regression: PeakRegression
    required: np.ndarray
    unseen: np.ndarray

    @staticmethod
    def of(sizes: np.ndarray, traces: Sequence[AllocationTrace], target: np.ndarray) -> "HybridPredictor | None":
        """Fit both predictors; None if too few traces share a program."""
        replay, regression = ReplayPredictor.of(sizes, traces, target), PeakRegression.of(sizes, traces, target)
        if replay is None:
            return None
        matching = np.array([trace.program == replay.program for trace in traces])
        positive, buckets = sizes[matching] > 0, bucket_columns(sizes.shape[1])
        return HybridPredictor(replay, regression, buckets & positive.all(0), buckets & ~positive.any(0))

    def scaled_up(self, fraction: float) -> "HybridPredictor":
        """The same predictor with the peaks of the regression raised by a fraction of themselves."""
        return HybridPredictor(self.replay, self.regression.scaled_up(fraction), self.required, self.unseen)

    def __call__(self, sizes: np.ndarray) -> Mapping[str, Terms]:
        replayed = self.replay(sizes)
        fewer, more = (sizes[self.required] == 0).any(), (sizes[self.unseen] > 0).any()
        if not fewer and not more:
            return replayed
        by_peak = sorted((replayed, self.regression(sizes)), key=_peak)
        return by_peak[1] if more else by_peak[0]


def fit_predictor(sizes: np.ndarray, traces: Sequence[AllocationTrace], target: np.ndarray) -> tuple[PhaseTerms, float]:
    """Fit a predictor and measure its largest relative error on held-out traces, `MemoryEstimate.error`.

    Replay is preferred where it is accurate, since it extrapolates to larger batches. Predictions by regression are
    scaled up by their largest relative shortfall on the held-out traces.

    Args:
        sizes: int64 [traces, sizes].
        traces: the phases of a step on each sub-batch.
        target: int64 [sizes], sizes of the largest batch to predict.
    """
    held_out = _held_out(sizes)
    if len({trace.program for trace in traces}) == 1:
        predictor, errors = _fit_and_validate(ReplayPredictor.of, sizes, traces, target, held_out)
        return predictor, _largest(errors)
    regression, errors = _fit_and_validate(PeakRegression.of, sizes, traces, target, held_out)
    shortfall = float(np.max(-errors, initial=0.0))
    error = _largest((1 + shortfall) * (1 + errors) - 1)
    hybrid, errors = _fit_and_validate(_scaled_up_hybrid(shortfall), sizes, traces, target, held_out)
    if hybrid is not None and _largest(errors) <= max(error, _ACCURATE):
        return hybrid, _largest(errors)
    return regression.scaled_up(shortfall), error


def _held_out(sizes: np.ndarray) -> np.ndarray:
    """bool [traces]: the one with the most edges, and every third of the larger half."""
    held_out = np.zeros(len(sizes), dtype=bool)
    if len(sizes) > 1:
        held_out[np.argsort(-sizes[:, -1])[: (len(sizes) + 1) // 2 : _VALIDATION_STRIDE]] = True
    return held_out


def _scaled_up_hybrid(fraction: float) -> Callable[..., HybridPredictor | None]:
    def of(sizes: np.ndarray, traces: Sequence[AllocationTrace], target: np.ndarray) -> HybridPredictor | None:
        hybrid = HybridPredictor.of(sizes, traces, target)
        return None if hybrid is None else hybrid.scaled_up(fraction)

    return of


def _fit_and_validate(
    fit: Callable[[np.ndarray, Sequence[AllocationTrace], np.ndarray], Any],
    sizes: np.ndarray,
    traces: Sequence[AllocationTrace],
    target: np.ndarray,
    held_out: np.ndarray,
) -> tuple[Any, np.ndarray]:
    """A fit to all traces, and relative errors on the held-out traces of a fit to the others."""
    training = [trace for trace, out in zip(traces, held_out, strict=True) if not out]
    trial, final = fit(sizes[~held_out], training, target), fit(sizes, traces, target)
    if trial is None or final is None:
        return None, np.array([math.inf])
    pairs = ((trial(sizes[i]), traces[i].peaks()) for i in np.flatnonzero(held_out).tolist())
    return final, np.array([_peak(predicted) / max(1, _peak(measured)) - 1 for predicted, measured in pairs])


def _largest(errors: np.ndarray) -> float:
    """The largest absolute error, NaN if one is; 0 if there are none."""
    return float(np.max(np.abs(errors), initial=0.0))


def _peak(phases: Mapping[str, Terms]) -> int:
    return max(sum(terms.values()) for terms in phases.values())


# the library's layers; torch's linear and recurrent ones; DGL's; PyG's
_NAMES = ("in_dim", "in_features", "input_size", "_in_src_feats", "_in_feats", "in_feats", "in_feat", "in_size")


_NAMES += ("in_channels",)


def feature_widths(model: nn.Module) -> Iterator[int]:
    """Yield the input widths of all layers, in the order of definition.

    >>> list(feature_widths(nn.Sequential(nn.Dropout(), nn.Linear(7, 3), nn.Linear(3, 2))))
    [7, 3]
    """
    for module in model.modules():
        for name in _NAMES:
            width = getattr(module, name, None)
            width = width[0] if isinstance(width, tuple | list) and width else width  # of sources and destinations
            if isinstance(width, int) and width > 0:
                yield width


def candidate_widths(model: nn.Module, mb: MiniBatch) -> list[int]:
    """Return the widths that a model's features may have, the likeliest first.

    Of a batch that was converted from PyG, the width is that of `x`; from DGL, widths of node data that a layer has,
    too, come first, and those that none has last.
    """
    source, of_layers = mb.carried and mb.carried.source, list(feature_widths(model))
    x = getattr(source, "x", None)
    if isinstance(x, Tensor) and x.dim() == 2:
        return [x.shape[1]]
    of_data = node_data_widths(source) if isinstance(source, list | tuple) else []
    return list(dict.fromkeys([*(width for width in of_data if width in of_layers), *of_layers, *of_data]))


_RUNNING_LOSS_BYTES = 512

_FEW = 7  # sub-batches that are traced first: enough for an exact fit of three sizes, and one held out


@dataclass(frozen=True, eq=False)
class TracedEstimator:
    """Estimates the memory of micro-batches from traces of small ones.

    Args:
        fresh: predicts a micro-batch's allocations when no gradients exist yet.
        accumulating: predicts them when gradients exist.
        fixed_terms: bytes by term of parameters and optimizer state.
        gradient_bytes: gradients of all parameters.
        update_bytes: peak of the optimizer step's temporaries.
        backup_bytes: copies made by OOM recovery: before a micro-batch, and before the optimizer step.
        recover: estimate steps with OOM recovery, which computes a micro-batch's gradients separately.
        kept_labels: number of labels that are on the device during the whole step; 0 if each micro-batch has its own.
        backend: name of the backend that was traced.
        error: largest relative error of the bytes that a step adds, over the sub-batches held out from the fit.
    """

    fresh: PhaseTerms
    accumulating: PhaseTerms
    fixed_terms: Terms
    gradient_bytes: int
    update_bytes: int
    backup_bytes: tuple[int, int]
    recover: bool
    kept_labels: int
    backend: str
    error: float

    def __call__(self, batch: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        """Estimate the training step of a micro-batch; `accumulating`: gradients of earlier ones of the batch exist."""
        sizes = BatchSizes.of(batch, degrees=True)
        predict = self.accumulating if accumulating and not self.recover else self.fresh
        blocks = {"blocks": sum(rounded_bytes(nbytes) for nbytes in sizes.array_bytes)}
        resident = {  # from before the first micro-batch, within the step's own phase
            **self.fixed_terms,
            "labels": rounded_bytes(LABEL_BYTES * max(self.kept_labels, batch.num_seeds)) if self.kept_labels else 0,
            "loss": _RUNNING_LOSS_BYTES,
            "workspace": self.backup_bytes[0],
        }
        gradients = {"gradients": self.gradient_bytes if accumulating else 0}
        traced = predict(size_vector(sizes)).items()
        phases = {phase: _sum_terms({**resident, **blocks, **gradients}, terms) for phase, terms in traced}
        phases["step"] = max(resident, self._update_terms(), key=lambda terms: sum(terms.values()))
        return self._estimate(phases)

    def _update_terms(self) -> Terms:
        workspace = self.update_bytes + self.backup_bytes[1]
        step = {"gradients": self.gradient_bytes, "loss": _RUNNING_LOSS_BYTES, "workspace": workspace}
        return {**self.fixed_terms, **step}

    def _estimate(self, phases: Mapping[str, Terms]) -> MemoryEstimate:
        totals = {phase: sum(terms.values()) for phase, terms in phases.items()}
        at_peak = phases[max(totals, key=lambda phase: totals[phase])]
        return MemoryEstimate(
            terms={name: at_peak.get(name, 0) for name in TERMS},
            phase_bytes=totals,
            fixed_bytes=sum(self.fixed_terms.values()),
            backend=self.backend,
            error=self.error,
        )


def fit_memory(
    model: nn.Module,
    mb: MiniBatch,
    *,
    optimizer: str | torch.optim.Optimizer = "adam",
    in_dim: int,
    loss_fn: LossFunction = cross_entropy,
    forward: Forward | None = None,
    recover: bool = False,
    seed: int = 0,
) -> TracedEstimator:
    """Learn from traced training steps on small sub-batches how much memory any micro-batch of a batch needs.

    Copies of the model and the optimizer run a step on a few sub-batches, on the model's device and in its mode. The
    bytes of every storage are regressed on the sizes of the sub-batches' blocks: most are found to be an exact integer
    multiple of one size, and the estimate is exact to the byte. Seven sub-batches are enough if all storages are
    (the largest is predicted from the others), and two more that find gradients. Otherwise one or two dozen are traced,
    each with and without gradients. If the order of allocations differs between them (a loop over the distinct
    in-degrees, for example), sub-batches with all in-degrees are traced as well, and peaks are regressed on the sizes.

    The regressors are the sizes of each block (`workbench.memory.traced.predictor.size_vector`): sources,
    destinations, edges, in-degrees, and products of two of sources and destinations. Bytes that follow another product
    (edges times destinations, for example) are underestimated for larger batches.

    `error` is measured on the larger sub-batches, each held out from a fit to the others: a step added at most the
    estimate / (1 − `error`). Not covered are
    (1) extrapolation: if bytes follow none of the sizes, which a large error shows, the estimate of a much larger batch
    is too low by more than `error`;
    (2) randomness: sub-batches see few draws of random choices (of dropped edges, for example); an error of 0.0 has
    occurred with a true error of 1 %;
    (3) overlap: peaks of batches whose neighbourhoods overlap far more than those of the sub-batches (most of a dense
    graph, for example) have been underestimated by a fifth if the order of allocations varies.

    Not modelled: state that a model keeps between batches, seeds without labels (the loss then gathers the labelled
    rows), and code paths that only batches far larger than the sub-batches take.

    Args:
        model: a module that `workbench.accumulate` can call.
        mb: the batch that the micro-batches are split from.
        optimizer: "adam", "adamw" or "sgd" with torch's defaults, or an optimizer of the model's parameters.
        in_dim: channels of the features, which are random, in the dtype of the model.
        loss_fn: a loss function that `workbench.train_step` accepts; labels are classes, or else values per output or
            per seed.
        forward: as for `workbench.train_step`; None for the default call.
        recover: estimate `workbench.train_step(recover=…)`.
        seed: seed of the choice of sub-batches, the features and the model's own randomness; torch's random state is
            restored.

    Returns:
        The estimator; model, gradients, optimizer and random state are unchanged.

    Raises:
        ValueError: The model can't be copied, a step on a sub-batch fails, or an option is invalid.
    """
    dry_run = DryRun(model, optimizer=optimizer, in_dim=in_dim, loss_fn=loss_fn, forward=forward, seed=seed)
    parts, target = sub_batches(mb, seed=seed), _sizes(mb)
    dry_run.warm_up(parts[0])
    fresh, accumulating, error = _fit_few_exactly(dry_run, parts, target) or _fit_all(dry_run, parts, mb, seed)
    return TracedEstimator(
        fresh=fresh,
        accumulating=accumulating,
        fixed_terms=dry_run.fixed_bytes(),
        gradient_bytes=dry_run.gradient_bytes,
        update_bytes=dry_run.update_bytes,
        backup_bytes=dry_run.backup_bytes() if recover else (0, 0),
        recover=recover,
        kept_labels=mb.num_seeds if dry_run.keeps_labels else 0,
        backend=f"{dry_run.device.type} (traced)",
        error=error,
    )


_Fitted = tuple[PhaseTerms, PhaseTerms, float]
"""Predictors of the first and of later micro-batches, and their error."""


def _fit_few_exactly(dry_run: DryRun, parts: Sequence[MiniBatch], target: np.ndarray) -> _Fitted | None:
    """Fit to few sub-batches, evenly spaced by size; None if bytes or the order of allocations vary otherwise.

    Gradients that exist change when storages are freed, not which are allocated, so two steps that find some tell the
    order for all sizes.
    """
    few = [parts[round(at)] for at in np.linspace(0, len(parts) - 1, min(_FEW, len(parts)))]
    traces = [dry_run.record(part, accumulating=False) for part in few]
    fresh = ReplayPredictor.exactly(np.stack([_sizes(part) for part in few]), traces, target)
    if fresh is None:
        return None
    later = [dry_run.record(few[at], accumulating=True) for at in (0, -1)]
    same_bytes = all(np.array_equal(traces[at].nbytes, later[at].nbytes) for at in (0, -1))
    if not same_bytes or later[0].program != later[1].program:
        return None
    return fresh, replace(fresh, program=later[0].program), 0.0


def _fit_all(dry_run: DryRun, parts: Sequence[MiniBatch], mb: MiniBatch, seed: int) -> _Fitted:
    """Fit to all sub-batches, and to those with all in-degrees if the order of allocations varies."""
    traces = [dry_run.record(part, accumulating=False) for part in parts]
    if len({trace.program for trace in traces}) > 1:
        more = batches_of_all_degrees(mb, seed=seed)
        parts, traces = [*parts, *more], traces + [dry_run.record(part, accumulating=False) for part in more]
    later = [dry_run.record(part, accumulating=True) for part in parts]
    sizes, target = np.stack([_sizes(part) for part in parts]), _sizes(mb)
    fresh, error = fit_predictor(sizes, traces, target)
    accumulating, error_accumulating = fit_predictor(sizes, later, target)
    return fresh, accumulating, max(error, error_accumulating)


def _sizes(mb: MiniBatch) -> np.ndarray:
    return size_vector(BatchSizes.of(mb, degrees=True))


def _sum_terms(a: Terms, b: Terms) -> Terms:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}
