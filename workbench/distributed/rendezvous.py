"""The meeting point of ranks on this machine, as `env://` of `torch.distributed` reads it from the environment."""

import os
import socket
from typing import Any, Self

_HOST = "127.0.0.1"
_LOOPBACKS = ("lo", "lo0")


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
        """The port."""
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
