"""MariusGNN, node classification: epochs in memory, from disk, with DGL and PyG; time, accuracy, bytes and dollars."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveInt
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.mariusgnn.training_systems import (
    CONTROLS,
    DGL,
    DISK,
    LAYER_WISE,
    MEMORY,
    PYG,
    REDUCED,
    SYSTEMS,
    InMemory,
    SystemConfig,
    why_not,
)
from workbench.core.dataset import Dataset
from workbench.core.randomness import Purpose, permutation, stream
from workbench.core.shared_storage import total_bytes
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.meter.limit import AnonymousPeak, limit_data

ON_DISK, IN_MEMORY, LARGEST = 3.06, 12.24, {"synthetic-mag240M-cites": 24.48}
"""The paper's prices of an hour: of a machine with 61 GB and the disk, of one with 244 GB, and, for the data set that
needs it, of one with 488 GB."""

CASE = ["dataset", "num_partitions", "capacity"]
TEST_BATCH = 512
LOST, LONGER = 0.01, 1.25
"""Claimed of training from disk: accuracy lost at most, and time over that in memory."""


class Config(SystemConfig):
    """Training with several systems, epoch by epoch in turn.

    Args:
        systems: where features and edges are, and whose loop trains; those that don't run here are left out, and the
            rows of the others say why. "layer-wise" and "reduced graph" are controls in memory.
        test_nodes: test nodes, the same for all systems, whose neighbours are sampled from the whole graph.
    """

    systems: tuple[Literal["in memory", "on disk", "DGL", "PyG", "layer-wise", "reduced graph"], ...] = (
        MEMORY,
        DISK,
        DGL,
        PYG,
    )
    test_nodes: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    reasons = {name: why_not(name, config.device) for name in config.systems}
    left_out = "; ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason) or None
    if all(reasons.values()):
        raise ValueError(f"none of systems can train on {config.device} here: {left_out}")
    data = config.dataset.load()
    with TemporaryDirectory() as folder:
        warm_up(config, data)
        systems = {
            name: SYSTEMS[name](config, data, Path(folder) / "store") for name, reason in reasons.items() if not reason
        }
        for epoch in range(config.epochs):
            for name, system in systems.items():
                row = measured(config, data, system, epoch, name)
                yield {"system": name, "epoch": epoch + 1, **row, "left_out": left_out}


def warm_up(config: Config, data: Dataset) -> None:
    """Take a step with a model of its own, so that no system pays for machine code and imports."""
    batch = wb.DenseSampler(config.fanouts).sample(data.graph, data.train_idx[: config.batch_size])
    model = config.build(data)
    forward = lambda mb, inputs: model(mb.blocks, inputs.x.float())  # noqa: E731
    optimizer = torch.optim.Adam(model.parameters())
    wb.train_step(model, batch, data.x, data.y, cross_entropy, optimizer, forward=forward)


def measured(config: Config, data: Dataset, system: InMemory, epoch: int, name: str) -> dict[str, Any]:
    """Train an epoch with one system, in a limited memory if the point asks for it, and test the model afterwards."""
    nbytes = total_bytes(data.graph._tensors().values()) + data.x.nbytes
    limited = config.limit and name == DISK
    with AnonymousPeak() as peak, limit_data(round(config.memory_share * nbytes)) if limited else nullcontext():
        start = time.perf_counter()
        losses = [float(loss) for loss in system.epoch(epoch)]
        seconds = time.perf_counter() - start
    return {
        "num_steps": len(losses),
        "epoch_seconds": seconds,
        "loss": sum(losses) / len(losses),
        "accuracy": accuracy(config, data, system, config.test_nodes),
        "majority": wb.training.majority_accuracy(data.y[data.test_idx]),
        "memory_bytes": nbytes,
        "anonymous_peak_bytes": None if peak.nbytes is None else system.resident_bytes + peak.nbytes,
        "limited": limited,
        **system.columns(),
    }


def accuracy(config: SystemConfig, data: Dataset, system: InMemory, test_nodes: int) -> float:
    """Accuracy on some test nodes, with neighbours sampled from the whole graph."""
    nodes = data.test_idx[permutation(stream(0, Purpose.SPLIT), len(data.test_idx))[:test_nodes]]
    sampler = wb.NeighborSampler(config.fanouts, seed=config.seed)
    options: dict[str, Any] = {"batch_size": TEST_BATCH, "shuffle": False, "epoch": 0}
    seeds, logits = system.logits(wb.batches(data.graph, nodes, sampler=sampler, **options))
    return wb.accuracy(logits, data.y, nodes=seeds)


def by_system(table: pd.DataFrame) -> pd.DataFrame:
    """One row per case and system: medians over the epochs, and the last epoch's accuracy."""
    groups = table.sort_values("epoch", kind="stable").groupby([*CASE, "system"], sort=False)
    found: Any = groups.agg(
        epoch_seconds=("epoch_seconds", _median),
        accuracy=("accuracy", lambda values: values.iloc[-1]),
        read_bytes=("read_bytes", _most),
        predicted_read_bytes=("predicted_read_bytes", _most),
        peak_bytes=("anonymous_peak_bytes", _most),
        memory_bytes=("memory_bytes", _most),
        memory_share=("memory_share", _most),
    )
    found = found.reset_index()
    per_hour = found.dataset.map(LARGEST).fillna(IN_MEMORY).where(found.system != DISK, ON_DISK)
    return found.assign(dollars=found.epoch_seconds / 3600 * per_hour)


