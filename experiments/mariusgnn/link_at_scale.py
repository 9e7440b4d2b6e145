"""MariusGNN, link prediction at scale: stand-ins of Freebase86M and WikiKG90M, from disk in a part of their memory."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

import workbench as wb
from experiments.mariusgnn.link_systems import BALANCED, COMET, MEMORY, InMemory, LinkConfig, OnDisk
from workbench.core.randomness import Purpose, permutation, stream
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.meter.limit import AnonymousPeak, limit_data
from workbench.outofcore.tuning import loads_of

CASE = ["dataset", "encoder"]
NAMES = {"none": "DistMult", "sage-mean": "SAGE"}
SLOWER, KEPT = 0.25, 0.9
"""Claimed of COMET's order beside training in memory: share of the triples per second lost at most, and of MRR kept."""


class Config(LinkConfig):
    """Training with one system on a graph too large to rank all entities.

    Args:
        system: "in memory", or the order of the partitions from disk.
        fanout: in- and out-neighbours of the encoder's layer, each.
        epochs: number of epochs; test triples are ranked after each.
        test_triples: test triples that are ranked.
        test_negatives: entities that each end is ranked among.
        test_by_degree: fraction of these that is drawn in proportion to degrees, as ends of random training triples;
            None: all are drawn uniformly.
        memory_share: fraction of the bytes of rows, their state and edges that an epoch from disk may need.
        limit: limit what an epoch from disk may allocate to `memory_share`, by the system.
    """

    system: Literal["in memory", "COMET", "balanced"]  # pyright: ignore[reportIncompatibleVariableOverride]
    fanout: PositiveInt
    epochs: PositiveInt
    test_triples: PositiveInt
    test_negatives: PositiveInt
    test_by_degree: float | None = Field(default=None, ge=0, le=1)
    memory_share: float = Field(gt=0, le=1)
    limit: bool = False


class FewNeighbours(InMemory):
    """Training whose encoder samples neighbours, and the rows of some entities afterwards."""

    config: Config

    def _prepare(self, folder: Path) -> None:
        if self.encoder is not None:
            fanouts = [self.config.fanout] * self.config.num_layers
            self._loading["sampler"] = wb.DenseSampler(fanouts, out_fanouts=fanouts, seed=self.config.seed)
        super()._prepare(folder)

    def read(self, ids: Tensor) -> Tensor:
        """Learnt rows of some entities."""
        return self._rows.read(ids)

    def embeddings(self, ids: Tensor) -> Tensor:
        """What the decoder scores: the rows of some entities, or the encoder's outputs for them."""
        if self.encoder is None:
            return self.read(ids)
        batch = self._loading["sampler"].sample(self.kg.graph(), ids)
        return wb.sampled_logits(self.encoder, [(0, batch)], self)[1]

    def predicted_bytes(self, epoch: int) -> int | None:
        """Bytes that an epoch reads from disk, computed without running it."""
        return None


class FewInBuffer(FewNeighbours, OnDisk):
    """The same from disk; to read rows, all partitions pass through the buffer."""

    def read(self, ids: Tensor) -> Tensor:
        p, c = self.config.num_partitions, self.config.capacity
        order = wb.outofcore.node_order(p, c, p)
        loads = loads_of(order.states)

        def visit() -> Iterator[tuple[int, Tensor]]:
            with wb.outofcore.PartitionBuffer(self._store, capacity=c) as buffer:
                for state in buffer.epoch(order):
                    for part in loads[state.number].tolist():
                        first = part * self._store.partition_rows
                        yield first, state.rows.read(first + torch.arange(self._store.layout.nodes_of(part)))

        return wb.training.RowParts(self._store.num_nodes, visit).read(self._store.ids_of(ids))

    def predicted_bytes(self, epoch: int) -> int | None:
        return wb.outofcore.epoch_io(self._store, self.order(epoch)).read_bytes


SYSTEMS: dict[str, type[FewNeighbours]] = {MEMORY: FewNeighbours, COMET: FewInBuffer, BALANCED: FewInBuffer}


def run(config: Config) -> Iterator[dict[str, Any]]:
    """One row per epoch."""
    kg = config.dataset.load()
    warm_up(config, kg)
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        system = SYSTEMS[config.system](config, kg, Path(folder) / "store")
        build_seconds = time.perf_counter() - start
        for epoch in range(config.epochs):
            yield {"epoch": epoch + 1, "build_seconds": build_seconds, **measured(config, kg, system, epoch)}


