"""Options of `Recovery`, what recovery refuses, and the partition methods that split a micro-batch."""

import re
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.partitioners import skip_without_library
from tests.training.faulty import FEATURES, LABELS, Splits, above, assert_same, faulty, nothing, run
from tests.training.toys import PlainModel, gradients, toy_batch
from workbench.core.errors import PartitionError
from workbench.core.minibatch import MiniBatch
from workbench.memory.training_setup import Recovery
from workbench.partition.batch import PARTITION_METHODS, partition_batch
from workbench.training import oom
from workbench.training.step import train_step


def test_data_parallel_models_are_refused() -> None:
    model: Any = PlainModel()
    model.no_sync = nullcontext
    with pytest.raises(ValueError, match="recover does not support PlainModel"):
        run(model, toy_batch(), Recovery())


def test_trainable_edge_weights_are_refused() -> None:
    mb = toy_batch()
    weights = torch.ones(mb.blocks[0].num_edges, requires_grad=True)
    learned = replace(mb, blocks=(replace(mb.blocks[0], edge_weight=weights), mb.blocks[1]))
    with pytest.raises(ValueError, match="trainable edge weights"):
        run(faulty(nothing), learned, Recovery())


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"method": "best"}, ValueError, "method 'best' is not known"),
        ({"parts": 1}, ValueError, "parts is 1"),
        ({"seed": "x"}, ValueError, "seed is 'x'; it must be a whole number"),
        ({"seed": 0.5}, ValueError, "seed is 0.5"),
        (
            {"method": "cluster"},
            ValueError,
            "method is 'cluster' and node_parts is not given; method 'cluster' requires node_parts",
        ),
        (
            {"method": "reg", "node_parts": torch.zeros(40).long()},
            ValueError,
            "method is 'reg' and node_parts is given",
        ),
        ({"method": "cluster", "node_parts": torch.zeros(40)}, TypeError, "node_parts must be a tensor of torch.int64"),
    ],
)
def test_invalid_options_are_refused(wrong: dict[str, Any], error: type[Exception], message: str) -> None:
    """At construction, not when memory has run out."""
    with pytest.raises(error, match=re.escape(message)):
        Recovery(**wrong)


@pytest.mark.parametrize("wrong", [True, False, 2, Recovery])
def test_other_values_of_recover_are_refused_before_any_work(wrong: Any) -> None:
    model = faulty(nothing)
    run(model, toy_batch())
    before, optimizer = gradients(model), torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"recover is .*; pass workbench.Recovery\(\)"):
        train_step(model, toy_batch(), FEATURES, LABELS, F.cross_entropy, optimizer, recover=wrong)
    with pytest.raises(TypeError, match=r"recover is .*; pass workbench.Recovery\(\)"):
        run(faulty(nothing), toy_batch(), wrong)
    assert torch.equal(gradients(model), before)


@pytest.mark.parametrize("method", PARTITION_METHODS)
def test_every_method_splits(method: str) -> None:
    skip_without_library(method)
    node_parts = torch.arange(40) % 2 if method == "cluster" else None
    ours, theirs, splits = faulty(above(4, "backward")), faulty(nothing), Splits()
    run(ours, toy_batch(), Recovery(method=method, node_parts=node_parts, on_split=splits))
    run(theirs, toy_batch())
    assert_same((gradients(ours),), (gradients(theirs),))
    mb, parts, _ = splits[0]  # later ones may be "range", of what the method keeps together
    part = partition_batch(mb, len(parts), method=method, node_parts=node_parts)
    assert [piece.seeds.tolist() for piece in parts] == [mb.seeds[part == k].tolist() for k in range(len(parts))]


@pytest.mark.parametrize("failure", [ImportError, PartitionError, MemoryError, "one part"])
def test_range_replaces_a_method_that_fails(monkeypatch: pytest.MonkeyPatch, failure: Any) -> None:
    def partition(mb: MiniBatch, num_parts: int, *, method: str, **options: Any) -> Tensor:
        if method == "range":
            return partition_batch(mb, num_parts, method=method)
        if failure == "one part":
            return torch.full((mb.num_seeds,), 3)
        raise failure("no pymetis")

    monkeypatch.setattr(oom, "partition_batch", partition)
    splits = Splits()
    run(faulty(above(7, "forward")), toy_batch(), Recovery(on_split=splits))
    first, second = splits[0][1]
    assert first.seeds.max() < second.seeds.min()
    if failure in (ImportError, PartitionError):  # a method requested by name is not replaced
        with pytest.raises(failure):
            run(faulty(above(7, "forward")), toy_batch(), Recovery(method="metis"))
