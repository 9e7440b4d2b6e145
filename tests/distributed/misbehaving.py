"""A function one of whose ranks misbehaves, as MISBEHAVE = "stage fate rank" in the environment says."""

import os
import signal
import subprocess
import threading
import time

import torch
import torch.distributed as dist

STAGE, FATE, BAD = [*os.environ.get("MISBEHAVE", "").split(), "", "", ""][:3]
IS_BAD = os.environ.get("RANK", "none") == BAD


def leave_children():
    """Children that outlive this process if nobody ends them: one with a child, one with a session of its own."""
    subprocess.Popen(["sh", "-c", "sleep 602 & wait"], stdout=subprocess.DEVNULL)
    subprocess.Popen(["sleep", "602"], start_new_session=True, stdout=subprocess.DEVNULL)


def meet_fate():
    """Raise, hang, exit, crash or be killed, with children."""
    leave_children()
    if FATE == "raises":
        raise ArithmeticError("it does not add up")
    if FATE == "hangs":
        time.sleep(600)
    if FATE == "exits":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGSEGV if FATE == "crashes" else signal.SIGKILL)


def meet_fate_in_a_collective():
    """The main thread waits for what no rank sends, or passes what is no tensor."""
    if FATE == "raises":
        dist.all_reduce("no tensor")  # pyright: ignore[reportArgumentType]
    if FATE != "hangs":
        threading.Timer(0.2, meet_fate).start()
    dist.recv(torch.ones(1), src=1 - int(BAD))


if IS_BAD and STAGE == "import":
    meet_fate()
if IS_BAD and STAGE == "rendezvous":
    dist.init_process_group = lambda *_, **__: meet_fate()


def run(config):
    """Two collectives."""
    if IS_BAD and STAGE == "before":
        meet_fate()
    if IS_BAD and STAGE == "in":
        meet_fate_in_a_collective()
    dist.all_reduce(torch.ones(1))
    yield {"step": 0}
    if IS_BAD and STAGE == "after":
        meet_fate()
