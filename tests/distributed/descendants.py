"""Functions of ranks that start processes of their own: children, and children of children."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

CHILD = "import subprocess; subprocess.run(['sleep', '600'])"


class Slow(torch.utils.data.Dataset):
    """Workers that never answer."""

    def __len__(self):
        return 100

    def __getitem__(self, index):
        time.sleep(600 * (index > 3))
        return index


def start_children(**options):
    """Workers of a DataLoader, a child with a child, and one with a session of its own."""
    loader = iter(torch.utils.data.DataLoader(Slow(), batch_size=None, num_workers=2, **options))
    next(loader)
    child = subprocess.Popen([sys.executable, "-c", CHILD])
    return loader, child, subprocess.Popen(["sleep", "600"], start_new_session=True)


KEPT = []


def with_children(config):
    """Returns, and leaves its children running."""
    KEPT.append(start_children())


def hang(config):
    """Never returns."""
    KEPT.append(start_children())
    (Path(config["folder"]) / "hangs").touch()
    time.sleep(600)


def end(config):
    """Ends in a way that `config` tells, while children of the rank run; their ids are in a file."""
    import psutil

    KEPT.append(start_children())
    time.sleep(0.2)
    ids = [child.pid for child in psutil.Process().children(recursive=True)]
    (Path(config["folder"]) / "children").write_text(json.dumps([os.getpid(), *ids]))
    fate = config["fate"]
    if fate == "raises":
        raise ArithmeticError("it does not add up")
    if fate == "exits":
        os._exit(3)
    if fate.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[fate])
    if fate == "in C code":
        import ctypes

        ctypes.PyDLL(None).sleep(600)  # keeps the interpreter's lock
    time.sleep(600)
