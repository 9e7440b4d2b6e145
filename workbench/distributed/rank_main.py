"""The program of a rank, `run_rank`, and the meeting point of ranks on this machine, `Rendezvous` (`env://`)."""

import argparse
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from workbench.distributed.progress import DONE, FUNCTION, IMPORT, RENDEZVOUS, ROWS, Reporter

if TYPE_CHECKING:
    import torch

_HOST = "127.0.0.1"

_LOOPBACKS = ("lo", "lo0")

_MOST_SECONDS = 1e9  # clocks count nanoseconds in 64 bits: 292 years


class Rendezvous:
    """A key-value store on a free port of the loopback interface, open inside a `with` block.

    The launcher hosts it, as torchrun does, so the port is never free between its choice and its use.

    Args:
        world_size: number of ranks.
    """

    def __init__(self, world_size: int) -> None:
        self._world_size, self._store = world_size, None

    def __enter__(self) -> Self:
        from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]  # public in its documentation

        self._store: Any = TCPStore(_HOST, 0, is_master=True, wait_for_workers=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._store = None  # here, because a traceback may keep this object

    @property
    def port(self) -> int:
        return self._store.port

    def environment(self, rank: int) -> dict[str, str]:
        """Variables of a rank, as torchrun sets them."""
        interface = next((name for _, name in socket.if_nameindex() if name in _LOOPBACKS), None)
        interfaces = {} if interface is None else {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
        return {
            "MASTER_ADDR": _HOST,
            "MASTER_PORT": str(self.port),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self._world_size),
            "LOCAL_WORLD_SIZE": str(self._world_size),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # the launcher hosts the store
            "TORCHELASTIC_RESTART_COUNT": "0",
            **{name: os.environ.get(name, value) for name, value in interfaces.items()},
        }


def main(arguments: list[str] | None = None) -> None:
    """The program of a rank that something else than this package starts."""
    parser = argparse.ArgumentParser(prog="workbench.distributed.rank_main", description="Run a function as one rank.")
    parser.add_argument("function", help="module:function, called with the configuration; rank 0 yields the rows")
    parser.add_argument("config", help="JSON object")
    parser.add_argument("--backend", default="gloo", help="of torch.distributed: gloo (default) or nccl")
    parser.add_argument("--timeout", type=float, default=600.0, help="of a collective, in seconds (default: 600)")
    chosen = parser.parse_args(arguments)
    check_timeout("--timeout", chosen.timeout)
    config = json.loads(chosen.config)
    rows = run_rank(chosen.function, config, backend=chosen.backend, timeout_seconds=chosen.timeout)
    sys.stdout.writelines(f"{json.dumps(row)}\n" for row in rows)


def run_rank(
    name: str, config: Mapping[str, Any], *, backend: str, timeout_seconds: float, reporter: Reporter | None = None
) -> list[dict[str, Any]]:
    """Join the process group of the environment, compare what the ranks were given, call the function, leave the group.

    After an error the process stays in the group, so that other ranks fail because of this one only when it ends.

    Args:
        name: "module:function".
        backend: of `torch.distributed`.
        reporter: is told of each stage.

    Returns:
        The rows of rank 0 as JSON values; of other ranks, none.

    Raises:
        ValueError: ranks have different configurations or code; the message names what differs, and on which ranks. Or
            the backend is NCCL, and this machine has fewer GPUs than ranks.
        TypeError: the function returned one row instead of a list, or a row with other values than those of JSON.
    """
    reporter = reporter or Reporter()
    reporter.enter(IMPORT)
    import torch.distributed as dist

    from workbench.distributed.group import check_start

    function = find_function(name)
    reporter.enter(RENDEZVOUS)
    timeout, gpu = timedelta(seconds=timeout_seconds), select_gpu() if "nccl" in backend else None
    dist.init_process_group(backend, init_method="env://", timeout=timeout, device_id=gpu)
    check_start(config, name, function)
    reporter.enter(FUNCTION)
    returned = function(config)
    if isinstance(returned, Mapping):
        raise TypeError(f"{name!r} returned a {type(returned).__name__}; yield rows, or return a list of them: [row]")
    rows = list(returned or ())
    reporter.enter(ROWS)
    plain = json.loads(json.dumps([dict(row) for row in rows], default=_scalar)) if dist.get_rank() == 0 else []
    dist.destroy_process_group()
    reporter.enter(DONE)
    return plain


def check_timeout(name: str, seconds: float) -> None:
    """Refuse a time limit that is not positive, or that clocks can't count."""
    if not 0 < seconds <= _MOST_SECONDS:
        limits = f"above 0 and at most {_MOST_SECONDS:g}, which are 31 years"
        raise ValueError(f"{name} is {seconds}; it must be {limits}")


def select_gpu() -> "torch.device":
    """Make the GPU with this rank's number on its machine the current one, which "cuda" stands for from now on.

    Raises:
        ValueError: this machine has fewer GPUs than ranks.
    """
    import torch

    rank = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    check_gpus(int(os.environ.get("LOCAL_WORLD_SIZE", rank + 1)))
    torch.cuda.set_device(rank)
    return torch.device("cuda", rank)


def check_gpus(num_ranks: int) -> None:
    """Refuse more ranks with NCCL on this machine than it has GPUs.

    Raises:
        ValueError: there are fewer.
    """
    import torch

    if num_ranks > (found := torch.cuda.device_count()):
        raise ValueError(
            f"{num_ranks} ranks on this machine with backend nccl need a GPU each, but torch sees {found}; start at "
            f"most {found}, or pass backend='gloo'"
        )


def find_function(name: str) -> Callable[[Any], Any]:
    """Import a function by name.

    Args:
        name: "module:function".
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute.isidentifier()) or module == "__main__":
        raise ValueError(f"{name!r} is not a function that ranks can import; write it to a file: 'module:function'")
    try:
        function = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        raise ValueError(f"{name!r}: {error}; ranks import it from sys.path") from error
    if not callable(function):
        raise ValueError(
            f"{name!r}: module {module} has no function {attribute}; if its file has, this process imported an older "
            f"version: call importlib.reload({module}), or restart the process (a notebook's kernel, a RankPool)"
        )
    return function


def _scalar(value: Any) -> Any:
    """The Python number of a scalar of NumPy or torch."""
    if getattr(value, "ndim", None) == 0:
        return value.item()
    raise TypeError(f"rows may contain numbers, strings, bools and None, not a {type(value).__name__}")


if __name__ == "__main__":
    main()
