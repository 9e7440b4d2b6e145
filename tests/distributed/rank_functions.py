"""Functions that tests run on ranks."""

import os

import torch
import torch.distributed as dist


def total(config):
    """The sum over ranks, one row per step."""
    for step in range(config.get("steps", 1)):
        value = torch.tensor([float(dist.get_rank() + config["offset"])])
        dist.all_reduce(value)
        yield {"step": step, "total": value[0], "world_size": dist.get_world_size(), "rank": dist.get_rank()}


def received(config):
    """The configuration as it arrived, and the process."""
    assert isinstance(config, dict)
    return [{"config": repr(config), "pid": os.getpid()}]


def nothing(config):
    """No rows."""


def only_rank_0_yields(config):
    """Rows of other ranks need not exist."""
    dist.barrier()
    return [{"rank": 0}] if dist.get_rank() == 0 else None


def tensor_as_value(config):
    """A row that is no row."""
    return [{"value": torch.ones(3)}]


def one_dict(config):
    """One row, which is no list of rows."""
    return {"value": 1}


class Holder:
    """A method, which is no function of a module."""

    def method(self, config):
        """Never called."""


def outer():
    """A closure, which is no function of a module either."""
    return lambda config: []