def _median(values: Any) -> float:
    """NaN, if an epoch's value was lost."""
    return values.median(skipna=False)


def _most(values: Any) -> float:
    return values.max(skipna=False)


def panels(table: pd.DataFrame) -> pd.Series:
    """A short name of every row's case: the data set, and how much of the partitions is in the buffer."""
    share = (table.capacity / table.num_partitions).map("{:.0%}".format)
    return table.dataset.str.removeprefix("synthetic-") + ", " + share


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    longer: Any = _ratios(by_system(table)).set_index(CASE).longer
    return Title("From disk an epoch takes {longer:.2f} times as long as in memory", longer=longer)


def without_controls(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the systems that the paper compares."""
    rows: Any = table[~table.system.isin(CONTROLS)]
    return rows


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import StageBar, stage_bars

    found = by_system(without_controls(table))
    rows: Any = found.itertuples()
    bars = [
        StageBar(panel, row.system, f"{row.accuracy:.1%}<br>${row.dollars:.2g}", {"epoch": row.epoch_seconds})
        for row, panel in zip(rows, panels(found), strict=True)
    ]
    return stage_bars(
        bars,
        axis="an epoch's time",
        title=title(table, reported).text,
        subtitle="share of the partitions in the buffer; below: test accuracy, dollars per epoch at the paper's prices",
    ).update_layout(showlegend=False)


def _ratios(found: pd.DataFrame) -> pd.DataFrame:
    """From disk beside in memory: time, accuracy lost, dollars, and peak memory over the limit."""
    wide: Any = found.set_index([*CASE, "system"]).unstack("system")
    columns = {
        "longer": wide["epoch_seconds"][DISK] / wide["epoch_seconds"][MEMORY],
        "lost": wide["accuracy"][MEMORY] - wide["accuracy"][DISK],
        "cheaper": wide["dollars"][MEMORY] / wide["dollars"][DISK],
        "of_limit": wide["peak_bytes"][DISK] / (wide["memory_bytes"][DISK] * wide["memory_share"][DISK]),
        "bytes": wide["read_bytes"][DISK] / wide["predicted_read_bytes"][DISK],
    }
    if DGL in wide["epoch_seconds"]:
        columns["dgl"] = wide["epoch_seconds"][DGL] / wide["epoch_seconds"][DISK]
    return pd.DataFrame(columns).reset_index()


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    ratios = _ratios(by_system(table))
    options: dict[str, Any] = {"by": CASE, "form": ".3f"}
    lost = f"from disk the test accuracy is at most {LOST:.0%} lower than in memory"
    longer = f"an epoch from disk takes at most {LONGER:g} times as long as in memory"
    kept = claims.within("keeps-accuracy", lost, ratios, value="lost", most=LOST, **options)
    found = [
        *claims.once_trained([kept], learnt(table, MEMORY, DISK)),
        claims.within("predicted", "bytes read are those predicted", ratios, value="bytes", least=1, most=1, **options),
        claims.within("as-fast", longer, ratios, value="longer", most=LONGER, timed=True, **options),
        claims.within(
            "cheaper",
            "an epoch costs at most a half, at the paper's prices",
            ratios,
            value="cheaper",
            least=2,
            timed=True,
            **options,
        ),
    ]
    if table.limited.any():
        shares = " or ".join(f"{share:.0%}" for share in sorted(table.memory_share.unique()))
        statement = (
            f"training from disk needs at most the {shares} of the bytes of features and edges that it is limited to"
        )
        found.append(claims.within("in-a-part", statement, ratios, value="of_limit", most=1, **options))
    found += _accuracies(table)
    if "dgl" in ratios:
        faster = "DGL's epoch in memory takes longer than one from disk"
        found.append(
            claims.within("dgl-is-slower", faster, ratios, value="dgl", least=claims.MORE, timed=True, **options)
        )
    return found


def learnt(table: pd.DataFrame, *systems: str) -> Finding:
    """Whether some systems have learnt, each by itself: one that still rises decides nothing about the others."""
    rows: Any = table[table.system.isin(systems)]
    found = claims.trained(
        rows,
        value="accuracy",
        along="epoch",
        by=[*CASE, "system"],
        name="-".join(["trained", *systems]).replace(" ", "-").lower(),
    )
    return replace(found, statement=f"{' and '.join(systems)}: {found.statement}")


def _accuracies(table: pd.DataFrame) -> list[Finding]:
    """How far accuracies in memory are apart, and whether the controls have that of the system that they explain."""
    wide: Any = by_system(table).set_index([*CASE, "system"]).accuracy.unstack("system")
    reduced = "in memory with as few nodes as in the buffer, accuracy is that from disk"
    compared = (
        ("dense-near-dgl", "in memory, DENSE's samples end at most a point below DGL's accuracy", MEMORY, DGL, 1.0),
        ("layer-wise-as-dgl", "with a sample per layer, ours end within a point of it", LAYER_WISE, DGL, LOST),
        ("reduced-as-disk", f"{reduced}, within a point", REDUCED, DISK, LOST),
    )
    found = []
    for name, statement, system, other, most in compared:
        if {system, other} <= set(wide):
            ran: Any = table.loc[table.system == system, CASE].drop_duplicates()
            apart = ran.merge((wide[system] - wide[other]).reset_index(name="apart"))
            options: dict[str, Any] = {"by": CASE, "form": "+.3f", "least": -LOST, "most": most}
            near = claims.within(name, statement, apart, value="apart", **options)
            found += claims.once_trained([near], learnt(table, system, other))
    return found


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """Seconds of DGL and dollars in memory, relative to training from disk."""
    found: Any = _ratios(by_system(table)).set_index(CASE)
    dgl = {"dgl-times": found.dgl} if "dgl" in found else {}
    return dgl | {"dollars-saved": found.cheaper}


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Minutes, accuracy in percent and dollars per epoch at the paper's prices, the paper's first."""
    columns = ["dataset", "capacity", "system", "minutes", "accuracy", "dollars", "read_gb", "peak_gb"]
    found = by_system(table)
    here = found.assign(
        minutes=found.epoch_seconds / 60,
        accuracy=100 * found.accuracy,
        read_gb=found.read_bytes / 1e9,
        peak_gb=found.peak_bytes / 1e9,
    )
    paper = reported.assign(dataset=reported.dataset + " (paper)").reindex(columns=columns)
    result: Any = pd.concat([paper, here[columns]])
    return result
