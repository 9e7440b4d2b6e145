"""The work of `workbench plan`: load the data, build the model, sample a batch and plan its micro-batches."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from workbench.cli.option_values import FAST_PARTITIONERS
from workbench.cli.plan_text import answer, comparison
from workbench.core.dataset import Dataset
from workbench.core.errors import CapacityError, PartitionError, check_at_least
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import permutation
from workbench.core.units import parse_bytes
from workbench.datasets.load import load_dataset
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.memory.backend import Backend
from workbench.memory.plan import Plan, plan_micro_batches
from workbench.memory.planning.options import check_options
from workbench.meter.stopwatch import Stopwatch
from workbench.nn.graph_models import relation_options
from workbench.nn.model import build_model
from workbench.sampling.neighbor import NeighborSampler


def plan_batch(asked: SimpleNamespace) -> list[str]:
    """Plans one batch and describes the plans.

    Args:
        asked: the options of `workbench plan` by name.

    Returns:
        Lines to print: the answer, the batch and the model, the partitioners side by side, those that failed.

    Raises:
        ValueError: invalid options (checked before the data set is loaded), a data set without features, classes or
            training nodes, or rgcn on a graph without edge types.
        CapacityError: no number of micro-batches fits.
    """
    capacity_bytes, backend = parse_bytes(asked.capacity), _backend(asked)
    sampler = NeighborSampler(_fanouts(asked), seed=asked.seed)
    check_options(capacity_bytes, "auto", asked.margin, None, asked.strategy, None)
    task, watch, num_layers = _load(asked), Stopwatch(), len(sampler.fanouts)
    model = _model(asked, task, num_layers)
    with watch.phase("sample"):
        batch = sampler.sample(task.graph, _seeds(asked, task))
    plans, errors = _plans(asked, model, batch, capacity_bytes, backend)
    about = [
        f"batch: {batch.num_seeds:,} {task.seeds_are} of {task.name}, fanouts {asked.fanouts}: {batch.num_inputs:,} "
        f"input nodes, {batch.num_edges:,} edges, sampled in {watch.seconds['sample']:.2f} s",
        f"model: {asked.model}, {num_layers} layers, {task.in_dim} → {asked.hidden} → {task.out_dim} channels, "
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


@dataclass(frozen=True)
class _Task:
    """The part of a data set that planning needs.

    Args:
        name: name of the data set.
        graph: graph to sample from.
        seeds: int64 [num_seeds], nodes that may be seeds.
        seeds_are: what they are, for the output.
        in_dim: width of the input.
        out_dim: width of the output.
    """

    name: str
    graph: Graph
    seeds: torch.Tensor
    seeds_are: str
    in_dim: int
    out_dim: int


def _load(asked: SimpleNamespace) -> _Task:
    data = load_dataset(
        asked.dataset,
        root=asked.root,
        scale=asked.scale,
        undirected=asked.undirected or None,
        features=asked.features,
        seed=asked.seed,
    )
    return _entities(asked, data) if isinstance(data, KnowledgeGraph) else _nodes(asked, data)


def _entities(asked: SimpleNamespace, data: KnowledgeGraph) -> _Task:
    """The encoder of a knowledge graph: entities have embeddings of the hidden width, edges go both ways."""
    out_dim = asked.hidden if asked.classes is None else asked.classes
    return _Task(
        data.name, data.graph(inverse=True), torch.arange(data.num_entities), "entities", asked.hidden, out_dim
    )


def _nodes(asked: SimpleNamespace, data: Dataset) -> _Task:
    num_classes = data.num_classes if asked.classes is None else asked.classes
    if not data.num_features:
        raise ValueError(f"{data.name} has no features; pass --features degree, or random:WIDTH such as random:128")
    if not num_classes:
        raise ValueError(f"{data.name} has no classes; pass --classes, the number of output channels")
    return _Task(data.name, data.graph, data.train_idx, "training nodes", data.num_features, num_classes)


def _model(asked: SimpleNamespace, task: _Task, num_layers: int) -> torch.nn.Module:
    if asked.bases is not None and asked.model != "rgcn":
        raise ValueError(f"bases is {asked.bases}, but {asked.model} has no bases; omit it or pass --model rgcn")
    relations: dict[str, Any] = relation_options(asked.model, task.graph, num_bases=asked.bases)
    return build_model(
        asked.model,
        in_dim=task.in_dim,
        hidden_dim=asked.hidden,
        out_dim=task.out_dim,
        num_layers=num_layers,
        dropout=asked.dropout,
        norm=asked.norm,
        heads=asked.heads,
        **relations,
    )


def _seeds(asked: SimpleNamespace, task: _Task) -> torch.Tensor:
    """All seeds, or a random sample of the batch size."""
    seeds = task.seeds
    if not len(seeds):
        raise ValueError(f"{task.name} has no {task.seeds_are}, so there is no batch to plan for; choose another set")
    if asked.batch_size is None:
        return seeds
    check_at_least("batch-size", asked.batch_size, 1)
    if asked.batch_size > len(seeds):
        raise ValueError(f"batch-size is {asked.batch_size}, but {task.name} has {len(seeds)} {task.seeds_are}")
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
