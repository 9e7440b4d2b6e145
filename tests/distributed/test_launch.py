"""Ranks: rows of rank 0, configurations as JSON, errors before anything starts, and other launchers."""

import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import torch.distributed as dist

import workbench as wb
from tests.distributed import rank_functions
from tests.macrobatch.macrobatch_ranks import EPOCHS
from workbench.distributed import rank_main
from workbench.distributed.progress import Progress, ProgressBoard, Reporter
from workbench.distributed.rank_main import run_rank

FUNCTIONS = "tests.distributed.rank_functions"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("rank_functions", "'rank_functions' is not a function that ranks can import; write it to a file"),
        ("__main__:run", "'__main__:run' is not a function that ranks can import"),
        (f"{FUNCTIONS}:absent", f"module {FUNCTIONS} has no function absent"),
        ("no.such.module:run", r"No module named 'no'; ranks import it from sys\.path"),
        (rank_functions.Holder().method, r"Holder\.method' is not a function that ranks can import"),
        (rank_functions.outer(), "<lambda>' is not a function that ranks can import"),
    ],
)
def test_functions_that_ranks_cannot_import_are_refused(monkeypatch, function, words):
    assert_refused(monkeypatch, ValueError, words, function, {})


def test_a_function_that_was_written_after_its_module_was_imported(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "rewritten_module.py").write_text("def train(config): ...\n")
    import_module("rewritten_module")
    (tmp_path / "rewritten_module.py").write_text("def train(config): ...\n\n\ndef train2(config): ...\n")
    words = r"has no function train2; if its file has, .*importlib\.reload\(rewritten_module\), or restart"
    assert_refused(monkeypatch, ValueError, words, "rewritten_module:train2", {})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"fanouts": [10, {1, 2}]}, r"config\['fanouts'\]\[1\] is \{1, 2\}, which JSON does not have"),
        ({"options": {3: "x"}}, r"config\['options'\] has the key 3; keys of JSON are strings"),
        ({"rate": float("nan")}, r"config\['rate'\] is nan, which JSON does not have"),
        ([1], "config must be a mapping of JSON values, not a list"),
    ],
)
def test_configurations_that_are_not_json_are_refused(monkeypatch, config, words):
    assert_refused(monkeypatch, TypeError, words, f"{FUNCTIONS}:total", config)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"world_size": 0}, "world_size is 0; it must be a whole number of at least 1"),
        ({"world_size": 2, "timeout_seconds": 0}, "timeout_seconds is 0; it must be above 0"),
        (
            {"world_size": 2, "timeout_seconds": math.inf},
            r"timeout_seconds is inf; .*at most 1e\+09, which are 31 years",
        ),
        (
            {"world_size": 2, "timeout_seconds": 1e15},
            "timeout_seconds is 1000000000000000.0; it must be above 0 and at most",
        ),
        ({"world_size": 2, "timeout_seconds": math.nan}, "timeout_seconds is nan; it must be above 0"),
    ],
)
def test_numbers_out_of_range_are_refused(monkeypatch, given, words):
    assert_refused(monkeypatch, ValueError, words, f"{FUNCTIONS}:total", {}, **given)


def assert_refused(monkeypatch, kind: type[Exception], words: str, function: Any, config: Any, **given: Any) -> None:
    def start(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("workbench.distributed.rank_pool.RankProcess", start)
    with pytest.raises(kind, match=words):
        wb.run_ranks(function, config, given.pop("world_size", 2), **given)


@pytest.fixture
def alone(monkeypatch) -> Iterator[None]:
    """This process is the only rank of another launcher."""
    for name, value in environment(rank=0, world_size=1).items():
        monkeypatch.setenv(name, value)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_rows_that_are_not_plain_fail_where_they_are_returned():
    board = Board()
    with pytest.raises(TypeError, match="rows may contain numbers, strings, bools and None, not a Tensor"):
        run_rank(f"{FUNCTIONS}:tensor_as_value", {}, backend="gloo", timeout_seconds=5, reporter=Reporter(board))
    assert board.stages == ["import", "rendezvous", "before the first collective", "returning rows"]


@pytest.mark.usefixtures("alone")
def test_one_row_that_is_returned_instead_of_a_list_is_refused():
    with pytest.raises(TypeError, match=r"one_dict' returned a dict; yield rows, or return a list of them: \[row\]"):
        run_rank(f"{FUNCTIONS}:one_dict", {}, backend="gloo", timeout_seconds=5)


@pytest.mark.usefixtures("alone")
def test_the_longest_limit_is_one_that_torch_accepts():
    rows = run_rank(f"{FUNCTIONS}:total", {"offset": 3}, backend="gloo", timeout_seconds=1e9 + 60)
    assert rows[0]["total"] == 3.0


class Board(ProgressBoard):
    """Keeps all that is written."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def write(self, rank: int, progress: Progress) -> None:
        self.stages.append(str(progress))


@pytest.mark.usefixtures("alone")
def test_a_program_of_another_launcher_prints_the_rows_of_rank_0(capsys):
    rank_main.main([f"{FUNCTIONS}:total", '{"offset": 3, "steps": 2}'])
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["total"] for line in lines] == [3.0, 3.0]


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e10"])
def test_time_limits_of_another_launcher(seconds):
    with pytest.raises(ValueError, match=r"--timeout is .*; it must be above 0 and at most 1e\+09"):
        rank_main.main([f"{FUNCTIONS}:total", "{}", f"--timeout={seconds}"])


def environment(rank: int, world_size: int) -> dict[str, str]:
    """What torchrun sets, on a port that rank 0 opens itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(world_size)}


@pytest.mark.slow
def test_torchrun_trains_in_macrobatches():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "workbench.distributed.rank_main", "tests.macrobatch.macrobatch_ranks:equal"]
    config = {"cases": [("neighbor", False, 3, 3)]}
    done = subprocess.run([*command, json.dumps(config)], capture_output=True, text=True, timeout=120, check=True)
    row = json.loads(done.stdout)
    (length,) = set(row["length"])
    relays = EPOCHS * sum(2 + 1 for _ in range(0, length, 3))  # per window, one per layer and one for features
    assert all(all(row[key]) for key in ("steps", "losses", "parameters", "seeds")) and row["relays"] == [relays] * 2


@pytest.mark.slow
def test_an_environment_made_by_hand_starts_the_same_function():
    shared = environment(rank=0, world_size=2)
    program = [sys.executable, "-m", "workbench.distributed.rank_main", f"{FUNCTIONS}:total", '{"offset": 1}']
    ranks = [
        subprocess.Popen(program, env=os.environ | shared | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    rows, none = (rank.communicate(timeout=120)[0] for rank in ranks)
    assert json.loads(rows)["total"] == 3.0 and none == ""


@pytest.mark.slow
def test_ranks_with_different_configurations_are_refused_before_they_work():
    shared = environment(rank=0, world_size=2)
    program = [sys.executable, "-m", "workbench.distributed.rank_main", f"{FUNCTIONS}:total"]
    ranks = [
        subprocess.Popen(
            [*program, f'{{"offset": {rank}}}'], env=os.environ | shared | {"RANK": str(rank)}, stderr=subprocess.PIPE
        )
        for rank in (0, 1)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=120)
        assert rank.returncode and b"ranks differ in config.offset (0 on rank 0; 1 on rank 1); start all" in errors
