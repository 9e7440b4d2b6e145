"""The GPU check on a CPU: its measurements, its time limits, its verdicts, and a folder that can be imported."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.gpu_check import __main__ as check, memory, parity, parts, throughput, training
from experiments.gpu_check.__main__ import RUNS, main, run_parts
from experiments.gpu_check.parts import BROKEN, OUT_OF_TIME, PASSED, Ended, Part, judge
from experiments.gpu_check.summary import write_summary
from tests.toy_experiments import calls as calls, toys as toys
from workbench.cli import main as workbench
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.grid import parse_overrides
from workbench.experiment.point_dataset import alternatives
from workbench.paths import project_root
from workbench.tracking.file_store import FileStore

TINY: dict[str, Any] = {"dataset": {"name": "synthetic-products", "scale": 0.002}, "num_seeds": 40}
ABSENT = ["dgl", "hypothesis", "mlflow", "mtkahypar", "ogb", "plotly", "pymetis", "ray", "torch_geometric"]


@pytest.mark.parametrize(
    ("what", "kind"), [("sample", "weighted"), ("partition", "refined"), ("gradient", "gat"), ("loss", "gcn")]
)
def test_a_device_is_compared_with_the_cpu(what: Any, kind: str) -> None:
    (row,) = parity.run(parity.Config(**TINY, what=what, kind=kind))
    assert row["num_values"] >= parity.STEPS and (row["num_different"], row["difference"]) == (0, 0.0)


def test_differences_are_counted() -> None:
    expected = [torch.tensor([1, 2, 3]), torch.tensor([2.0, 4.0])]
    found = [torch.tensor([1, 2, 4]), torch.tensor([2.0, 5.0])]
    row = parity.compare_values(expected, found)
    assert row == {"num_values": 5, "num_different": 2, "difference": pytest.approx(1 / 3)}
    assert parity.compare_values(expected, found[:1])["difference"] == float("inf")
    row = parity.compare_values([torch.tensor([-4.0, 1.0])], [torch.tensor([-4.0, 2.0])], to_largest=True)
    assert row["difference"] == 1 / 4


def test_kinds_are_checked_with_what_they_are_of() -> None:
    with pytest.raises(ValueError, match="kind 'gat' is not known; choose from full"):
        parity.Config(**TINY, what="sample", kind="gat")


def test_the_estimate_is_beside_the_peak_of_every_phase() -> None:
    config = memory.Config(**TINY, model="gcn", fanouts=(3, 5), hidden_dim=8, num_parts=2)
    (row,) = memory.run(config)
    assert abs(row["peak_error"]) < memory.WITHIN and abs(row["worst_error"]) < memory.WITHIN
    assert row["reserved_bytes"] is None and row["peak_bytes"] > 0, "a CPU reserves nothing"


@pytest.mark.parametrize("operation", ["gather", "aggregate", "sample"])
def test_throughput_counts_the_bytes_that_must_move(operation: Any) -> None:
    config = throughput.Config(**TINY, operation=operation, width=4, repeats=1)
    (row,) = throughput.run(config)
    assert row["moved_bytes"] > 0 and row["seconds"] > 0 and row["share"] > 0


@pytest.mark.parametrize("operation", ["step", "micro-batches", "sampling", "cache hits", "prefetch"])
def test_training_is_beside_its_plain_form(operation: Any) -> None:
    sizes: dict[str, Any] = {"model": "gcn", "fanouts": (3, 5), "hidden_dim": 8, "num_batches": 2, "repeats": 1}
    (row,) = training.run(training.Config(**TINY, **sizes, operation=operation, num_parts=2, method="random"))
    assert row["seconds"] > 0 and row["plain_seconds"] > 0 and row["ratio"] > 0
    assert (row["redundancy"] or 0) > 1 if operation == "micro-batches" else row["redundancy"] is None
    assert (row["hidden"] is None) == (operation != "prefetch")


def program(name: str, code: str) -> Part:
    return Part(name, 1.0, (sys.executable, "-c", code))


def test_parts_that_fail_or_overrun_are_noted_and_the_next_runs(tmp_path: Path) -> None:
    wanted = [
        program("fine", "print('first'); print('last')"),
        program("broken", "raise SystemExit(3)"),
        program("endless", "import time; time.sleep(600)"),
        program("after it", "print('still')"),
    ]
    results = run_parts(wanted, "cpu", tmp_path, 4.0)
    assert [result.status for result in results] == [PASSED, BROKEN, OUT_OF_TIME, PASSED]
    assert [results[0].note, results[3].note] == ["last", "still"]
    assert (tmp_path / "logs" / "fine.txt").read_text() == "first\nlast\n"
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert not summary["passed"] and [part["name"] for part in summary["parts"]] == [part.name for part in wanted]
    assert "torch" in (tmp_path / "summary.md").read_text() and summary["environment"]["version.torch"]


def test_an_interrupted_check_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has passed is not run again, unless the code changes; what failed or was stopped is."""
    count = "from pathlib import Path; f = Path({!r}); f.write_text(f.read_text() + 'x' if f.exists() else 'x')"
    files = {name: tmp_path / f"{name}.txt" for name in ("first", "second")}
    wanted = [program(name, count.format(str(file))) for name, file in files.items()]
    run = check._run
    monkeypatch.setattr(check, "_run", lambda part, *rest: run(part, *rest) if part is wanted[0] else _interrupt())
    with pytest.raises(KeyboardInterrupt):
        run_parts(wanted, "cpu", tmp_path, 60.0)
    monkeypatch.setattr(check, "_run", run)
    assert json.loads((tmp_path / "summary.json").read_text())["parts"][0]["name"] == "first"
    assert [result.status for result in run_parts(wanted, "cpu", tmp_path, 60.0)] == [PASSED, PASSED]
    assert [file.read_text() for file in files.values()] == ["x", "x"]
    assert run_parts([program("third", "")], "cpu", tmp_path, 0.0)[0].status == OUT_OF_TIME, "no time is left"
    monkeypatch.setattr(parts, "device_name", lambda device: "another GPU")
    run_parts(wanted, "cpu", tmp_path, 60.0)
    assert [file.read_text() for file in files.values()] == ["xx", "xx"]


