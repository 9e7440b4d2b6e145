"""Training curves of one data set: the whole batch, its micro-batches, and mini-batches."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy

from workbench.core.dataset import Dataset
from workbench.nn.model import build_model, relation_options
from workbench.sampling.neighbor import NeighborSampler
from workbench.training.epoch import epoch_steps, train_epochs
from workbench.training.evaluate import split_accuracies
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go

_CUT_BY = {"whole batch": (), "micro-batch": ("num_parts",), "mini-batch": ("num_batches",)}


def curve_explorer(
    dataset: Dataset,
    *,
    models: Sequence[str] = ("sage-mean", "gat", "gcn", "gin", "sage-pool"),
    num_parts: Sequence[int] = (8, 2, 4, 16),
    dropout: Sequence[float] = (0.5, 0.0),
    **options: Any,
) -> Any:
    """Show `curve_view` below controls for model, K and dropout, and a button that starts training.

    Args:
        dataset: with features and labels.
        models: choices of `curve_view`'s `model`; the first is the default.
        num_parts: numbers of micro- and mini-batches; the first is the default.
        dropout: dropout probabilities; the first is the default.
        options: other arguments of `curve_view`.

    Returns:
        A widget; the initial figure if ipywidgets is not installed.
    """
    view = partial(curve_view, dataset, **options)
    return explore(view, button="train", model=models, num_parts=num_parts, dropout=dropout)


def curve_view(
    dataset: Dataset,
    *,
    model: str = "sage-mean",
    num_parts: int = 8,
    dropout: float = 0.5,
    fanout: Sequence[int] = (5, 10),
    hidden_dim: int = 32,
    epochs: int = 10,
    learning_rate: float = 0.01,
    seed: int = 0,
) -> "go.Figure":
    """Train on a whole batch, its micro-batches, and as many mini-batches; draw loss and test accuracy by epoch.

    Args:
        dataset: with features and labels; its training nodes are the batch.
        model: kind of layer, one of `workbench.build_model`.
        num_parts: number of micro- and mini-batches, at least 2.
        dropout: dropout probability.
        fanout: neighbours per layer, input layer first.
        hidden_dim: width of hidden layers.
        epochs: number of epochs.
        learning_rate: learning rate of Adam.
        seed: random seed of sampling, partitioning, weights and dropout.

    Raises:
        ValueError: invalid fanouts, model or number of parts.
    """
    from workbench.plots.lines import lines

    relations: dict[str, Any] = relation_options(model, dataset.graph)
    sampler = NeighborSampler(fanout, seed=seed)

    def rows(approach: str) -> Iterator[dict[str, Any]]:
        net = build_model(
            model,
            in_dim=dataset.num_features,
            hidden_dim=hidden_dim,
            out_dim=dataset.num_classes,
            num_layers=len(fanout),
            dropout=dropout,
            seed=seed,
            **relations,
        )
        cut: dict[str, Any] = dict.fromkeys(_CUT_BY[approach], num_parts)
        steps = partial(epoch_steps, dataset.graph, dataset.train_idx, sampler=sampler, seed=seed, **cut)
        yield from train_epochs(
            net,
            lambda epoch: steps(epoch=epoch),
            dataset.x,
            dataset.y,
            cross_entropy,
            torch.optim.Adam(net.parameters(), lr=learning_rate),
            epochs=epochs,
            evaluate=lambda: split_accuracies(net, dataset),
        )

    table = [{"training": approach, **row} for approach in _CUT_BY for row in rows(approach)]
    title = f"{dataset.name}: {model}, K = {num_parts}, dropout {dropout:g}"
    return lines(table, x="epoch", y=["loss", "test_accuracy"], group="training", band=True, title=title)
