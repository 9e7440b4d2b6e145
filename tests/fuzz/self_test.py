"""Cases that the pool must tell apart."""

import os
import random
import signal
import time


def returns(rng: random.Random) -> None:
    pass


def crashes(rng: random.Random) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def is_of_no_help(rng: random.Random) -> None:
    int("a")


def hangs(rng: random.Random) -> None:
    time.sleep(60)


TARGETS = (returns, crashes, is_of_no_help, hangs)
