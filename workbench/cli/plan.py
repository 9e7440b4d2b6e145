"""`workbench plan`: into how many micro-batches a batch must be cut to fit."""

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.cli.tables import table

# Named here for torch not to be imported where other commands are run.
KINDS = ("sage-mean", "sage-gcn", "sage-pool", "sage-lstm", "gcn", "gin", "gat")
METHODS = (
    "range",
    "random",
    "metis",
    "reg",
    "reg_unweighted",
    "reg_normalized",
    "star",
    "star_refined",
    "hypergraph",
    "hypergraph_deep",
    "hypergraph_refined",
)
QUICK = tuple(name for name in METHODS if not name.startswith("hypergraph"))
OPTIMIZERS = ("adam", "adamw", "sgd")
STRATEGIES = ("even", "split")
LSTMS = ("onednn", "native", "cudnn")


def add(areas: argparse._SubParsersAction) -> None:
    """Add the command to those of `workbench`."""
    what = "how many micro-batches fit into a memory capacity, by which method, and what they take; nothing is trained"
    plan = areas.add_parser("plan", help=what, description=what[0].upper() + what[1:] + ".")
    plan._negative_number_matcher = re.compile(r"-\d[\d,-]*$")  # fanouts such as -1,5 are no option
    plan.add_argument("--dataset", required=True, metavar="NAME", help="set to load, see `workbench data list`")
    plan.add_argument("--root", help="data folder (default: WORKBENCH_DATA, else ~/.local/share/workbench)")
    plan.add_argument("--scale", type=float, help="size of a synthetic-* set, in (0, 1] (default: its own)")
    plan.add_argument("--undirected", action="store_true", help="add reverse edges")
    plan.add_argument("--features", default="given", help="given, degree or random:WIDTH (default: given)")

    plan.add_argument("--model", default="sage-mean", choices=KINDS, help="of layers (default: sage-mean)")
    plan.add_argument("--layers", type=int, help="how many (default: one a fanout)")
    plan.add_argument("--hidden", type=int, default=256, help="channels between layers (default: 256)")
    plan.add_argument("--classes", type=int, help="channels of the result (default: the classes of the set)")
    plan.add_argument("--heads", type=int, default=1, help="of gat")
    plan.add_argument("--dropout", type=float, default=0.0)
    plan.add_argument("--norm", choices=("batch", "layer"))
    plan.add_argument("--optimizer", default="adam", choices=OPTIMIZERS, help="default: adam")

    plan.add_argument("--fanouts", required=True, metavar="A,B,…", help="input layer first; -1 means all neighbours")
    plan.add_argument("--batch-size", type=int, help="random training nodes (default: all training nodes)")
    plan.add_argument("--capacity", required=True, help="memory of the device, such as 8GiB or 500MB")
    plan.add_argument("--margin", type=float, default=0.02, help="share that estimates may be too low (default: 0.02)")
    plan.add_argument(
        "--method",
        default="auto",
        choices=("auto", "fast", *METHODS, "all"),
        help="of partitioning; all: those that take seconds, one beside the other (default: auto)",
    )
    plan.add_argument(
        "--strategy", default="even", choices=STRATEGIES, help="split: cut only what overflows (default: even)"
    )
    plan.add_argument("--seed", type=int, default=0, help="of batch, samples and partitions")
    plan.add_argument(
        "--device", choices=("cpu", "cuda"), help="whose kernels to price; a GPU need not be here (default: what is)"
    )
    plan.add_argument("--lstm", choices=LSTMS, help="whose sage-lstm to price (default: what torch would run here)")
    plan.set_defaults(run=run)


def run(asked: argparse.Namespace) -> list[str]:
    """Load, sample, plan and tell."""
    from workbench.core.stopwatch import Stopwatch
    from workbench.core.units import parse_bytes
    from workbench.memory.plan import check_options

    capacity, fanouts, kernels = parse_bytes(asked.capacity), _fanouts(asked), _kernels(asked)
    check_options(capacity, "auto", asked.margin, None, asked.strategy, None)
    watch = Stopwatch()
    data = _load(asked)
    model = _model(asked, data, len(fanouts))
    batch = _sample(asked, data, fanouts, watch)
    plans, failed = _plans(asked, model, batch, capacity, kernels)
    about = [
        f"batch: {batch.num_seeds:,} training nodes of {data.name}, fanouts {asked.fanouts}: {batch.num_inputs:,} "
        f"input nodes, {batch.num_edges:,} edges, sampled in {watch.seconds['sample']:.2f} s",
        f"model: {asked.model}, {len(fanouts)} layers, {data.num_features} → {asked.hidden} → {_classes(asked, data)} "
        f"channels, {asked.optimizer}; priced for {next(iter(plans.values())).estimates[0].kernels}",
    ]
    return [answer(plans), "", *about, "", *columns(plans), *failed]


def _fanouts(asked: argparse.Namespace) -> list[int]:
    from workbench.sampling.neighbor import NeighborSampler

    try:
        fanouts = [int(fanout) for fanout in asked.fanouts.split(",")]
    except ValueError:
        raise ValueError(f"fanouts are {asked.fanouts!r}; write whole numbers with commas, such as 10,25") from None
    NeighborSampler(fanouts, seed=asked.seed)  # checks both before the set is loaded
    if asked.layers not in (None, len(fanouts)):
        raise ValueError(f"layers is {asked.layers}, but {len(fanouts)} fanouts are given; give one a layer")
    return fanouts


def _load(asked: argparse.Namespace) -> Any:
    from workbench.core.dataset import Dataset
    from workbench.datasets.load import load_dataset

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


def _classes(asked: argparse.Namespace, data: Any) -> int:
    return data.num_classes if asked.classes is None else asked.classes


