"""Ranks: rows of rank 0, errors before anything starts, and failures at every stage that leave nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import workbench as wb
from tests.distributed import rank_functions
from workbench.core.errors import RankError
from workbench.distributed import rank_main
from workbench.distributed.rank_pool import RankPool

FUNCTIONS = "tests.distributed.rank_functions"
STAGES = {
    "import": "import",
    "rendezvous": "rendezvous",
    "before": "before the first collective",
    "in": "in ",
    "after": "after all_reduce (collective 1)",
}
ENDS = {
    "raises": ": ArithmeticError: it does not add up",
    "hangs": " did not end within ",
    "exits": " ended with exit status 3",
    "dies": " was killed by SIGKILL, as the system does when memory runs out,",
}
SPARE_SECONDS = 5.0


@pytest.mark.parametrize("world_size", [2, 4])
def test_rows_come_from_rank_0_and_scalars_become_numbers(rank_pool, world_size):
    rows = rank_pool.run(f"{FUNCTIONS}:total", {"offset": 1, "steps": 2}, world_size=world_size)
    expected = float(sum(range(1, world_size + 1)))
    assert rows == [{"step": s, "total": expected, "world_size": world_size, "rank": 0} for s in (0, 1)]
    assert rank_pool.run(rank_functions.only_rank_0_yields, {}, world_size=world_size) == [{"rank": 0}]
    assert rank_pool.run(rank_functions.nothing, {}, world_size=world_size) == []


def test_a_pool_keeps_its_processes_and_configurations_arrive_as_json(rank_pool):
    config = {"fanouts": (10, 25), "dataset": {"name": "cora", "scale": None}, "rate": 0.1, "open": True}
    first, second = (rank_pool.run(rank_functions.received, config)[0] for _ in range(2))
    assert first == second and first["pid"] == rank_pool.pids[0] != os.getpid()
    assert first["config"] == repr({**config, "fanouts": [10, 25]})


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
        ({"world_size": 0}, "world_size is 0; it must be at least 1"),
        ({"world_size": 2, "timeout_seconds": 0}, "timeout_seconds is 0; it must be above 0"),
    ],
)
def test_numbers_out_of_range_are_refused(monkeypatch, given, words):
    assert_refused(monkeypatch, ValueError, words, f"{FUNCTIONS}:total", {}, **given)


def assert_refused(monkeypatch, kind: type[Exception], words: str, function: Any, config: Any, **given: Any) -> None:
    def start(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("workbench.distributed.rank_pool.RankProcess", start)
    with pytest.raises(kind, match=words):
        wb.run_ranks(function, config, **({"world_size": 2} | given))


def test_a_program_of_another_launcher_prints_the_rows_of_rank_0(monkeypatch, capsys):
    with wb.distributed_port() as port:
        pass
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    rank_main.main([f"{FUNCTIONS}:total", '{"offset": 3, "steps": 2}'])
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["total"] for line in lines] == [3.0, 3.0]
