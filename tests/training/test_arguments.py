"""Common mistakes (swapped arguments, frozen models, layers of other libraries) are refused with a remedy."""

from collections.abc import Sequence
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.training.argument_models import X, Y, arguments, frozen
from tests.training.toys import PlainModel, toy_batch
from workbench.core.block import Block
from workbench.core.graph import Graph
from workbench.memory.estimator import estimate_memory
from workbench.memory.plan import plan_micro_batches
from workbench.nn.model import build_model
from workbench.partition.redundancy import redundancy
from workbench.training.accumulate import accumulate
from workbench.training.evaluate import full_neighbour_logits
from workbench.training.step import train_step


class Tuples(PlainModel):
    def forward(self, blocks, x):
        return super().forward(blocks, x), None


class Everywhere(PlainModel):
    def forward(self, blocks, x):
        return self.layers[0](blocks[0], x)


class OtherArguments(PlainModel):
    def forward(self, x, adj, size):  # pyright: ignore
        return x


CASES = {
    "frozen": (lambda: {"model": frozen()}, ValueError, "none of the model's 6 parameters requires a gradient.*unfree"),
    "another model's optimizer": (
        lambda: {"optimizer": torch.optim.Adam(PlainModel().parameters())},
        ValueError,
        r"has none of the model's 6 parameters that require a gradient.*torch\.optim\.Adam\(model\.parameters\(\)\)",
    ),
    "LBFGS": (
        lambda: {"optimizer": torch.optim.LBFGS(PlainModel().parameters())},
        ValueError,
        "LBFGS.step requires a closure .* such as Adam or SGD",
    ),
    "optimizer class": (lambda: {"optimizer": torch.optim.Adam}, TypeError, "optimizer is a type; pass an optimizer"),
    "optimizer's name": (lambda: {"optimizer": "adam"}, TypeError, "optimizer is a str; pass an optimizer"),
    "model class": (lambda: {"model": PlainModel}, TypeError, "model is the class PlainModel; pass an instance"),
    "no model": (lambda: {"model": toy_batch()}, TypeError, "model is a MiniBatch; pass a torch.nn.Module first"),
    "loss class": (
        lambda: {"loss_fn": nn.CrossEntropyLoss},
        TypeError,
        r"the class CrossEntropyLoss; pass an instance of it: CrossEntropyLoss\(\)",
    ),
    "no loss": (lambda: {"loss_fn": "mse"}, TypeError, "loss_fn is 'mse'; pass a function"),
    "pair": (lambda: {"micro": (3, toy_batch())}, TypeError, r"micro\[0\] is an int; .* yields pairs \(step, batch\)"),
    "blocks": (lambda: {"micro": toy_batch().blocks}, TypeError, r"micro\[0\] is a Block; pass a MiniBatch"),
    "no batch": (lambda: {"micro": 7}, TypeError, "micro is an int; pass a MiniBatch"),
    "features as a list": (lambda: {"x": X.tolist()}, TypeError, "x is a list; pass a tensor with a row per node"),
    "a tensor as micro": (lambda: {"micro": X}, TypeError, "micro is a Tensor; pass a MiniBatch or a list"),
    "labels as the loss": (lambda: {"loss_fn": Y}, TypeError, "loss_fn is a Tensor; pass a function such as torch"),
    "labels as a number": (lambda: {"y": torch.tensor(1)}, ValueError, "y is a single number"),
    "double features": (
        lambda: {"x": X.double()},
        TypeError,
        r"features are torch.float64, the model's parameters torch.float32; convert the features",
    ),
    "exchanged x and y": (lambda: {"x": Y, "y": X}, ValueError, r"features have shape \(.*,\), but the model reads"),
    "width": (lambda: {"x": X[:, :3]}, ValueError, r"features have shape \(.*, 3\), .* reads \[nodes, 4\]; build it"),
    "double features of an own model": (
        lambda: {"model": PlainModel(), "x": X.double()},
        ValueError,
        r"PlainModel with parameters of torch.float32 failed on features of torch.float64 \(.*, 4\): .* convert",
    ),
    "width of an own model": (
        lambda: {"model": PlainModel(), "x": X[:, :3]},
        ValueError,
        r"PlainModel with .* failed on features of torch.float32 \(.*, 3\).* for their width",
    ),
    "labels as a column": (lambda: {"y": Y[:, None]}, ValueError, r"labels of torch.int64 \(13, 1\).*y\[:, 0\]"),
    "labels as floats": (lambda: {"y": Y.double()}, ValueError, r"labels of torch.float64 \(13,\).*y\.long\(\)"),
    "too many classes": (
        lambda: {"y": Y + 1},
        IndexError,
        r"y contains class 3, but the model's output has 3 columns; classes must be in \[0, 3\)",
    ),
    "zero weights": (
        lambda: {"loss_fn": partial(F.cross_entropy, weight=torch.zeros(3))},
        ValueError,
        "class weights of the batch's 13 labelled seeds sum to 0.0.* positive weight",
    ),
    "few weights": (
        lambda: {"loss_fn": partial(F.cross_entropy, weight=torch.ones(2))},
        IndexError,
        "y contains class 2, but loss_fn has 2 class weights",
    ),
    "tuple": (
        lambda: {"model": Tuples()},
        ValueError,
        r"an output of tuple\(torch.float32 .*loss_fn=lambda out, y: .* forward=lambda mb, inputs: .*\[0\]",
    ),
    "all rows": (lambda: {"model": Everywhere()}, ValueError, r"the model returned shape \(.*, 5\) for 13 seeds"),
    "other arguments": (
        lambda: {"model": OtherArguments()},
        TypeError,
        r"OtherArguments.forward\(x, adj, size\) can't be called with \(blocks, x\)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_mistakes_are_refused(case: str) -> None:
    changes, error, message = CASES[case]
    with pytest.raises(error, match=message):
        train_step(**arguments(**changes()))


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode])
def test_disabled_gradients_are_refused(switch) -> None:
    with switch(), pytest.raises(ValueError, match=r"gradients are disabled here .* call it outside"):
        train_step(**arguments())