def _interrupt() -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("small", [False, True])
def test_all_figures_have_generated_data_and_valid_settings(small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for installed in (True, False):
        monkeypatch.setattr(parts, "find_spec", lambda name, installed=installed: installed or None)
        figures = [part for part in parts.parts("cuda", Path(RUNS), small=small) if part.is_figure]
        assert len({part.name for part in figures}) == len(figures) > 15
        for part in figures:
            overrides = parse_overrides([*part.overrides])
            points = load_experiment(part.name).sweep._validated(part.size, "cuda", overrides)
            assert points and all(_is_generated(point) for point in points), part.name


def _is_generated(point: Any) -> bool:
    configs: list[Any] = alternatives(point)
    return any(config.dataset.name.startswith("synthetic-") for config in configs)


def test_the_summary_is_a_page(tmp_path: Path) -> None:
    """Answers and tables of the check's measurements; of papers' figures the numbers, with findings in their file."""
    finding = {"figure": "f", "statement": "it fits", "held": True, "counts": True, "evidence": "7 of 7 cases"}
    rows = tuple({"model": f"kind {n}", "peak_bytes": 1 << 20, "peak_error": 0.01} for n in range(14))
    results = [
        *(
            parts.Result(name, PASSED, 1.0, 2.0, "14 of 14 points", (finding, finding), (), rows)
            for name in parts.CHECKS
        ),
        *(parts.Result(f"paper/fig{n}", OUT_OF_TIME, 1.0, 2.0, "", (finding,) * 9) for n in range(14)),
    ]
    write_summary(tmp_path, "cpu", results)
    page = (tmp_path / "summary.md").read_text().splitlines()
    assert len(page) < 120 and "| it fits | yes | 7 of 7 cases |" in page and "| kind 3 | 1.00 MiB | 0.01 |" in page
    assert "4 passed, 14 out of time. Run it again to continue. All findings: findings.md." in page
    assert (tmp_path / "findings.md").read_text().count("it fits") == 8 + 9 * 14


@pytest.fixture
def figure(tmp_path: Path) -> Part:
    return parts._figure("toys/fig1", 1.0, (), "cpu", "smoke", tmp_path / RUNS)


@pytest.mark.usefixtures("toys")
def test_a_figure_is_judged_by_its_points_and_findings(
    tmp_path: Path, figure: Part, calls: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = Ended(0, 1.0, 2.0)
    assert judge(figure, "cpu", tmp_path / RUNS, ended).status == BROKEN, "it ended without any point"
    assert workbench(list(figure.command[3:])) == 0
    result = judge(figure, "cpu", tmp_path / RUNS, ended)
    assert (result.status, result.note) == (PASSED, "3 of 3 points")
    assert [(f["figure"], f["held"], f["counts"]) for f in result.findings] == [
        ("toys/fig1", True, False),
        ("toys/fig2", True, False),
    ], "results of a paper's figure decide nothing"
    monkeypatch.setattr(parts, "CHECKS", ("toys/fig1",))
    assert all(finding["counts"] for finding in judge(figure, "cpu", tmp_path / RUNS, ended).findings)
    assert workbench(list(figure.command[3:])) == 0 and len(calls()) == 3, "it resumes"
    capsys.readouterr()
    assert workbench(["import", str(tmp_path), "--store", str(tmp_path / "elsewhere.jsonl")]) == 0
    assert "3 of 3 runs were new" in capsys.readouterr().out


@pytest.mark.usefixtures("toys")
def test_a_figure_that_was_stopped_or_whose_points_failed(tmp_path: Path, figure: Part, capsys: Any) -> None:
    command = list(figure.command[3:])
    assert workbench([*command, "--set", "number=[1,2]"]) == 0
    stopped = judge(figure, "cpu", tmp_path / RUNS, Ended(None, 2.0, 2.0))
    assert (stopped.status, stopped.note) == (OUT_OF_TIME, "2 of 3 points")
    assert not any(finding["counts"] for finding in stopped.findings), "no verdict on a part of the grid"
    assert workbench([*command, "--set", "number=[2]", "--set", "offset=2"]) == 1
    failing = parts._figure("toys/fig1", 1.0, ("offset=2",), "cpu", "smoke", tmp_path / RUNS)
    failed = judge(failing, "cpu", tmp_path / RUNS, Ended(1, 2.0, 2.0))
    assert failed.status == BROKEN and failed.errors == ("MemoryError: no room for 2",)


def test_without_metis_other_partitioners_are_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "find_spec", lambda name: None)
    chosen = {part.name: part.overrides for part in parts.parts("cuda", tmp_path / RUNS)}
    assert chosen["betty/fig11"] == ("num_parts=[1,8,64]", "method=[range,random]")
    assert chosen["gpu_check/parity"] == () and "data_placement/speedup" not in chosen
    write_summary(tmp_path, "cpu", [])
    assert "for want of METIS: betty/fig4, data_placement/speedup." in (tmp_path / "summary.md").read_text()


def test_a_machine_without_a_gpu_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit):
        main([])
    assert "device 'cuda' is not here" in capsys.readouterr().err


