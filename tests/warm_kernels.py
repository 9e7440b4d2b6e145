"""Jupyter kernels that are forked from a process with their imports, which take longer than most notebooks."""

import gc
import multiprocessing
import os
import signal
from multiprocessing.context import ForkServerProcess
from typing import Any

IMPORTS = (
    "ipykernel.kernelapp",
    "ipywidgets",
    "numba",
    "plotly.graph_objects",
    "plotly.io._renderers",  # of the first figure shown: nbformat, whose validator compiles grammars for seconds
    "plotly.subplots",
    "scipy.optimize",
    "scipy.stats",
    "torch._dynamo",  # of torch.optim
    "workbench.report.notebook",
    "tests.warm_figures",
)
"""What figures import anyhow: the libraries, and the module of a notebook's first cell, which imports the ground."""


def install() -> None:
    """Let `jupyter_client` fork local kernels; to be called where no kernel has been started."""
    from jupyter_client.provisioning.local_provisioner import LocalProvisioner

    multiprocessing.set_forkserver_preload(list(IMPORTS))
    LocalProvisioner.launch_kernel = _launch_kernel


async def _launch_kernel(self: Any, cmd: list[str], *, env: dict[str, str], cwd: str | None = None, **_: Any) -> Any:
    self.process = _Kernel(cmd[cmd.index("-f") :], env, cwd or os.getcwd())
    self.pid, self.cwd = self.process.pid, cwd
    return self.connection_info


class _Kernel:
    """A forked kernel in the form of a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], env: dict[str, str], cwd: str) -> None:
        self._process = ForkServerProcess(target=_run, args=(arguments, env, cwd))
        self._process.start()
        self.pid: int = self._process.pid  # pyright: ignore[reportAttributeAccessIssue]

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Signal the kernel and what it started, a group of its own as soon as the kernel runs."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(arguments: list[str], env: dict[str, str], cwd: str) -> None:
    import pandas
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    os.environ.clear()
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))  # whose end ends the kernel
    os.chdir(cwd)
    pandas.set_option("display.max_columns", 20)  # pandas asks on its import whether it is in a terminal
    gc.freeze()  # what was imported before the fork: each point of an experiment collects garbage before it runs
    IPKernelApp.launch_instance(arguments)
