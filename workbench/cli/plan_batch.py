"""The work of `workbench plan`: load the data, build the model, sample a batch and plan its micro-batches."""

from types import SimpleNamespace

import torch

from workbench.cli.option_values import FAST_PARTITIONERS
from workbench.cli.plan_text import answer, comparison
from workbench.core.dataset import Dataset
from workbench.core.errors import CapacityError, PartitionError, check_at_least
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import permutation
from workbench.core.units import parse_bytes
from workbench.datasets.load import load_dataset
from workbench.memory.backend import Backend
from workbench.memory.plan import Plan, check_options, plan_micro_batches
from workbench.meter.stopwatch import Stopwatch
from workbench.nn.model import build_model
from workbench.sampling.neighbor import NeighborSampler


def plan_batch(asked: SimpleNamespace) -> list[str]:
    """Plans one batch and describes the plans.

    Args:
        asked: the options of `workbench plan` by name.

    Returns:
        Lines to print: the answer, the batch and the model, the partitioners side by side, those that failed.

    Raises:
        ValueError: invalid options (checked before the data set is loaded), or a data set without features, classes or
            training nodes.
        CapacityError: no number of micro-batches fits.
    """
    capacity_bytes, backend = parse_bytes(asked.capacity), _backend(asked)
    sampler = NeighborSampler(_fanouts(asked), seed=asked.seed)
    check_options(capacity_bytes, "auto", asked.margin, None, asked.strategy, None)
    data, watch = _load(asked), Stopwatch()
    num_layers, num_classes = len(sampler.fanouts), data.num_classes if asked.classes is None else asked.classes
    model = _model(asked, data, num_layers, num_classes)
    with watch.phase("sample"):
        batch = sampler.sample(data.graph, _seeds(asked, data))
    plans, errors = _plans(asked, model, batch, capacity_bytes, backend)
    about = [
        f"batch: {batch.num_seeds:,} training nodes of {data.name}, fanouts {asked.fanouts}: {batch.num_inputs:,} "
        f"input nodes, {batch.num_edges:,} edges, sampled in {watch.seconds['sample']:.2f} s",
        f"model: {asked.model}, {num_layers} layers, {data.num_features} → {asked.hidden} → {num_classes} channels, "
        f"{asked.optimizer}; estimated for {next(iter(plans.values())).estimates[0].backend}",
    ]
    return [answer(plans), "", *about, "", *comparison(plans), *(f"{name}: {error}" for name, error in errors.items())]


def _fanouts(asked: SimpleNamespace) -> list[int]:
    try:
        fanouts = [int(fanout) for fanout in asked.fanouts.split(",")]
    except ValueError:
        raise ValueError(f"fanouts are {asked.fanouts!r}; write integers with commas, such as 10,25") from None
    if asked.layers not in (None, len(fanouts)):
        raise ValueError(f"layers is {asked.layers}, but {len(fanouts)} fanouts are given; give one per layer")
    return fanouts


def _backend(asked: SimpleNamespace) -> Backend:
    here = torch.cuda.is_available()
    device = asked.device or ("cuda" if here else "cpu")
    cudnn = here and device == "cuda" and torch.backends.cudnn.is_available()
    return Backend(device, asked.lstm or ("cudnn" if cudnn else ""))


def _load(asked: SimpleNamespace) -> Dataset:
    data = load_dataset(
        asked.dataset,
        root=asked.root,
        scale=asked.scale,
        undirected=asked.undirected or None,
        features=asked.features,
        seed=asked.seed,
    )
    if not isinstance(data, Dataset):
        raise ValueError(f"{asked.dataset} is a knowledge graph, which has no training nodes; choose another set")
    return data


def _model(asked: SimpleNamespace, data: Dataset, num_layers: int, num_classes: int) -> torch.nn.Module:
    if not data.num_features:
        raise ValueError(f"{data.name} has no features; pass --features degree, or random:WIDTH such as random:128")
    if not num_classes:
        raise ValueError(f"{data.name} has no classes; pass --classes, the number of output channels")
    return build_model(
        asked.model,
        in_dim=data.num_features,
        hidden_dim=asked.hidden,
        out_dim=num_classes,
        num_layers=num_layers,
        dropout=asked.dropout,
        norm=asked.norm,
        heads=asked.heads,
    )


def _seeds(asked: SimpleNamespace, data: Dataset) -> torch.Tensor:
    """The training nodes, or a random sample of the batch size."""
    seeds = data.train_idx
    if not len(seeds):
        raise ValueError(f"{data.name} has no training nodes, so there is no batch to plan for; choose another set")
    if asked.batch_size is None:
        return seeds
    check_at_least("batch-size", asked.batch_size, 1)
    if asked.batch_size > len(seeds):
        raise ValueError(f"batch-size is {asked.batch_size}, but {data.name} has {len(seeds)} training nodes")
    return seeds[permutation(asked.seed, len(seeds))[: asked.batch_size]]


def _plans(
    asked: SimpleNamespace, model: torch.nn.Module, batch: MiniBatch, capacity_bytes: int, backend: Backend
) -> tuple[dict[str, Plan], dict[str, Exception]]:
    """Plans and errors by partitioner; raises the first error if all failed."""
    plans, errors = {}, {}
    for method in FAST_PARTITIONERS if asked.method == "all" else [asked.method]:
        try:
            plans[method] = plan_micro_batches(
                model,
                batch,
                capacity_bytes=capacity_bytes,
                method=method,
                optimizer=asked.optimizer,
                seed=asked.seed,
                margin=asked.margin,
                backend=backend,
                strategy=asked.strategy,
            )
        except (CapacityError, ImportError, PartitionError) as error:
            errors[method] = error
    if not plans:
        raise next(iter(errors.values()))
    return plans, errors
