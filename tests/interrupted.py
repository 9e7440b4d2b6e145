"""Interrupts sampling, training etc. at random moments and checks the results of the same work afterwards.

    python -m tests.interrupted --interrupts 2000 --seed 0

prints as JSON how many interrupts hit each scenario, which state was broken, and the results after the interrupts;
without `--interrupts`, the results of an uninterrupted process. Another process sends real SIGINTs to this one; after
each, the process's state is checked and the same scenario runs again.
"""

import argparse
import gc
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from numba.core import config as numba_config
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import workbench as wb
from tests.interrupt_scenarios import SCENARIOS, Scenarios, digest
from workbench.nn.gnn import GNN

_KILLER = """
import os, signal, sys, time
for line in sys.stdin:
    time.sleep(float(line))
    os.kill(os.getppid(), signal.SIGINT)
    print(flush=True)
"""


def atomic_steps(scenarios: Scenarios) -> tuple[Callable[[], str], Callable[[], bool]]:
    """Return a function that trains a persistent model, and a check that its state is that of complete steps."""
    micro = scenarios.batch.split(torch.arange(600) % 2)
    model, optimizer = scenarios.kept, scenarios.kept_optimizer
    twin = scenarios.new_model("gcn")
    twin_optimizer = torch.optim.Adam(twin.parameters(), lr=0.01)

    def step(network: GNN, network_optimizer: torch.optim.Optimizer) -> str:
        wb.train_step(network, micro, scenarios.x, scenarios.y, F.cross_entropy, network_optimizer)
        return digest(network.parameters())

    def is_complete() -> bool:
        state = digest(model.parameters())
        for _ in range(100):
            if digest(twin.parameters()) == state:
                return True
            step(twin, twin_optimizer)
        return False

    return lambda: step(model, optimizer), is_complete


def rows_are_open() -> bool:
    """Return whether a descriptor of this process refers to a file of rows, on systems that list them."""
    links = [link for link in Path("/proc/self/fd").glob("*") if link.is_symlink()]  # without the listing's own
    return any(os.path.realpath(link).endswith("rows.bin") for link in links)


def collect_garbage() -> bool:
    """Free what an interrupt left in cycles, such as a frame that refers to its own traceback."""
    return gc.collect() >= 0


def broken_state() -> list[str]:
    """Return descriptions of global state that an interrupt left changed."""
    problems = {
        "a dispatch mode is active": bool(_get_current_dispatch_mode_stack()),
        "the garbage collector is frozen": gc.get_freeze_count() > 0,
        "the garbage collector is disabled": not gc.isenabled(),
        "gradients are disabled": not torch.is_grad_enabled(),
        "numba's cache folder is ours": "workbench" in str(numba_config.CACHE_DIR),  # type: ignore[attr-defined]
        "a thread still reads": any(thread.name == "workbench-io" for thread in threading.enumerate()),
        "a file of rows is open": rows_are_open() and collect_garbage() and rows_are_open(),
    }
    return [problem for problem, present in problems.items() if present]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interrupts", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scenarios", nargs="+", default=SCENARIOS, choices=SCENARIOS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scenarios = Scenarios(Path(folder))
        runs: dict[str, Callable[[], str]] = {name: getattr(scenarios, name) for name in options.scenarios}
        results: dict[str, object] = {name: run() for name, run in runs.items()}
        if options.interrupts:
            results = interrupt(runs, scenarios, options.interrupts, random.Random(options.seed))
        sys.stdout.write(json.dumps(results))


def interrupt(
    runs: dict[str, Callable[[], str]], scenarios: Scenarios, interrupts: int, draw: random.Random
) -> dict[str, object]:
    """Interrupt each scenario in turn; return the number of hits, broken state, and results by scenario."""
    steps, is_complete = atomic_steps(scenarios)
    runs = {**runs, "steps": steps}
    seconds = {name: timed(run) for name, run in runs.items()}
    modes = [module.training for module in scenarios.evaluated.modules()]
    hits, broken = Counter(), []
    results: dict[str, set[str]] = {name: set() for name in runs}
    killer = subprocess.Popen([sys.executable, "-S", "-c", _KILLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert killer.stdin is not None and killer.stdout is not None
    for number in range(interrupts):
        name = list(runs)[number % len(runs)]
        try:
            killer.stdin.write(f"{draw.uniform(0, 1.05 * seconds[name])}\n".encode())
            killer.stdin.flush()
            result = runs[name]()
            if name != "steps":
                results[name].add(result)  # an interrupt that Python lost, e.g. in a destructor, must not affect it
            select.select([killer.stdout], [], [])  # the scenario ended before the interrupt
            time.sleep(0.1)
        except (KeyboardInterrupt, SystemError) as stop:
            if not is_of_interrupt(stop):
                raise
            hits[name] += stop.__traceback__ is not None and stop.__traceback__.tb_next is not None
        killer.stdout.readline()
        broken += [f"{name}: {problem}" for problem in broken_state()]
        torch.set_grad_enabled(True)  # so that later scenarios still run
        if [module.training for module in scenarios.evaluated.modules()] != modes:
            broken.append(f"{name}: a module is in another mode")
        if any(cache._lock.locked() for cache in scenarios.caches):
            broken.append(f"{name}: a cache is locked")
        if name == "steps":
            broken += [] if is_complete() else ["steps: a step was applied partially"]
        else:
            results[name].add(runs[name]())
    killer.stdin.close()
    killer.wait()
    return {
        "hits": hits,
        "broken": broken,
        "results": {name: sorted(found) for name, found in results.items() if found},
    }


def is_of_interrupt(error: BaseException | None) -> bool:
    """Whether an error is an interrupt, or was raised because of one: numba's C code raises a SystemError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def timed(run: Callable[[], str]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
