"""Dry runs of whole programs with a simulated GPU: the GPU check, and a figure of each paper."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from experiments.gpu_check.__main__ import RUNS
from tests.simulated_cuda import environment
from workbench.paths import project_root

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="make gpu-check runs these on a GPU"),
]

FIGURES = (
    "gpu_check/parity",
    "gpu_check/memory",
    "betty/fig2",
    "cooperative/fig5a",
    "mariusgnn/effect_of_l",
    "batchgnn/table2",
    "data_placement/las_training",
)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module with a simulated GPU."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, env=os.environ | environment(), cwd=project_root(), capture_output=True, text=True)


@pytest.mark.parametrize("figure", FIGURES)
def test_figures(figure: str, tmp_path: Path) -> None:
    store = tmp_path / RUNS
    ran = python("workbench.cli", "run", figure, "--size", "smoke", "--device", "cuda", "--store", str(store))
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    runs = [json.loads(line) for line in store.read_text(encoding="utf-8").splitlines()]
    assert runs and all("cuda" in json.dumps(run) for run in runs)


def test_the_gpu_check(tmp_path: Path) -> None:
    """In small sizes, without the tests, which run already, and memory, which lacks cuDNN's LSTM here."""
    parts = ("data set", "gpu_check/parity", "gpu_check/training")
    ran = python("experiments.gpu_check", "--small", "--output", str(tmp_path), "--seconds", "3000", "--only", *parts)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert "simulated GPU" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_a_program_without_it_sees_no_gpu() -> None:
    code = "import torch; print(torch.cuda.is_available())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
