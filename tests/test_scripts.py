"""Training scripts as people write them (`docs/scripts/`), whole and in micro-batches: same result, lower peak."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.hop_loader import HopLoader
from tests.test_dropin import edited_and_indented
from workbench.meter.peak import measure_peak

FOLDER = Path(__file__).parent.parent / "docs" / "scripts"
PAGE = (FOLDER.parent / "scripts.md").read_text(encoding="utf-8")
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
LIBRARIES = {"dgl": "dgl", "pyg": "torch_geometric", "lightning": "pytorch_lightning"}
SMALL, LARGE, DEEP = (300, 200), (20_000, 1_000), (20_000, 20)
"""Nodes and seeds: of batches in float64, and of batches of two and of three layers whose parts share few inputs."""

LIGHTNING = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    pytest.importorskip(LIBRARIES[name.partition("_")[0]])
    if not name.startswith("dgl"):
        loader = pytest.importorskip("torch_geometric.loader")
        monkeypatch.setattr(loader, "NeighborLoader", HopLoader)
    names: dict[str, Any] = {"__name__": name}
    exec(compile((FOLDER / f"{name}.py").read_text(encoding="utf-8"), name, "exec"), names)
    return names


def edges_of(num_nodes: int) -> Tensor:
    """Nine in-edges per node: the loaders draw all of them, whatever their random numbers."""
    src = torch.randint(num_nodes, (9 * num_nodes,), generator=torch.Generator().manual_seed(1))
    return torch.stack([src, torch.arange(9 * num_nodes) % num_nodes])


def columns_of(num_nodes: int, num_edges: int, dtype: torch.dtype) -> dict[str, Tensor]:
    x = torch.linspace(-9, 9, num_nodes * 6, dtype=dtype).sin().view(num_nodes, 6)
    attr = torch.linspace(-7, 7, num_edges * 4, dtype=dtype).cos().view(num_edges, 4)
    return {"x": x, "y": (x[:, 0] > 0).long() + (x[:, 1] > 0), "attr": attr, "type": torch.arange(num_edges) % 3}


def data_of(name: str, num_nodes: int, dtype: torch.dtype) -> Any:
    edges = edges_of(num_nodes)
    columns = columns_of(num_nodes, edges.shape[1], dtype)
    if name.startswith("dgl"):
        import dgl

        graph = dgl.graph((edges[0], edges[1]), num_nodes=num_nodes)
        graph.ndata["feat"], graph.ndata["label"] = columns["x"], columns["y"]
        graph.edata["feat"], graph.edata["type"] = columns["attr"], columns["type"]
        return graph
    from torch_geometric.data import Data, HeteroData

    if name != "pyg_hetero":
        return Data(x=columns["x"], y=columns["y"], edge_index=edges, edge_attr=columns["attr"])
    hetero = HeteroData()
    hetero["node"].x, hetero["node"].y = columns["x"], columns["y"]
    for kind in range(3):
        hetero["node", f"r{kind}", "node"].edge_index = edges[:, columns["type"] == kind]
    return hetero


def trained(
    names: dict[str, Any], function: str, name: str, size: tuple[int, int], dtype: torch.dtype, call: Any = None
) -> tuple[Tensor, Tensor, Any]:
    """Losses and parameters after two epochs, and what `call` returns of the function that trains."""
    num_nodes, num_seeds = size
    torch.manual_seed(0)
    np.random.seed(0)  # DGL shuffles with it
    first = num_nodes if name == "dgl_rgcn" else 6
    model = names["Net"](first, 16 if size == SMALL else 128, 3).to(dtype)
    data = data_of(name, num_nodes, dtype)
    losses: list[Any] = []
    found = (call or (lambda train: train()))(
        lambda: losses.extend(names[function](data, torch.arange(num_seeds), model, 2))
    )
    return torch.tensor(losses), torch.cat([p.detach().flatten().double() for p in model.parameters()]), found


@pytest.mark.slow  # some load and compile for seconds
@LIGHTNING
@pytest.mark.parametrize("name", SCRIPTS)
def test_parts_train_as_the_whole_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = loaded(name, monkeypatch)
    mixed = name == "dgl_sage"
    dtype = torch.float32 if mixed else torch.float64
    losses, parameters, _ = trained(names, "train", name, SMALL, dtype)
    own_losses, own_parameters, _ = trained(names, "train_in_parts", name, SMALL, dtype)
    tolerance = 0.02 if mixed else 1e-7  # bfloat16 has 8 bits; float32 takes part in Adam's division
    torch.testing.assert_close(own_losses, losses, rtol=tolerance, atol=tolerance)
    assert float((own_parameters - parameters).norm() / parameters.norm()) < tolerance


@pytest.mark.slow
@LIGHTNING
@pytest.mark.parametrize("name", SCRIPTS)
def test_parts_need_less_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)  # the meter sees no allocations of compiled code
    names, size = loaded(name, monkeypatch), DEEP if name in ("dgl_sage", "pyg_jumping_knowledge") else LARGE
    trained(names, "train", name, SMALL, torch.float32)  # what is loaded once
    functions = ("train", "train_in_parts")
    peaks = [trained(names, each, name, size, torch.float32, measure_peak)[2] for each in functions]
    assert peaks[1] < 0.8 * peaks[0], peaks


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_page_states_what_is_edited(name: str) -> None:
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    before, after = (
        ("class Whole", "class InParts") if name.startswith("lightning") else ("def train(", "def train_in_parts(")
    )
    bodies = [
        re.split(r"\n(?=def |class )", source[source.index(start) :])[0].partition("\n")[2] for start in (before, after)
    ]
    edited, indented = edited_and_indented(*bodies)
    row = re.search(rf"^\| \[{name}\]\(scripts/{name}\.py\) \|.*\| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert row is not None, f"docs/scripts.md has no row for {name}"
    assert (int(row[1]), int(row[2])) == (edited + 1, indented), "with the import of workbench"
