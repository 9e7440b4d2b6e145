"""Cooperative Minibatching, Figure 3: work against batch size. Figure 6 is a view of it."""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import mean
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

import workbench as wb
from experiments.cooperative.samplers import SamplerName, build_sampler
from experiments.cooperative.work_curves import (
    CASE,
    ORDER,
    concave,
    fewer_inputs,
    more_concave,
    more_concave_where_small,
    never_rises,
    savings,
    work_means,
)
from workbench.core.randomness import Purpose, permutation, stream
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding, groups_with
from workbench.experiment.interval import expectation_agrees
from workbench.experiment.title import Title

SeedsOf = Callable[[Tensor, int], Tensor]


class Config(DataPointConfig):
    """Batches of several sizes by one sampler.

    Args:
        task: "node", batches of training nodes; or "edge", batches of edges, each with a negative pair of its source
            and a node that it has no edge to.
        sampler: name in the paper.
        fanouts: neighbours per layer, input layer first.
        batch_sizes: numbers of training nodes or edges; those that the data set does not have are left out.
        permutations: number of random orders whose prefixes are the batches.
        singles: number of batches of one item, per permutation, that the others' work is compared with.
        compared_size: batch size at which samplers are compared in concavity.
        theorem: also compute the expected number of inputs by theorem 3.2, for samplers with independent rows and
            batches of nodes.
    """

    task: Literal["node", "edge"]
    sampler: SamplerName
    fanouts: tuple[int, ...] = Field(min_length=1)
    batch_sizes: tuple[PositiveInt, ...] = Field(min_length=2)
    permutations: int = Field(ge=2)
    singles: PositiveInt
    compared_size: PositiveInt
    theorem: bool = False


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    graph = data.graph.to(config.device)
    sampler = build_sampler(config.sampler, config.fanouts, seed=config.seed)
    items = data.train_idx.to(config.device) if config.task == "node" else undirected_pairs(graph)
    sizes = [size for size in config.batch_sizes if size <= len(items)]
    seeds_of = None if config.task == "node" else partial(endpoints, graph)
    alone = single_inputs(config, graph, items, sampler, seeds_of)
    expected = expected_inputs(config, graph, items, sampler, sizes)
    for work in wb.cooperative.measure_work(
        graph,
        items,
        sampler=sampler,
        batch_sizes=sizes,
        repetitions=config.permutations,
        seeds_of=seeds_of,
        seed=config.seed,
    ):
        yield {
            "batch_size": work.batch_size,
            "permutation": work.repetition,
            "num_nodes": graph.num_nodes,
            "num_seeds": work.num_seeds,
            "num_inputs": work.num_inputs,
            "num_edges": sum(work.edges),
            "alone_inputs": mean(alone[work.repetition :: config.permutations]),
            "expected_inputs": expected.get((work.repetition, work.batch_size)),
        }


def single_inputs(
    config: Config, graph: wb.Graph, items: Tensor, sampler: wb.Sampler, seeds_of: SeedsOf | None
) -> list[int]:
    """The number of inputs of batches of one item, each another one."""
    drawn = items[permutation(stream(config.seed, Purpose.SPLIT), len(items)).to(items.device)]
    ones = enumerate(drawn[: config.singles * config.permutations].split(1))
    seeds = ((step, one if seeds_of is None else seeds_of(one, step)) for step, one in ones)
    return [sampler.sample(graph, one, step=step).num_inputs for step, one in seeds]


def expected_inputs(
    config: Config, graph: wb.Graph, items: Tensor, sampler: wb.Sampler, sizes: list[int]
) -> dict[tuple[int, int], float]:
    """The expected number of inputs by permutation and batch size; empty if it is not asked for, or not known."""
    if not config.theorem or config.task == "edge" or not sampler.rows_are_independent:
        return {}
    curve = partial(wb.cooperative.work_curve, graph, items, sampler=sampler, batch_sizes=sizes)
    numbers = range(config.permutations)
    return {(n, size): value for n in numbers for size, value in zip(sizes, curve(step=n).tolist(), strict=True)}


