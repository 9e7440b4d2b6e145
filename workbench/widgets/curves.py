"""Training curves of one data set: whole batch, micro-batches of it, and mini-batches."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy

from workbench.core.dataset import Dataset
from workbench.nn.model import build_model
from workbench.sampling.neighbor import NeighborSampler
from workbench.training.epoch import epoch_steps, train_epochs
from workbench.training.evaluate import split_accuracies
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go

_CUT = {"whole batch": (), "micro-batch": ("num_parts",), "mini-batch": ("num_batches",)}


def curve_explorer(
    dataset: Dataset,
    *,
    models: Sequence[str] = ("sage-mean", "gat", "gcn", "gin", "sage-pool"),
    num_parts: Sequence[int] = (8, 2, 4, 16),
    dropout: Sequence[float] = (0.5, 0.0),
    **options: Any,
) -> Any:
    """Choose model, K and dropout, press train, and see `curve_view` of them.

    Args:
        dataset: as `workbench.load_dataset` gives it.
        models: kinds of layer; the first is shown first, as in what follows.
        num_parts: micro- and mini-batches.
        dropout: probabilities.
        options: further arguments of `curve_view`.

    Returns:
        See `explore`.
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
    """Loss and test accuracy over epochs, of the whole batch, of it in micro-batches, and of as many mini-batches.

    Args:
        dataset: with features and labels; all its training nodes are the batch.
        model: see `workbench.build_model`; trained by Adam.
        num_parts: micro- and mini-batches, at least 2.
        dropout: probability of dropping a hidden value.
        fanout: neighbours a layer, input layer first.
        hidden_dim: width of hidden layers.
        epochs: to train.
        learning_rate: of Adam.
        seed: of sampling, partition, weights and dropout.

    Raises:
        ValueError: what sampling, partition or model refuse.
    """
    from workbench.plots.lines import panels

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
        )
        cut: dict[str, Any] = dict.fromkeys(_CUT[approach], num_parts)
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

    table = [{"training": approach, **row} for approach in _CUT for row in rows(approach)]
    title = f"{dataset.name}: {model}, K = {num_parts}, dropout {dropout:g}"
    return panels(table, x="epoch", y=["loss", "test_accuracy"], group="training", band=True, title=title)
