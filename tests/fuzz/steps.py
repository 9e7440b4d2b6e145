"""Fuzz targets: models, training steps, estimates and plans, and the planning command."""

import random
from contextlib import suppress
from itertools import islice
from typing import Any

import click
import torch
import torch.nn.functional as F
from torch import nn

from tests.fuzz.mutate import wrong
from tests.strategies import random_graph
from tests.training.toys import PlainModel, toy_batch
from workbench.cli.plan_commands import plan as plan_command
from workbench.memory.estimator import estimate_memory
from workbench.memory.plan import plan_micro_batches
from workbench.memory.training_setup import Recovery
from workbench.nn.dropout import HashDropout
from workbench.nn.model import build_model
from workbench.training.accumulate import accumulate
from workbench.training.epoch import train_epochs
from workbench.training.evaluate import accuracy, full_neighbour_logits
from workbench.training.profile import profile_epoch
from workbench.training.step import train_step

X, Y = torch.linspace(-1, 1, 160).sin().view(40, 4), torch.arange(40) % 3


def _model(rng: random.Random) -> nn.Module:
    if rng.random() < 0.3:
        return PlainModel()
    kind = rng.choice(("sage-mean", "sage-pool", "sage-lstm", "gcn", "gin", "gat"))
    return build_model(kind, in_dim=4, hidden_dim=6, out_dim=3, dropout=0.5)


def _step(rng: random.Random) -> dict:
    model = _model(rng)
    loss_fn = rng.choice((F.cross_entropy, nn.CrossEntropyLoss(weight=torch.rand(3))))
    optimizer = torch.optim.Adam(model.parameters())
    micro = toy_batch().split(torch.arange(13) % 2)
    return {"model": model, "micro": micro, "x": X, "y": Y, "loss_fn": loss_fn, "optimizer": optimizer}


def step(rng: random.Random) -> None:
    valid = _step(rng) | {"reduction": "mean", "recover": Recovery(method="range")}
    assert train_step(**wrong(valid, rng)).dim() == 0


def _gradients(rng: random.Random) -> dict:
    return {"model": _model(rng), "micro": toy_batch(), "read": lambda mb: X[mb.node_ids]}


def accumulation(rng: random.Random) -> None:
    loss_of = rng.choice((lambda out, mb: out.sum(), lambda out, mb: out, lambda out, mb: 0.5))
    bad = wrong(_gradients(rng), rng, keep=("read",))
    accumulate(**bad, loss_of=loss_of)  # pyright: ignore[reportArgumentType]


def epochs(rng: random.Random) -> None:
    valid = _step(rng)
    micro = valid.pop("micro")
    valid |= {"steps": lambda epoch: [micro], "epochs": 1, "evaluate": None, "evaluate_every": 1}
    for row in islice(train_epochs(**wrong(valid, rng)), 2):
        assert row["num_steps"] == 1


def epoch_profile(rng: random.Random) -> None:
    valid = _step(rng)
    valid["steps"] = [valid.pop("micro")]
    repetitions: Any = rng.choice((1, 1, 1, 0, "2"))  # not mutated: a large number is a long run
    profile_epoch(**wrong(valid, rng), repetitions=repetitions, measure_memory=False)


def recovery(rng: random.Random) -> None:
    Recovery(**wrong({"parts": 2, "method": "range", "seed": 0, "node_parts": None}, rng))


def evaluation(rng: random.Random) -> None:
    model = build_model("sage-mean", in_dim=4, hidden_dim=6, out_dim=3)
    valid = {"model": model, "graph": random_graph(40, 160), "x": X, "nodes": torch.arange(9), "chunk_edges": 50}
    full_neighbour_logits(**wrong(valid, rng))


def accuracy_of_logits(rng: random.Random) -> None:
    assert 0 <= accuracy(**wrong({"logits": torch.rand(40, 3), "y": Y}, rng)) <= 1


def model(rng: random.Random) -> None:
    valid = {
        "kind": rng.choice(("sage-mean", "sage-lstm", "gat", "gin")),
        "in_dim": 4,
        "hidden_dim": 6,
        "out_dim": 3,
        "num_layers": 2,
        "dropout": 0.5,
        "norm": "layer",
        "heads": 1,
        "seed": 0,
    }
    mb = toy_batch()
    made = build_model(**wrong(valid, rng))
    made(mb.blocks, X[mb.node_ids], node_ids=mb.node_ids)


def dropout(rng: random.Random) -> None:
    layer = HashDropout(**wrong({"p": 0.5, "layer": 0, "seed": 0}, rng))
    layer(**wrong({"h": X, "node_ids": torch.arange(40), "step": 3}, rng, keep=("h",)))
    layer(X[:, 0] if rng.random() < 0.5 else X, torch.arange(40))


def estimate(rng: random.Random) -> None:
    valid = {"model": _model(rng), "mb": toy_batch(), "optimizer": "adam", "in_dim": 4, "backend": None}
    assert estimate_memory(**wrong(valid, rng)).peak_bytes > 0


def plan(rng: random.Random) -> None:
    valid = {
        "model": build_model("sage-mean", in_dim=4, hidden_dim=6, out_dim=3),
        "mb": toy_batch(),
        "memory": rng.choice((30_000, 10**6, 1)),
        "method": "range",
        "optimizer": "adam",
        "seed": 0,
        "margin": 0.02,
        "strategy": "even",
        "max_parts": 5,
    }
    assert plan_micro_batches(**wrong(valid, rng)).num_parts >= 1


_WORDS = (
    "",
    "-1",
    "0",
    "x",
    "1.5",
    "99999999999999999999",
    "nan",
    "10,25",
    ",",
    "-1,-1,-1",
    "8GiB",
    "1e400",
    "٣",
    "\x00",
)


def planning_command(rng: random.Random) -> None:
    """Run the command as `main` does, but without its handler for unexpected errors."""
    valid = {
        "--dataset": "synthetic-cora",
        "--scale": "0.05",
        "--fanouts": "3,2",
        "--capacity": "1GiB",
        "--batch-size": "9",
        "--hidden": "8",
        "--seed": "3",
        "--margin": "0.02",
        "--heads": "1",
        "--dropout": "0.1",
        "--method": "range",
        "--classes": "7",
        "--layers": "2",
        "--optimizer": "adam",
    }
    valid[rng.choice([name for name in valid if name != "--dataset"])] = rng.choice(_WORDS)
    with suppress(click.UsageError):  # words that no option accepts
        plan_command.main([word for pair in valid.items() for word in pair], standalone_mode=False)


CATEGORIES = {
    "steps": (step, accumulation, epochs, epoch_profile, recovery),
    "evaluation": (evaluation, accuracy_of_logits),
    "models": (model, dropout),
    "memory": (estimate, plan),
    "command": (planning_command,),
}