@pytest.mark.parametrize("model", [build_model("sage-mean", in_dim=4, hidden_dim=5, out_dim=3), PlainModel()])
@pytest.mark.parametrize("labels", [Y, Y[:, None]])
def test_exchanged_features_and_labels_are_noted(model: nn.Module, labels: Tensor) -> None:
    with pytest.raises(ValueError, match="features") as caught:
        train_step(**arguments(model=model, x=labels, y=X))
    assert "are they exchanged? The features x come first" in caught.value.__notes__[0]
    with pytest.raises(ValueError, match="features") as caught:
        train_step(**arguments(model=model, x=X[:, :2]))
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize(
    ("read", "loss_of", "message"),
    [
        (X, lambda out, mb: out.sum(), r"read is a Tensor; pass a function of a micro-batch: lambda mb: x"),
        (lambda mb: X[mb.node_ids], F.cross_entropy, r"loss_of is cross_entropy, .* pass workbench\.BatchLoss\.of"),
        (lambda mb: X[mb.node_ids], nn.CrossEntropyLoss(), "loss_of is CrossEntropyLoss, "),
        (lambda mb: X[mb.node_ids], nn.CrossEntropyLoss, "loss_of is CrossEntropyLoss, "),
        (lambda mb: X[mb.node_ids], None, "loss_of is NoneType, "),
    ],
)
def test_accumulate_refuses_what_it_cannot_call(read, loss_of, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        accumulate(PlainModel(), toy_batch(), read, loss_of)


@pytest.mark.parametrize("model", [build_model("sage-mean", in_dim=4, hidden_dim=5, out_dim=3), PlainModel()])
def test_estimates_and_plans_refuse_a_loss_class(model: nn.Module) -> None:
    for call in (estimate_memory, partial(plan_micro_batches, memory=2**20)):
        with pytest.raises(
            TypeError, match=r"the class CrossEntropyLoss; pass an instance of it: CrossEntropyLoss\(\)"
        ):
            call(model, toy_batch(), loss_fn=nn.CrossEntropyLoss, in_dim=4)  # pyright: ignore[reportArgumentType]


def test_redundancy_and_edges_refuse_exchanged_or_joined_arguments() -> None:
    mb = toy_batch()
    with pytest.raises(TypeError, match="mb is a list; pass the micro-batches first"):
        redundancy(mb, [mb])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="micro is a MiniBatch; pass the list of micro-batches first"):
        redundancy(mb, mb)  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        ValueError, match=r"src has shape \(2, 5\), like an edge_index; .*Graph.from_edges\(\*edge_index\)"
    ):
        Graph.from_edges(torch.zeros(2, 5, dtype=torch.int64), 20)  # pyright: ignore[reportArgumentType]


def test_the_advice_for_own_models_names_bounded_inference() -> None:
    with pytest.raises(TypeError, match=r"or call workbench\.training\.layerwise\(graph, x, layers\)"):
        full_neighbour_logits(PlainModel(), Graph.from_edges([0], [1]), X)


def test_a_detached_loss_is_refused() -> None:
    with pytest.raises(ValueError, match="the loss depends on nothing that requires a gradient"):
        accumulate(PlainModel(), toy_batch(), lambda mb: X[mb.node_ids], lambda out, mb: out.detach().sum())
    with pytest.raises(TypeError, match="the result of loss_of is a float; return a scalar tensor"):
        accumulate(PlainModel(), toy_batch(), lambda mb: X[mb.node_ids], lambda out, mb: 0.5)  # pyright: ignore


class HoldsDglLayer(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, blocks: Sequence[Block], x: Tensor) -> Tensor:
        return self.layer(blocks[0], x)


def test_layers_of_dgl_that_ask_for_the_librarys_blocks_are_refused_by_step_and_estimate() -> None:
    dgl_nn = pytest.importorskip("dgl.nn")
    model = HoldsDglLayer(dgl_nn.SAGEConv(4, 3, "mean"))
    with pytest.raises(TypeError, match=r"SAGEConv is a layer of DGL, which does not accept .* micro_batches"):
        train_step(**arguments(model=model))
    with pytest.raises(ValueError, match=r"can't be estimated: TypeError: SAGEConv is a layer of DGL"):
        estimate_memory(model, toy_batch(), in_dim=4)