@pytest.mark.slow
def test_a_bare_machine_runs_every_part(tmp_path: Path) -> None:
    """With nothing beyond the library's core and pytest."""
    code = f"import sys; sys.modules.update(dict.fromkeys({ABSENT}))"
    (tmp_path / "sitecustomize.py").write_text(code)
    path = os.pathsep.join([str(tmp_path), str(project_root())])
    environment = os.environ | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "experiments.gpu_check", "--device", "cpu", "--output", str(tmp_path / "check")]
    done = subprocess.run([*command, "--seconds", "900"], env=environment, capture_output=True, text=True, timeout=1000)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "check" / "summary.json").read_text())
    assert {part["status"] for part in summary["parts"]} == {PASSED}
    assert len(summary["parts"]) == 18, "two of 20 need METIS"
    assert len(FileStore(tmp_path / "check" / RUNS).runs()) > 50


def test_a_value_that_is_not_a_number_on_the_device_is_no_agreement() -> None:
    expected, found = [torch.ones(1), torch.ones(1)], [torch.ones(1), torch.full((1,), float("nan"))]
    for to_largest in (False, True):
        difference = parity.compare_values(expected, found, to_largest=to_largest)["difference"]
        assert difference != difference


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--device", "cpu", "--only", "gpu_check/partity"],
            "no part is named gpu_check/partity; choose from",
        ),
        (["--device", "gpu"], "device 'gpu' is not known"),
        (["--device", "cuda:x"], "device 'cuda:x' is not known"),
    ],
)
def test_what_is_misspelt_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2 and said in capsys.readouterr().err
