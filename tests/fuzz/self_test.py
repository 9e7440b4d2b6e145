"""Targets with the outcomes that the pool must distinguish."""

import os
import random
import signal
import time


def returns(rng: random.Random) -> None:
    pass


def crashes(rng: random.Random) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def raises_unhelpful_error(rng: random.Random) -> None:
    int("a")


def hangs(rng: random.Random) -> None:
    time.sleep(60)


TARGETS = (returns, crashes, raises_unhelpful_error, hangs)
