"""What planners return has one shape, and the lines of code that each writes run."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.strategies import random_graph
from workbench.core.planned import Planned

UNITS = ("_bytes", "_rows", "_seconds", "_cost", "_rate", "recovering", "operations", "reads")


class Setting(SimpleNamespace):
    """A small training task: the names that the lines of code use."""

    def __init__(self, folder: Path) -> None:
        graph, generator = random_graph(800, 6000, edge_ids=False), torch.Generator().manual_seed(0)
        x, ids = torch.randn(800, 8, generator=generator), torch.arange(0, 800, 4)
        model = wb.build_model("sage-mean", in_dim=8, hidden_dim=8, out_dim=3)
        sampler = wb.NeighborSampler([4, 4])
        loader = wb.batches(graph, ids, sampler=sampler, batch_size=40)
        super().__init__(
            wb=wb,
            torch=torch,
            graph=graph,
            ids=ids,
            x=x,
            y=torch.randint(3, (800,), generator=generator),
            model=model,
            loss_fn=cross_entropy,
            optimizer=torch.optim.Adam(model.parameters()),
            sampler=sampler,
            batch_size=40,
            loader=loader,
            mb=sampler.sample(graph, ids),
            trace=wb.AccessTrace.of(mb.node_ids for _, mb in loader.epoch(0)),
            hottest=torch.arange(800),
            features=folder / "x",
            packed=folder / "packed",
            folder=folder / "store",
            rank=0,
        )
        wb.MappedRows.create(self.features, x)


def reading(setting: Setting, speed: float = 1e9, reads: float = 1e4, **options: Any) -> Any:
    disk = wb.outofcore.DiskModel(speed, reads)
    sizes = {"num_rows": 800, "row_bytes": 32, "memory": 700 * 32, "disk": disk}
    return wb.outofcore.plan_reading(setting.trace, **{**sizes, **options})


def advised(setting: Setting) -> Any:
    split = {"train_idx": setting.ids, "val_idx": setting.ids + 1, "test_idx": setting.ids + 2}
    data = wb.Dataset.build(setting.graph, setting.x, setting.y, **split)
    machine = wb.Machine(1e10, 1e9, 1e9, 1e11, gather=4e9, disk=1e9, disk_reads=1e4, is_cpu=True)
    options = {"machine": machine, "memory": "1 GiB", "host_memory": "1 GiB", "batch_size": 40, "num_batches": 4}
    return wb.advise(data, setting.model, sampler=setting.sampler, **options)


def half(setting: Setting) -> int:
    return wb.estimate_memory(setting.model, setting.mb).peak_bytes * 3 // 4


PLANNERS: dict[str, Callable[[Setting], Planned]] = {
    "plan_micro_batches": lambda s: wb.plan_micro_batches(s.model, s.mb, memory=half(s), method="range"),
    "plan_sampler": lambda s: wb.plan_sampler(s.model, s.loader.epoch(0), memory=half(s), method="range"),
    "plan_macrobatch": lambda s: wb.macrobatch.plan_macrobatch(s.loader.epoch(0), row_bytes=32, memory="1 MiB"),
    "plan_buffer": lambda s: wb.outofcore.plan_buffer(
        800, 32, num_edges=6000, edge_bytes=16, memory="100 KiB", disk_read_bytes=4096
    ),
    "plan_reading, Belady": reading,
    "plan_reading, packed": lambda s: reading(s, reads=1e7, packed_uses=1000, groups=[1]),
    "plan_reading, buffer": lambda s: reading(s, groups=[], num_edges=6000, num_partitions=8, memory="80 KiB"),
    "place_rows": lambda s: wb.placement.place_rows(
        torch.rand(800).double(), num_devices=1, rows_per_device=100, peer_cost=0.3
    ),
    **{
        f"cache_costs, {policy}": lambda s, policy=policy: wb.features.cache_costs(
            {"epoch": s.trace}, [100], row_bytes=32, policies=[policy], rows=s.hottest if policy == "static" else None
        )[0]
        for policy in ("lru", "static", "belady")
    },
    "advise": advised,
}


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


@pytest.mark.parametrize("name", PLANNERS)
def test_a_plan_has_the_shape_of_all_plans(name: str, setting: Setting):
    plan = PLANNERS[name](setting)
    assert isinstance(plan, Planned)
    assert (plan.choice and all(isinstance(key, str) for key in plan.choice)) or name == "advise"
    assert plan.predicted and all(key.endswith(UNITS) for key in plan.predicted), plan.predicted
    assert all(float(value) >= 0 for value in plan.predicted.values())
    assert plan.error is None or 0 <= plan.error < 1


@pytest.mark.parametrize("name", [name for name in PLANNERS if name != "advise"])  # tests/advisor runs its programs
def test_the_code_of_a_plan_runs(name: str, setting: Setting):
    plan = PLANNERS[name](setting)
    if "," in name and name.startswith("plan_reading"):
        assert plan.choice["method"] == name.split(", ")[1].lower()
    names = {**vars(setting), "plan": plan, "placement": plan}
    before = [parameter.clone() for parameter in setting.model.parameters()]
    exec(compile(plan.code(), "plan", "exec"), names)
    trains = "train_step" in plan.code()
    assert trains == any(not torch.equal(a, b) for a, b in zip(before, setting.model.parameters(), strict=True))
    if "rows" in names and not trains:
        ids = next(iter(setting.trace))
        assert torch.equal(names["rows"].read(ids), setting.x[ids])
