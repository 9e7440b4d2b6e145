"""The work of `workbench plan`, `buffer` and `advise`: plans and advice on a data set and a model given by options."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd
import torch

import workbench as wb
from workbench.advisor.advice import MOST_DEVICES, advice_text
from workbench.advisor.machine import HERE, resolve_machine
from workbench.cli.options import FAST_PARTITIONERS
from workbench.core.dataset import Dataset
from workbench.core.errors import CapacityError, PartitionError, check_at_least, check_bytes
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import permutation
from workbench.core.units import format_bytes, parse_bytes
from workbench.datasets.load import load_dataset
from workbench.files import write_file
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.memory.plan import Plan, check_options, plan_micro_batches
from workbench.memory.training_setup import Backend
from workbench.meter.stopwatch import Stopwatch
from workbench.nn.model import build_model, relation_options
from workbench.outofcore.bucket_order import partition_bias
from workbench.outofcore.tuning import BufferPlan, DiskModel, plan_buffer
from workbench.report.terminal import terminal_width, text_table
from workbench.sampling.neighbor import NeighborSampler


def fanouts_of(text: str) -> list[int]:
    """Parses fanouts.

    Args:
        text: integers with commas, input layer first.

    Raises:
        ValueError: anything else.
    """
    try:
        return [int(fanout) for fanout in text.split(",")]
    except ValueError:
        raise ValueError(f"fanouts are {text!r}; write integers with commas, such as 10,25") from None


def data_keywords(asked: SimpleNamespace) -> dict[str, Any]:
    """The keywords of `load_dataset`.

    Args:
        asked: the options of `data_options`, and `seed`.
    """
    return {
        "root": asked.root,
        "scale": asked.scale,
        "undirected": asked.undirected or None,
        "features": asked.features,
        "seed": asked.seed,
    }


def model_keywords(asked: SimpleNamespace, graph: Graph) -> dict[str, Any]:
    """The keywords of `build_model` except the widths of input and output and the number of layers.

    Args:
        asked: the options of `model_options`.
        graph: the graph, whose relations rgcn needs.

    Raises:
        ValueError: bases for a model that has none, or rgcn on a graph without edge types.
    """
    if asked.bases is not None and asked.model != "rgcn":
        raise ValueError(f"bases is {asked.bases}, but {asked.model} has no bases; omit it or pass --model rgcn")
    relations = relation_options(asked.model, graph, num_bases=asked.bases)
    own = {"hidden_dim": asked.hidden, "dropout": asked.dropout, "norm": asked.norm, "heads": asked.heads}
    return {**own, **relations}


def check_features(data: Dataset) -> None:
    """Checks that a data set has features.

    Args:
        data: the data set.

    Raises:
        ValueError: it has none.
    """
    if not data.num_features:
        raise ValueError(f"{data.name} has no features; pass --features degree, or random:WIDTH such as random:128")


_DEFAULTS = {"features": "given", "seed": 0, "dropout": 0.0, "heads": 1}


def call_text(function: str, name: str, keywords: Mapping[str, Any]) -> str:
    """A call as text, without the keywords that have their defaults.

    Args:
        function: such as "wb.load_dataset".
        name: its first argument.
        keywords: its other arguments, whose values have a `repr` that is an expression.

    >>> call_text("wb.load_dataset", "cora", {"root": None, "undirected": True, "seed": 0})
    "wb.load_dataset('cora', undirected=True)"
    """
    given = {key: value for key, value in keywords.items() if value is not None and value != _DEFAULTS.get(key)}
    return f"{function}({', '.join([repr(name), *(f'{key}={value!r}' for key, value in given.items())])})"


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
    memory_bytes, backend = parse_bytes(asked.capacity), _backend(asked)
    sampler = NeighborSampler(_fanouts(asked), seed=asked.seed)
    check_options(memory_bytes, "auto", asked.margin, None, asked.strategy, None)
    task, watch, num_layers = _load(asked), Stopwatch(), len(sampler.fanouts)
    model = _model(asked, task, num_layers)
    with watch.phase("sample"):
        batch = sampler.sample(task.graph, _seeds(asked, task))
    plans, errors = _plans(asked, model, batch, memory_bytes, backend)
    about = [
        f"batch: {batch.num_seeds:,} {task.seeds_are} of {task.name}, fanouts {asked.fanouts}: {batch.num_inputs:,} "
        f"input nodes, {batch.num_edges:,} edges, sampled in {watch.seconds['sample']:.2f} s",
        f"model: {asked.model}, {num_layers} layers, {task.in_dim} → {asked.hidden} → {task.out_dim} channels, "
        f"{asked.optimizer}; estimated for {next(iter(plans.values())).estimates[0].backend}",
    ]
    return [answer(plans), "", *about, "", *comparison(plans), *(f"{name}: {error}" for name, error in errors.items())]


def _fanouts(asked: SimpleNamespace) -> list[int]:
    fanouts = fanouts_of(asked.fanouts)
    if asked.layers not in (None, len(fanouts)):
        raise ValueError(f"layers is {asked.layers}, but {len(fanouts)} fanouts are given; give one per layer")
    return fanouts


def _backend(asked: SimpleNamespace) -> Backend:
    device = asked.device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Backend(device, asked.lstm or "")


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
    data = load_dataset(asked.dataset, **data_keywords(asked))
    return _entities(asked, data) if isinstance(data, KnowledgeGraph) else _nodes(asked, data)


def _entities(asked: SimpleNamespace, data: KnowledgeGraph) -> _Task:
    """The encoder of a knowledge graph: entities have embeddings of the hidden width, edges go both ways."""
    out_dim = asked.hidden if asked.classes is None else asked.classes
    return _Task(
        data.name, data.graph(inverse=True), torch.arange(data.num_entities), "entities", asked.hidden, out_dim
    )


def _nodes(asked: SimpleNamespace, data: Dataset) -> _Task:
    num_classes = data.num_classes if asked.classes is None else asked.classes
    check_features(data)
    if not num_classes:
        raise ValueError(f"{data.name} has no classes; pass --classes, the number of output channels")
    return _Task(data.name, data.graph, data.train_idx, "training nodes", data.num_features, num_classes)


def _model(asked: SimpleNamespace, task: _Task, num_layers: int) -> torch.nn.Module:
    widths = {"in_dim": task.in_dim, "out_dim": task.out_dim, "num_layers": num_layers}
    return build_model(asked.model, **widths, **model_keywords(asked, task.graph))


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
    asked: SimpleNamespace, model: torch.nn.Module, batch: MiniBatch, memory_bytes: int, backend: Backend
) -> tuple[dict[str, Plan], dict[str, Exception]]:
    """Plans and errors by partitioner; raises the first error if all failed."""
    plans, errors = {}, {}
    for method in FAST_PARTITIONERS if asked.method == "all" else [asked.method]:
        try:
            plans[method] = plan_micro_batches(
                model,
                batch,
                memory=memory_bytes,
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


def answer(plans: Mapping[str, Plan]) -> str:
    """Names the smallest number of micro-batches that fits, and the partitioner.

    Args:
        plans: by partitioner, at least one, all of one batch and capacity.
    """
    best = min(plans.values(), key=_quality)
    capacity, peak = format_bytes(best.memory_bytes), format_bytes(best.peak_bytes)
    if best.num_parts == 1:
        return f"The whole batch fits into {capacity}: its training step needs an estimated {peak}."
    parts = f"{best.num_parts} micro-batches ({_reason(best, list(plans.values()))})"
    reads = f"each input node is read {best.redundancy.ratio:.2f} times on average"
    return f"The batch fits into {capacity} as {parts}: the largest needs an estimated {peak}, and {reads}."


def _quality(plan: Plan) -> tuple[int, int]:
    """Less is better."""
    return plan.num_parts, plan.peak_bytes


def _reason(best: Plan, plans: Sequence[Plan]) -> str:
    """Why the best of several plans is the best."""
    name, fewest = best.method_name, [plan for plan in plans if plan.num_parts == best.num_parts]
    if len(plans) == 1:
        return f"partitioned by {name}"
    if len(fewest) == 1:
        return f"{name} needs the fewest"
    tied = "the same for all methods" if len(fewest) == len(plans) else f"{len(fewest)} methods need the fewest"
    smallest = sum(plan.peak_bytes == best.peak_bytes for plan in fewest) == 1
    return f"{tied}; {name} has the smallest peak" if smallest else f"{tied}; shown is {name}"


def comparison(plans: Mapping[str, Plan]) -> list[str]:
    """A table of parts, peak by term, redundancy and planning time, with one column per partitioner, the best first.

    Args:
        plans: by partitioner, at least one, all of one batch and capacity.
    """
    made = sorted(plans.values(), key=_quality)
    largest = [max(plan.estimates, key=lambda estimate: estimate.peak_bytes) for plan in made]
    shares = [plan.redundancy.largest / plan.redundancy.full_inputs for plan in made]
    terms = [term for term in largest[0].terms if any(estimate.terms[term] for estimate in largest)]
    rows = {
        "micro-batches": [plan.num_parts for plan in made],
        "largest peak": [format_bytes(plan.peak_bytes) for plan in made],
        "peak phase": [estimate.phase for estimate in largest],
        **{f"  {term}": [format_bytes(estimate.terms[term]) for estimate in largest] for term in terms},
        "input nodes, sum / batch": [f"{plan.redundancy.ratio:.3f}" for plan in made],
        "input nodes, largest / batch": [f"{share:.3f}" for share in shares],
        "planning seconds": [f"{sum(plan.seconds.values()):.2f}" for plan in made],
        **{f"  {stage}": [f"{plan.seconds[stage]:.2f}" for plan in made] for stage in made[0].seconds},
        "part counts tried": [" ".join(str(number) for number, _ in plan.tried) for plan in made],
    }
    cells = [(name, *map(str, values)) for name, values in rows.items()]
    table = pd.DataFrame(cells, columns=["", *(plan.method_name for plan in made)])
    return _fitted(table)


def _fitted(table: pd.DataFrame) -> list[str]:
    """The columns that the terminal has room for, and the names of the others."""
    width, kept = terminal_width(), table.shape[1]
    lines = text_table(table)
    while width is not None and max(map(len, lines)) > width and kept > 2:
        kept -= 1
        lines = text_table(table.iloc[:, :kept])
    beyond = ", ".join(table.columns[kept:])
    return [*lines, "", f"Not shown, beyond this terminal's width: {beyond}"] if beyond else lines


_LIMITS = {
    "rows": "a partition is one disk read",
    "edges": "an edge bucket is one disk read",
    "max_partitions": "the upper bound, --max-partitions or the number of nodes",
    "memory": "larger partitions do not fit, so they are smaller than one disk read",
}


def describe_buffer(asked: Mapping[str, Any]) -> list[str]:
    """Tunes a buffer and describes it.

    Args:
        asked: the options of `workbench buffer` by name.

    Returns:
        Lines to print: the answer, and a table.

    Raises:
        ValueError: invalid options.
        CapacityError: no buffer fits.
    """
    disk = DiskModel(check_bytes("bandwidth", asked["bandwidth"]), asked["disk_reads"])
    plan = plan_buffer(
        asked["nodes"],
        check_bytes("row", asked["row"]),
        num_edges=asked["edges"],
        edge_bytes=check_bytes("edge", asked["edge"]),
        memory=asked["memory"],
        working_bytes=asked["working"],
        disk_read_bytes=disk.read_bytes,
        learnt=asked["learnt"],
        state_bytes=None if asked["state"] is None else check_bytes("state", asked["state"]),
        method=asked["method"],
        max_partitions=asked["max_partitions"],
        prefetch=asked["prefetch"],
    )
    return [_answer(plan, str(asked["memory"])), "", *_table(plan, disk)]


def _answer(plan: BufferPlan, memory: str) -> str:
    used = format_bytes(plan.peak_bytes)
    if plan.in_memory:
        return f"Everything fits into {memory}: all rows and edges need {used} with the working memory."
    written = f" and writes {format_bytes(plan.write_bytes)}" if plan.write_bytes else ""
    return (
        f"{plan.capacity} of {plan.num_partitions} partitions fit into {memory} ({used}), in {plan.num_logical} "
        f"logical groups: an epoch reads {format_bytes(plan.read_bytes)}{written}."
    )


def _table(plan: BufferPlan, disk: DiskModel) -> list[str]:
    order = plan.order()
    moved = disk.seconds(plan.read_bytes + plan.write_bytes, plan.num_operations)
    rows = {
        "partitions (p)": f"{plan.num_partitions:,}: {_LIMITS[plan.limit]}",
        "in the buffer (c)": f"{plan.capacity:,}",
        "logical groups (l)": f"{plan.num_logical:,}",
        "partition": format_bytes(plan.partition_bytes),
        "edge bucket, mean": format_bytes(plan.bucket_bytes),
        "memory": f"{format_bytes(plan.peak_bytes)}, of which {format_bytes(plan.working_bytes)} beside the buffer"
        + (", with what is read ahead" if plan.prefetch and not plan.in_memory else ""),
        "read per epoch": format_bytes(plan.read_bytes),
        "written per epoch": format_bytes(plan.write_bytes),
        "I/O per epoch, modelled": f"{moved:,.1f} s at {format_bytes(disk.bytes_per_second)}/s and "
        f"{disk.reads_per_second:,.0f} operations/s (one disk read: {format_bytes(disk.read_bytes)})",
        f"edge permutation bias, {plan.method}": f"{partition_bias(order):.3f} with {order.num_states} states",
    }
    return text_table(pd.DataFrame(rows.items(), columns=["", "value"]))


class Advised(NamedTuple):
    """Advice, and the expression that makes its model.

    Args:
        advice: the advice.
        model: of the model.
    """

    advice: wb.advisor.Advice
    model: str


def advise_on(asked: SimpleNamespace, report: Callable[[str], object]) -> Advised:
    """Loads the data set, builds the model and prices the configurations.

    Args:
        asked: the options of `workbench advise` by name.
        report: called with what is being done, one line each.

    Raises:
        ValueError: invalid options (checked before the data set is loaded), a data set without features, classes or
            training nodes, or rgcn on a graph without edge types.
        OSError: the machine's file, or the data set, can't be read.
        CapacityError: parameters and gradients alone exceed the memory.
    """
    sampler = wb.NeighborSampler(fanouts_of(asked.fanouts), seed=asked.seed)
    budgets = {name: getattr(asked, name) for name in ("memory", "host_memory") if getattr(asked, name) is not None}
    for name, value in budgets.items():
        check_bytes(name.replace("_", "-"), value)
    check_at_least("batch-size", asked.batch_size, 1)
    check_at_least("devices", asked.devices, 1, most=MOST_DEVICES)
    check_at_least("batches", asked.batches, 2)
    if asked.machine == HERE:
        report("measuring this machine")
    machine = resolve_machine(asked.machine)
    report(f"loading {asked.dataset}")
    data = wb.load_dataset(asked.dataset, **data_keywords(asked))
    _check(data, asked.dataset)
    widths = {"in_dim": data.num_features, "hidden_dim": asked.hidden, "out_dim": data.num_classes}
    options = {**widths, "num_layers": len(sampler.fanouts), **model_keywords(asked, data.graph)}
    advice = wb.advise(
        data,
        wb.build_model(asked.model, **options),
        machine=machine,
        sampler=sampler,
        batch_size=asked.batch_size,
        devices=asked.devices,
        optimizer=asked.optimizer,
        num_batches=asked.batches,
        seed=asked.seed,
        report=report,
        **budgets,
    )
    return Advised(advice, call_text("wb.build_model", asked.model, options))


def _check(data: wb.Dataset | KnowledgeGraph, name: str) -> None:
    if isinstance(data, KnowledgeGraph):
        raise ValueError(
            f"{name} is a knowledge graph, which has no labels of nodes; `workbench plan` plans its batches"
        )
    check_features(data)
    if data.x.dtype != torch.float32:
        raise ValueError(
            f"{name} has features of {data.x.dtype}, but the model's parameters are torch.float32; pass --features "
            "degree, or random:WIDTH such as random:128, or call wb.advise with a model of that type"
        )
    if not data.num_classes:
        raise ValueError(f"{name} has no classes to train on; choose a set with labels from `workbench data list`")


def table_and_sentences(advice: wb.advisor.Advice, all_rows: bool) -> list[str]:
    """Lines to print.

    Args:
        advice: the advice.
        all_rows: show all configurations, not the first dozen.
    """
    rows = {"rows": len(advice.priced)} if all_rows else {}
    return advice_text(advice, **rows, more="--all shows them").splitlines()


def check_folder(file: Path) -> None:
    """Checks that a file can be written before any work is done.

    Args:
        file: that will be written.

    Raises:
        ValueError: its folder does not exist.
    """
    if not file.absolute().parent.is_dir():
        raise ValueError(f"code is {file}, but there is no folder {file.parent}; create it, or choose another file")


def save_program(advised: Advised, file: Path) -> None:
    """Writes the program of the best configuration.

    Args:
        advised: the advice and the expression of its model.
        file: to create or replace.

    Raises:
        CapacityError: no configuration fits.
        OSError: the file can't be written.
    """
    write_file(file, advised.advice.code(model=advised.model))
