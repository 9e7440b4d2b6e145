"""The environment that the Makefile passes to the programs it starts."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[1] / "Makefile"


def data_folder(checkout: Path, **environment: str) -> str:
    """WORKBENCH_DATA as programs see it that make starts in a checkout."""
    checkout.mkdir(parents=True, exist_ok=True)
    shutil.copy(MAKEFILE, checkout)
    show = 'show:\n\t@echo "[$${WORKBENCH_DATA:-}]"\n'
    command = ["make", "--silent", "-f", "Makefile", "-f", "-", "show"]
    clean = {name: value for name, value in os.environ.items() if name not in ("WORKBENCH_DATA", "MAKEFLAGS")}
    done = subprocess.run(
        command, cwd=checkout, input=show, env=clean | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()[1:-1]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_and_the_command_line_use_the_same_data_folder(tmp_path: Path) -> None:
    alone = tmp_path / "alone" / "checkout"
    assert data_folder(alone) == "", "as for `workbench data get`: the user's own folder"
    assert data_folder(alone, WORKBENCH_DATA="/some/where") == "/some/where"
    (tmp_path / "shared" / "data").mkdir(parents=True)
    assert data_folder(tmp_path / "checkout") == str(tmp_path / "shared" / "data")


PIP = """Collecting torch
  Downloading torch-2.whl (899.7 MB)
     ---- 899.7/899.7 MB 20 MB/s
Downloading click-8.whl (102 kB)
  Using cached dgl-2.1.0.whl (8.5 MB)
Downloading cuda.whl (1.2 GB)
Installing collected packages: a, b, c"""


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_the_large_steps_of_pip_are_shown(tmp_path: Path) -> None:
    shutil.copy(MAKEFILE, tmp_path)
    command = ["make", "--silent", "-f", "Makefile", "-f", "-", "show"]
    (tmp_path / "pip.txt").write_text(f"{PIP}\n")
    recipe = "show:\n\tcat pip.txt | $(STEPS)\n"
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    shown = subprocess.run(command, cwd=tmp_path, input=recipe, env=alone, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == [
        "  Downloading torch-2.whl (899.7 MB)",
        "  Downloading cuda.whl (1.2 GB)",
        "  Installing 3 packages",
    ]
