"""The cost model of cooperative minibatching: seconds of each stage of a step from counted work and bandwidths.

A PE samples and loads over its link to storage, computes from its own memory, and exchanges ids, features, hidden rows
and their gradients with the other PEs. Per PE, with the symbols of the paper:

    stage               local                     exchange
    sampling            Σ (2|S^l| + |E^l|) / β    Σ c|S̃^(l+1)| / α                  ids
    features            ρ d |S^L| / β             c d |S̃^L| / α                     rows of features
    forward/backward    M / γ                     Σ_{l+1<L} 2 c d |S̃^(l+1)| / α     hidden rows and their gradients

The paper writes |S^l| for the local part of sampling; counted here are two row offsets per node and an id per sampled
edge, at most the fanout times |S^l|. Independent minibatching has c = 0. The model knows neither latencies nor overlap.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import NamedTuple

from workbench.cooperative.work import CooperativeWork
from workbench.core.exchange import ID_BYTES
from workbench.core.machine import Machine


@dataclass(frozen=True)
class PeCounts:
    """What one processing element (PE) samples per step, or a mean over PEs and steps, from the seeds to the inputs.

    Args:
        owned: |S⁰|, …, |Sᴸ|: nodes whose values the PE has; with cooperation those that it owns.
        needed: |S̃¹|, …, |S̃ᴸ|: nodes that its layers read, those of other owners included.
        halo: c|S̃¹|, …, c|S̃ᴸ|: the needed nodes that others own.
        edges: |E⁰|, …, |Eᴸ⁻¹|: sampled edges.

    Raises:
        ValueError: lengths that do not match, a negative count, or a halo larger than the needed nodes.
    """

    owned: tuple[float, ...]
    needed: tuple[float, ...]
    halo: tuple[float, ...]
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        layers = len(self.owned) - 1
        lengths = {name: len(getattr(self, name)) for name in ("needed", "halo", "edges")}
        if layers < 1 or set(lengths.values()) != {layers}:
            raise ValueError(
                f"owned has {layers + 1} counts and the others {lengths}; pass one count per layer, and one more in "
                "owned"
            )
        if (least := min(chain(self.owned, self.needed, self.halo, self.edges))) < 0:
            raise ValueError(f"a count is {least}; counts are at least 0")
        for halo, needed in zip(self.halo, self.needed, strict=True):
            if halo > needed:
                raise ValueError(f"a halo of {halo} nodes is larger than the {needed} needed nodes that contain it")

    @staticmethod
    def independent(owned: Sequence[float], edges: Sequence[float]) -> "PeCounts":
        """Counts of a PE that works on a batch of its own and exchanges nothing.

        Args:
            owned: |S⁰|, …, |Sᴸ|.
            edges: |E⁰|, …, |Eᴸ⁻¹|.
        """
        return PeCounts(tuple(owned), tuple(owned[1:]), (0.0,) * (len(owned) - 1), tuple(edges))

    @staticmethod
    def of(work: CooperativeWork) -> "list[PeCounts]":
        """Counts of every rank of a global batch.

        Args:
            work: of `cooperative_work`; that of independent batches has no halo.
        """
        hops = len(work.distinct)
        ranks = [work.layers[start : start + hops] for start in range(0, len(work.layers), hops)]
        return [
            PeCounts(
                owned=(layers[0].destinations, *(layer.owned for layer in layers)),
                needed=tuple(layer.needed for layer in layers),
                halo=tuple(layer.halo for layer in layers),
                edges=tuple(layer.edges for layer in layers),
            )
            for layers in ranks
        ]

    @staticmethod
    def mean(counts: Iterable["PeCounts"]) -> "PeCounts":
        """Mean over PEs or steps.

        Args:
            counts: at least one.

        Raises:
            ValueError: there are none.
        """
        given = list(counts)
        if not given:
            raise ValueError("there are no counts to average; pass those of at least one processing element")

        columns = [zip(*(getattr(one, field.name) for one in given), strict=True) for field in fields(PeCounts)]
        return PeCounts(*(tuple(sum(hop) / len(given) for hop in hops) for hops in columns))

    def scaled(self, factor: float) -> "PeCounts":
        """The counts of a batch and a graph that are larger to the same degree.

        Args:
            factor: multiplies all counts; at least 0.
        """
        return PeCounts(*(tuple(factor * count for count in getattr(self, field.name)) for field in fields(self)))

    @property
    def cross_ratios(self) -> tuple[float, ...]:
        """The share c of the needed nodes that others own, per layer from the seeds; 0 where none is needed."""
        return tuple(h / n if n else 0.0 for h, n in zip(self.halo, self.needed, strict=True))


class StageSeconds(NamedTuple):
    """Modelled seconds of one stage.

    Args:
        local: within the PE or from storage.
        exchange: between PEs.
    """

    local: float
    exchange: float

    @property
    def total(self) -> float:
        return self.local + self.exchange


@dataclass(frozen=True)
class StepSeconds:
    """Modelled seconds of one training step of a PE, stage by stage; stages do not overlap.

    Args:
        sampling: of nodes and edges.
        features: loading of input rows.
        forward_backward: forward and backward pass.
    """

    sampling: StageSeconds
    features: StageSeconds
    forward_backward: StageSeconds

    @property
    def total(self) -> float:
        return sum(stage.total for stage in (self.sampling, self.features, self.forward_backward))

    def row(self) -> dict[str, float]:
        """Columns of a table: `sampling_seconds`, `sampling_exchange_seconds` (a part of it), …, `total_seconds`."""
        stages = {name: getattr(self, name) for name in ("sampling", "features", "forward_backward")}
        columns = {f"{name}_seconds": stage.total for name, stage in stages.items()}
        columns |= {f"{name}_exchange_seconds": stage.exchange for name, stage in stages.items()}
        return {**columns, "total_seconds": self.total}


def step_seconds(
    counts: PeCounts,
    machine: Machine,
    *,
    row_bytes: float,
    hidden_bytes: float | Sequence[float],
    work_bytes: float,
    work_flops: float = 0.0,
    miss_rate: float = 1.0,
) -> StepSeconds:
    """Model the seconds of a training step of one PE.

    Args:
        counts: what it samples.
        machine: the speeds of the PE.
        row_bytes: d of the input: bytes of a row of features.
        hidden_bytes: d of hidden layers: bytes of a row that is exchanged between layers, and of its gradient. Or one
            number per layer from the seeds; the last is 0, or that of rows which are exchanged in place of features.
        work_bytes: M, the bytes that the model's layers read and write (`model_work`).
        work_flops: operations of the model's matrix products, for a machine with finite `flops`.
        miss_rate: ρ, the share of its input rows that the PE's cache does not contain, 1 without a cache. Hits are
            free.

    Raises:
        ValueError: a negative size, or a miss rate outside [0, 1].

    Source: Cooperative Minibatching, section 3.1, Table 1.
    """
    layers = len(counts.halo)
    widths = [*hidden_bytes] if isinstance(hidden_bytes, Sequence) else [*[hidden_bytes] * (layers - 1), 0.0]
    if len(widths) != layers:
        raise ValueError(f"hidden_bytes has {len(widths)} sizes for {layers} layers; pass one per layer, or one number")
    sizes = [("row_bytes", row_bytes), ("work_bytes", work_bytes), ("work_flops", work_flops)]
    for name, size in [*sizes, *(("hidden_bytes", width) for width in widths)]:
        if not 0 <= size < float("inf"):
            raise ValueError(f"{name} is {size}; it must be finite and at least 0")
    if not 0 <= miss_rate <= 1:
        raise ValueError(f"miss_rate is {miss_rate}; it must be from 0 (all rows cached) to 1 (no cache)")
    ids = 2 * sum(counts.owned[:-1]) + sum(counts.edges)
    hidden = 2 * sum(width * halo for width, halo in zip(widths, counts.halo, strict=True))
    features = 0.0 if widths[-1] else row_bytes * counts.halo[-1]
    return StepSeconds(
        sampling=StageSeconds(ID_BYTES * ids / machine.beta, ID_BYTES * sum(counts.halo) / machine.alpha),
        features=StageSeconds(miss_rate * row_bytes * counts.owned[-1] / machine.beta, features / machine.alpha),
        forward_backward=StageSeconds(work_bytes / machine.gamma + work_flops / machine.flops, hidden / machine.alpha),
    )
