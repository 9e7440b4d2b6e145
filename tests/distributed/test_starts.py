"""Cooperative sampling and steps started by torchrun, by `workbench run`, and from a cell of a notebook."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAINING = "tests.distributed.cooperative_ranks:training"
CASES = {"cases": [["labor", True, "sage-mean", 1], ["neighbor", False, "gat", 1]]}
TOLERANCE = 1e-10

MODULE = """%%writefile own_training.py
import torch
import workbench as wb


def train(config):
    graph = wb.Graph.from_edges(torch.arange(40), torch.arange(40).roll(7), num_nodes=40, undirected=True)
    owner = wb.partition_graph(graph, wb.distributed.get_world_size(), method="random")
    owned = wb.sampling.OwnedGraph.of(graph, owner, wb.distributed.get_rank(), wb.distributed.get_world_size())
    rows = wb.distributed.OwnedRows.of(torch.eye(40), owner)
    sampler = wb.cooperative.CooperativeSampler(wb.LaborSampler([2, 2]), owned)
    model = wb.build_model("sage-mean", in_dim=40, hidden_dim=4, out_dim=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    y = torch.arange(40) % 2
    for step, mb in wb.batches(owned.graph, torch.arange(40), sampler=sampler, batch_size=10):
        yield {"loss": wb.cooperative.train_step(model, mb, rows, y, torch.nn.functional.cross_entropy, optimizer)}
"""
CELLS = [
    MODULE,
    "import json\nimport workbench as wb\nfrom own_training import train\n"
    "print(json.dumps([wb.run_ranks(train, {}, size) for size in (1, 2)]))",
    f"print(json.dumps(wb.run_ranks({TRAINING!r}, {CASES!r}, 2)))",
    "def here(config): ...\n\ntry:\n    wb.run_ranks(here, {}, 2)\nexcept ValueError as error:\n    print(error)",
]


def check(rows):
    assert len(rows) == len(CASES["cases"])
    assert all(row["loss"] <= TOLERANCE and row["gradients"] <= TOLERANCE and row["scale"] > 1e-3 for row in rows)


@pytest.mark.slow
def test_torchrun_starts_the_same_function():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "workbench.distributed.rank_main", TRAINING, json.dumps(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    check([json.loads(line) for line in done.stdout.splitlines()])


@pytest.mark.slow
def test_a_figure_whose_run_starts_ranks_is_run_by_the_command(tmp_path):
    command = [sys.executable, "-m", "workbench.cli", "run", "performance/cooperation", "--set", "num_ranks=[2]"]
    command += ["--set", "steps=1", "--set", "repeats=1", "--store", str(tmp_path / "runs.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "✓ cooperating ranks read fewer input nodes and draw fewer edges than independent ones" in done.stdout


@pytest.mark.slow
def test_ranks_are_started_from_a_notebook_cell(tmp_path, monkeypatch):
    import nbformat  # takes seconds, which the default suite does without
    from nbclient import NotebookClient

    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    texts = ["".join(output["text"] for output in cell["outputs"]) for cell in notebook.cells]
    alone, together = json.loads(texts[1])
    assert [row["loss"] for row in together] == pytest.approx([row["loss"] for row in alone]) and len(alone) == 4
    check(json.loads(texts[2]))
    assert "'__main__:here' is not a function that ranks can import; write it to a file" in texts[3]