def warm_up(config: Config, kg: wb.links.KnowledgeGraph) -> None:
    """Take two steps with a system of its own, so that an epoch does not pay for machine code and imports."""
    with TemporaryDirectory() as folder:
        few = kg.train[: 2 * config.batch_size]
        nodes, local = torch.unique(few[:, ::2], return_inverse=True)
        triples = torch.stack((local[:, 0], few[:, 1], local[:, 1]), 1)
        sizes: dict[str, Any] = {"num_entities": len(nodes), "num_relations": kg.num_relations}
        small = wb.links.KnowledgeGraph.build(triples, triples[:1], triples[:1], **sizes, name="warm-up")
        for _ in SYSTEMS[config.system](config, small, Path(folder) / "store").epoch(0):
            pass


def measured(config: Config, kg: wb.links.KnowledgeGraph, system: FewNeighbours, epoch: int) -> dict[str, Any]:
    """Train an epoch, in a limited memory if the point asks for it, and rank some test triples afterwards."""
    edges = kg.train.nbytes
    nbytes = 2 * 4 * kg.num_entities * config.dim + edges
    disk = config.system != MEMORY
    limited = limit_data(round(config.memory_share * nbytes)) if config.limit and disk else nullcontext()
    with AnonymousPeak() as peak, limited:
        start = time.perf_counter()
        losses = [float(loss) for loss in system.epoch(epoch)]
        seconds = time.perf_counter() - start
    found = ranked(config, kg, system)
    return {
        "num_steps": len(losses),
        "epoch_seconds": seconds,
        "triples_per_second": len(kg.train) / seconds,
        "loss": sum(losses) / len(kg.train),
        "mrr": found.mrr,
        "hits_at_10": found.hits_at_10,
        "num_entities": kg.num_entities,
        "num_triples": len(kg.train),
        "memory_bytes": nbytes,
        "anonymous_peak_bytes": peak.nbytes if disk else None,
        "predicted_disk_bytes": system.predicted_bytes(epoch),
        **system.columns(),
    }


def ranked(config: Config, kg: wb.links.KnowledgeGraph, system: FewNeighbours) -> wb.training.LinkMetrics:
    """Rank test triples among some entities, unfiltered; only rows of these and their neighbours are in memory."""
    chosen = permutation(stream(0, Purpose.SPLIT), len(kg.test))[: config.test_triples]
    triples = kg.test[chosen]
    candidates = ranked_among(config, kg)
    ends = triples[:, ::2].contiguous()
    nodes = torch.unique(torch.cat([ends.flatten(), candidates]))
    head, tail = torch.searchsorted(nodes, ends).unbind(1)
    local = torch.stack((head, triples[:, 1], tail), 1)
    h = system.embeddings(nodes)
    return wb.training.evaluate_links(None, system.decoder, h, local, negatives=torch.searchsorted(nodes, candidates))