def _model(asked: argparse.Namespace, data: Any, num_layers: int) -> Any:
    from workbench.nn.model import build_model

    if not data.num_features:
        raise ValueError(f"{data.name} has no features; pass --features random:128, say, or --features degree")
    if not _classes(asked, data):
        raise ValueError(f"{data.name} has no classes; pass --classes, the channels of the result")
    return build_model(
        asked.model,
        in_dim=data.num_features,
        hidden_dim=asked.hidden,
        out_dim=_classes(asked, data),
        num_layers=num_layers,
        dropout=asked.dropout,
        norm=asked.norm,
        heads=asked.heads,
    )


def _sample(asked: argparse.Namespace, data: Any, fanouts: list[int], watch: Any) -> Any:
    from workbench.core.errors import check_at_least
    from workbench.core.randomness import permutation
    from workbench.sampling.neighbor import NeighborSampler

    seeds = data.train_idx
    if not len(seeds):
        raise ValueError(f"{data.name} has no training nodes, so there is no batch to plan for; choose another set")
    if asked.batch_size is not None:
        check_at_least("batch-size", asked.batch_size, 1)
        if asked.batch_size > len(seeds):
            raise ValueError(f"batch-size is {asked.batch_size}, but {data.name} has {len(seeds)} training nodes")
        seeds = seeds[permutation(asked.seed, len(seeds))[: asked.batch_size]]
    with watch.phase("sample"):
        return NeighborSampler(fanouts, seed=asked.seed).sample(data.graph, seeds)


def _kernels(asked: argparse.Namespace) -> Any:
    import torch

    from workbench.memory.kernels import Kernels

    here = torch.cuda.is_available()
    device = asked.device or ("cuda" if here else "cpu")
    cudnn = here and device == "cuda" and torch.backends.cudnn.is_available()
    return Kernels(device, asked.lstm or ("cudnn" if cudnn else ""))


def _plans(
    asked: argparse.Namespace, model: Any, batch: Any, capacity: int, kernels: Any
) -> tuple[dict[str, Any], list[str]]:
    """Plans by method, and what is to be said of methods that failed; an error if all did."""
    from workbench.core.errors import CapacityError, PartitionError
    from workbench.memory.plan import plan_micro_batches

    plans, errors = {}, {}
    for method in QUICK if asked.method == "all" else [asked.method]:
        try:
            plans[method] = plan_micro_batches(
                model,
                batch,
                capacity_bytes=capacity,
                method=method,
                optimizer=asked.optimizer,
                seed=asked.seed,
                margin=asked.margin,
                kernels=kernels,
                strategy=asked.strategy,
            )
        except (CapacityError, ImportError, PartitionError) as error:
            errors[method] = error
    if not plans:
        raise next(iter(errors.values()))
    return plans, [f"{method}: {error}" for method, error in errors.items()]


def answer(plans: Mapping[str, Any]) -> str:
    """One sentence: how many micro-batches, by which method.

    Args:
        plans: by method, one or more, of one batch and capacity.
    """
    from workbench.core.units import format_bytes

    best = min(plans.values(), key=lambda plan: (plan.num_parts, plan.peak_bytes))
    capacity, peak = format_bytes(best.capacity_bytes), format_bytes(best.peak_bytes)
    if best.num_parts == 1:
        return f"The batch fits into {capacity} whole: its training step is expected to need {peak}."
    return (
        f"The batch fits into {capacity} as {best.num_parts} micro-batches ({_why(best, list(plans.values()))}): the "
        f"largest is expected to need {peak}, and input nodes are read {best.redundancy.ratio:.2f} times on average."
    )


def _why(best: Any, plans: Sequence[Any]) -> str:
    """What is told of one plan of several, and why of it."""
    name, fewest = best.method_name, [plan for plan in plans if plan.num_parts == best.num_parts]
    if len(plans) == 1:
        return f"partitioned by {name}"
    if len(fewest) == 1:
        return f"{name} needs the fewest"
    who = "all methods need as many" if len(fewest) == len(plans) else f"{len(fewest)} methods need the fewest"
    smallest = sum(plan.peak_bytes == best.peak_bytes for plan in fewest) == 1
    return f"{who}, and {name} has the smallest peak" if smallest else f"{who}; these are by {name}"


def columns(plans: Mapping[str, Any]) -> list[str]:
    """A table with a column a method.

    Args:
        plans: by method, one or more, of one batch and capacity.
    """
    from workbench.core.units import format_bytes

    made = list(plans.values())
    largest = [max(plan.estimates, key=lambda estimate: estimate.peak_bytes) for plan in made]
    terms = [term for term in largest[0].terms if any(estimate.terms[term] for estimate in largest)]
    rows = {
        "micro-batches": [str(plan.num_parts) for plan in made],
        "largest one's peak": [format_bytes(plan.peak_bytes) for plan in made],
        "in": [estimate.phase for estimate in largest],
        **{f"  {term}": [format_bytes(estimate.terms[term]) for estimate in largest] for term in terms},
        "input nodes, all / batch": [f"{plan.redundancy.ratio:.3f}" for plan in made],
        "largest / batch": [f"{plan.redundancy.largest / plan.redundancy.full_inputs:.3f}" for plan in made],
        "seconds": [f"{sum(plan.seconds.values()):.2f}" for plan in made],
        **{f"  {stage}": [f"{plan.seconds[stage]:.2f}" for plan in made] for stage in made[0].seconds},
        "numbers tried": [" ".join(str(number) for number, _ in plan.tried) for plan in made],
    }
    return table(("", *(plan.method_name for plan in made)), [(name, *cells) for name, cells in rows.items()])
