"""`workbench advise` on an archive of the test's own: what it prints, the program that it writes, and bad options."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.cli.test_plan_commands import folder as folder
from workbench.cli import main

LAPTOP = wb.Machine(10e9, 5e9, 5e9, 1e11, name="a laptop", gather=4e9, disk=1e9, disk_reads=20e3, is_cpu=True)
SMALL = ("tiny", "--hidden", "8", "--fanouts", "3,3", "--batch-size", "10", "--batches", "4", "--memory", "1MiB")


@pytest.fixture
def call(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Status, output and errors of the command, by default on a laptop that a file describes."""
    LAPTOP.save(folder / "laptop.yaml")

    def call(*arguments: Any, machine: str | None = None) -> tuple[int, str, str]:
        chosen = ["--machine", machine or str(folder / "laptop.yaml")]
        status = main(["advise", *map(str, arguments), *chosen])
        out, err = capsys.readouterr()
        return status, out, err

    return call


def advised(**options: Any) -> Any:
    """What the command should print."""
    given = {"machine": LAPTOP, "batch_size": 10, "num_batches": 4, "memory": "1MiB", "host_memory": "1GiB"} | options
    model = wb.build_model("sage-mean", in_dim=16, hidden_dim=8, out_dim=4)
    return wb.advise(wb.load_dataset("tiny"), model, sampler=wb.NeighborSampler([3, 3]), **given)


def rows_of(text: str) -> dict[str, list[str]]:
    """The table's cells by configuration."""
    lines = text.partition("\n\n")[0].splitlines()[1:]
    cells = [line.split("  ") for line in lines if not line.startswith(("*", "and "))]
    return {row[0]: [cell.strip() for cell in row[1:] if cell] for row in cells}


def test_the_table_and_the_sentences_are_those_of_the_library(call: Any):
    status, out, err = call(*SMALL, "--host-memory", "1GiB")
    expected = advised()
    assert status == 0
    assert rows_of(out).keys() == {one.strip() for one in rows_of(str(expected))}
    plain = rows_of(out)["plain"]
    assert plain[:2] == ["yes", wb.format_bytes(expected.plain.peak_bytes)]
    assert out.count("\n- ") == len(expected.sentences()) - 1
    assert err.splitlines()[0] == "loading tiny"
    assert "sampling 4 batches: NeighborSampler" in err.splitlines()


def test_options_are_those_of_the_call(call: Any):
    _, out, err = call(*SMALL, "--gpus", "2", "--host-memory", "2GiB", "--all", machine="a100")
    assert "A100: 1.00 MiB of device memory, 2.00 GiB of host memory" in out
    assert {"placement", "cooperation *"} <= rows_of(out).keys()
    assert "measuring" not in err


def test_all_rows_are_shown_on_request(call: Any):
    options = (*SMALL, "--devices", "2", "--host-memory", "1GiB")
    few, every = (rows_of(call(*options, *more, machine="L4")[1]) for more in ((), ("--all",)))
    total = len(advised(machine="L4", devices=2).priced)
    assert (len(few), len(every)) == (min(12, total), total)


@pytest.mark.parametrize(
    "options",
    [pytest.param((), marks=pytest.mark.slow), ("--undirected", "--features", "random:8", "--optimizer", "sgd")],
)
def test_the_program_runs_on_the_same_data_and_model(call: Any, tmp_path: Path, options: tuple[str, ...]):
    program = tmp_path / "train.py"
    status, out, _ = call(*SMALL, *options, "--norm", "layer", "--code", program)
    assert status == 0
    assert out.endswith(f"the program of the best configuration is in {program}\n")
    code = program.read_text()
    assert ("undirected=True, features='random:8'" in code) == bool(options)
    assert f"torch.optim.{'SGD' if options else 'Adam'}(" in code
    assert "norm='layer'" in code
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [f"epoch {number}" for number in range(3)]


@pytest.mark.parametrize("options", [pytest.param((), marks=pytest.mark.slow), ("--gpus", "2")])
def test_the_program_for_gpus_that_are_missing_ends_with_what_it_needs(
    call: Any, tmp_path: Path, options: tuple[str, ...]
):
    program = tmp_path / "train.py"
    call(*SMALL, *options, "--host-memory", "1GiB", "--code", program, machine="a100")
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, env=hidden)
    needs = "needs 2 CUDA devices" if options else "needs 1 CUDA device"
    assert (done.returncode, done.stderr) == (1, f"{needs}; without a machine, wb.advise is for this one\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fanouts", "10;25"), "fanouts are '10;25'; write integers with commas, such as 10,25"),
        (("--memory", "much"), "memory: 'much' is not a number of bytes; write 8GiB"),
        (("--memory", "100B"), "parameters and gradients take 2.59 KiB, but memory is 100 B; raise memory"),
        (("--batch-size", "0"), "batch-size is 0"),
        (("--devices", "0"), "devices is 0"),
        (("--batches", "1"), "batches is 1"),
        (("--machine", "A10"), "machine 'A10' is not known; choose from A100"),
        (("--bases", "2"), "bases is 2, but sage-mean has no bases; omit it"),
        (("--code", "nowhere/train.py"), "there is no folder nowhere; create it"),
    ],
)
def test_bad_options_name_value_and_remedy(call: Any, options: tuple[str, ...], message: str):
    machine = options[1] if options[0] == "--machine" else None
    status, out, err = call(*SMALL, *options, machine=machine)
    assert (status, out) == (1, "")
    assert message in err
    assert "sampling" not in err


def test_too_many_devices_are_refused_before_the_data_are_loaded(call: Any):
    status, _, err = call(*SMALL, "--gpus", "63")
    assert status == 1
    assert err.startswith("workbench: devices is 63"), err


def test_data_that_has_no_features_is_refused(call: Any):
    status, _, err = call("bare", *SMALL[1:])
    assert status == 1
    assert "bare has no features; pass --features degree" in err
    status, _, err = call("bare", *SMALL[1:], "--features", "degree")
    assert status == 1
    assert "bare has no classes to train on; choose a set with labels" in err


def test_features_of_another_type_than_the_model_are_refused(call: Any, monkeypatch: pytest.MonkeyPatch):
    data = wb.load_dataset("tiny")
    monkeypatch.setattr(wb, "load_dataset", lambda *_, **__: dataclasses.replace(data, x=data.x.half()))
    status, out, err = call(*SMALL)
    assert (status, out) == (1, "")
    assert "tiny has features of torch.float16, but the model's parameters are torch.float32; pass --features" in err
    assert "sampling" not in err


def test_nothing_that_fits_is_an_error_after_the_table(call: Any, tmp_path: Path):
    status, out, err = call(*SMALL, "--host-memory", "1kB", "--code", tmp_path / "train.py")
    assert status == 1
    assert "Nothing fits" in out
    assert "no configuration fits: needs" in err
    assert not (tmp_path / "train.py").exists()
    status, _, again = call(*SMALL, "--host-memory", "1kB")
    assert (status, again.splitlines()[-1]) == (1, err.splitlines()[-1])


def test_help_names_the_machines(call: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["advise", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in " ".join(out.split()) for name in wb.advisor.MACHINE_NAMES)