def ranked_among(config: Config, kg: wb.links.KnowledgeGraph) -> Tensor:
    """Entities that the ends of test triples are ranked among; of those drawn by degree, some come several times."""
    by_degree = round((config.test_by_degree or 0) * config.test_negatives)
    uniform = permutation(stream(0, Purpose.SPLIT, 1), kg.num_entities)[: config.test_negatives - by_degree]
    ends = torch.randint(2 * len(kg.train), (by_degree,), generator=torch.Generator().manual_seed(0))
    return torch.cat([uniform, kg.train[ends // 2, ends % 2 * 2]])


def last_epochs(table: pd.DataFrame) -> pd.DataFrame:
    """The rows after the last epoch of every run, with the peak of all epochs and the paper's names of the models."""
    runs: Any = table.groupby([*CASE, "system"])
    peaks = runs.anonymous_peak_bytes.transform(lambda peaks: peaks.max(skipna=False))
    rows: Any = table.assign(anonymous_peak_bytes=peaks)[table.epoch == runs.epoch.transform("max")]
    return rows.assign(model=rows.encoder.map(NAMES))


def ratios(table: pd.DataFrame) -> pd.DataFrame:
    """COMET's order beside training in memory, and its bytes beside what was predicted and what all data takes.

    A point in COMET's order that did not finish needs more memory than there is.
    """
    last = last_epochs(table)
    wide: Any = last.set_index([*CASE, "system"]).unstack("system")
    columns = {
        "slower": 1 - wide["triples_per_second"][COMET] / wide["triples_per_second"][MEMORY],
        "kept": wide["mrr"][COMET] / wide["mrr"][MEMORY],
        "memory": wide["anonymous_peak_bytes"][COMET] / wide["memory_bytes"][COMET],
        "bytes": wide["disk_bytes"][COMET] / wide["predicted_disk_bytes"][COMET],
    }
    asked: Any = table.loc[table.system == COMET, CASE].drop_duplicates()
    found: Any = asked.merge(pd.DataFrame(columns).reset_index(), "left")
    ended = found.set_index(CASE).index.isin(last[last.system == COMET].set_index(CASE).index)
    return found.assign(memory=found.memory.where(ended, float("inf")), finished=ended)


def learnt(table: pd.DataFrame) -> Finding:
    """Whether the systems compared rank far better at the end than a random order of the candidates on average."""
    last: Any = last_epochs(table).query("system != @BALANCED").dropna(subset="mrr")
    chance = (last.test_negatives + 1).map(lambda count: sum(1 / rank for rank in range(1, count + 1)) / count)
    gone = (last.mrr - chance) / (1 - chance)
    statement = (
        f"in memory and in COMET's order MRR is {claims.BEATEN:.0%} of the way from a random order's to 1, or more"
    )
    worst = last.loc[gone.idxmin()]
    told = f"{int((gone >= claims.BEATEN).sum())} of {len(gone)} systems; least {worst.dataset}, {worst.model}, "
    told += f"{worst.system}: {worst.mrr:.4f} against {chance[gone.idxmin()]:.4f}"
    held = bool((gone >= claims.BEATEN).all())
    return Finding("learnt", statement, held, told, decided=held, trained=held)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    if not table.limit.any():
        return Title("Epochs on small parts of the graphs, without a limit of memory")
    rows: Any = last_epochs(table).query("system != @MEMORY").set_index([*CASE, "system"])
    share = rows.anonymous_peak_bytes / rows.memory_bytes
    return Title("Trained from disk in {share:.0%} of the memory that rows, state and edges take", share=share)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import StageBar, stage_bars

    rows: Any = last_epochs(table)
    rows = rows.assign(share=(rows.anonymous_peak_bytes / rows.memory_bytes).where(rows.system != MEMORY, 1.0))
    limited = bool(table.limit.any())
    bars = [
        StageBar(
            f"{row.dataset.removeprefix('synthetic-')}, {row.model}",
            row.system,
            f"{row.mrr:.3f}" + (f"<br>{row.share:.0%}" if limited else ""),
            {"epoch": row.epoch_seconds},
        )
        for row in rows.itertuples()
    ]
    millions = rows.num_triples / 1e6
    subtitle = f"stand-ins, {millions.min():.2g} to {millions.max():.2g} M triples"
    return stage_bars(
        bars,
        axis="an epoch's time",
        title=title(table, reported).text,
        subtitle=f"{subtitle}; below: MRR" + (", share of that memory" if limited else ""),
    ).update_layout(showlegend=False)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    found, options = ratios(table), {"by": CASE, "form": ".3f"}
    exact = "bytes read are those predicted"
    finished: Any = found[found.finished]  # the others lose "in-a-part" alone
    share = float(table.memory_share.max())
    kept = f"in COMET's order MRR is at least {KEPT:.0%} of that in memory"
    slower = f"from disk the triples trained per second are at most {SLOWER:.0%} fewer than in memory"
    keeps = claims.within("keeps-mrr", kept, finished, value="kept", least=KEPT, **options)
    checked = [
        claims.within("predicted", exact, finished, value="bytes", least=1, most=1, **options),
        *claims.once_trained([keeps], learnt(table)),
        claims.within("as-fast", slower, finished, value="slower", most=SLOWER, timed=True, **options),
    ]
    needed = f"training from disk needs at most {share:.0%} of the bytes of rows, state and edges"
    if table.limit.any():
        checked.append(claims.within("in-a-part", needed, found, value="memory", most=share, **options))
    else:
        checked.append(Finding("in-a-part", needed, False, "not limited, and not checked, at this size", decided=False))
    return checked


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """MRR, minutes per epoch, and gigabytes read and held; the paper's first."""
    columns = ["dataset", "model", "system", "mrr", "minutes", "triples_per_second", "read_gb", "peak_gb", "memory_gb"]
    found = last_epochs(table)
    here: Any = found.assign(
        minutes=found.epoch_seconds / 60,
        read_gb=found.disk_bytes / 1e9,
        peak_gb=found.anonymous_peak_bytes / 1e9,
        memory_gb=found.memory_bytes / 1e9,
    )
    paper: Any = reported.assign(dataset=reported.dataset + " (paper)")
    return pd.concat([paper.reindex(columns=columns), here.reindex(columns=columns)])