def undirected_pairs(graph: wb.Graph) -> Tensor:
    """Every edge of an undirected graph once, int64 [edges, 2], without self-loops."""
    src, dst = (
        graph.indices.long(),
        torch.arange(graph.num_nodes, device=graph.device).repeat_interleave(
            graph.in_degrees(), output_size=graph.num_edges
        ),
    )
    return torch.stack([src, dst], 1)[src < dst]


def endpoints(graph: wb.Graph, pairs: Tensor, step: int) -> Tensor:
    """The nodes of some pairs and of their negative pairs."""
    return wb.links.Negatives(1, avoid_edges=True).draw(graph, *pairs.T, step=step).seeds


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with the quantity of each panel: input nodes per seed for node prediction, input nodes for edges."""
    node, edge = table.task == "node", table.task == "edge"
    return table.assign(
        node_inputs_per_seed=(table.num_inputs / table.num_seeds).where(node), edge_inputs=table.num_inputs.where(edge)
    )


PANELS = ["node_inputs_per_seed", "edge_inputs"]


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows = shown(table)
    saved: Any = savings(rows).groupby([*CASE], sort=False).saved.mean()
    by_sampler = {sampler: saved[saved.index.get_level_values("sampler") == sampler] for sampler in ORDER}
    of = {f"sampler{place}": found for place, found in enumerate(by_sampler.values()) if len(found)}
    told = ", ".join(f"{sampler} {{sampler{i}:.0%}}" for i, sampler in enumerate(by_sampler) if f"sampler{i}" in of)
    return Title(
        f"Work saved by batches of {{size:,.0f}}: {told}", size=rows.groupby([*CASE]).compared_size.first(), **of
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    return draw_panels(shown(table), PANELS, title(table, reported))


def draw_panels(rows: pd.DataFrame, panels: list[str], told: Title) -> Any:
    """Draw the panels of Figure 3 or 6, with 95 % intervals of the means."""
    from workbench.plots.lines import lines

    return lines(
        pd.concat([work_means(rows.dropna(subset=[panel]), [panel]) for panel in panels]),
        x="batch_size",
        log_x=True,
        y=panels,
        log_y=True,
        spread={panel: (f"{panel}_low", f"{panel}_high") for panel in panels},
        group="sampler",
        facet="dataset",
        title=told.text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    found = [
        never_rises(
            "work-per-seed-falls",
            "node prediction: the input nodes per seed do not rise with the batch size (theorem 3.1)",
            rows.query("task == 'node'"),
            "node_inputs_per_seed",
        ),
        concave(
            "work-is-concave",
            "edge prediction: the input nodes are a concave function of the batch size (theorem 3.2)",
            rows.query("task == 'edge'"),
            "edge_inputs",
        ),
        *more_concave(table),
        *more_concave_where_small(table),
        *fewer_inputs(table),
    ]
    return [*found, _theorem(table)] if table.expected_inputs.notna().any() else found


def _theorem(table: pd.DataFrame) -> Finding:
    return expectation_agrees(
        "theorem-is-exact",
        "the sampled batches have the expected number of inputs that theorem 3.2 gives from one sample of all seeds",
        groups_with(table, "expected_inputs", ["dataset", "task", "sampler"]),  # the theorem is not about the others
        value="num_inputs",
        expected="expected_inputs",
        by=["dataset", "sampler"],
        along="batch_size",
        run="permutation",
        margin=claims.MARGIN,
    )


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """The fraction of the work of single items that a batch saves, by sampler in the paper's order of concavity; the
    paper prints no values."""
    saved = savings(table).pivot_table("saved", ["dataset", "task"], "sampler")
    return saved[[name for name in ORDER if name in saved]].reset_index()
