"""Cooperative Minibatching, theorem 3.3: density of the subgraphs that batches of nodes induce, by batch size."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import fmean as mean
from typing import Annotated, Any, Literal

import pandas as pd
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

import workbench as wb
from workbench.core.randomness import Purpose, permutation, stream, uniform
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding, groups_with
from workbench.experiment.interval import decided_within, expectation_agrees, mean_intervals
from workbench.experiment.title import Title

CASE = ["dataset", "method"]
AGREES = 0.05
"""Relative error up to which the sums over a series of subsets tell the expectation, as skewed as they are."""
Share = Annotated[float, Field(gt=0, le=1)]


class Config(DataPointConfig):
    """Subgraphs of several sizes by one method.

    Args:
        method: "uniform", a uniform subset of the nodes; "cluster", the union of uniformly drawn clusters of METIS, as
            Cluster-GCN and GNNAutoScale draw them; "node", a subset with probabilities by degree, as GraphSAINT's node
            sampler draws it; "walk", the nodes of random walks of two steps, as its random-walk sampler draws them.
        shares: fractions of all nodes, of all clusters, or (for "walk") of all nodes as the walks' first nodes.
        num_clusters: for "cluster".
        permutations: number of random orders. One of nodes or clusters is cut into batches of every size, and a row is
            the mean over these batches of an epoch; for "node" and "walk" it is of one batch.
    """

    method: Literal["uniform", "cluster", "node", "walk"]
    shares: tuple[Share, ...] = Field(min_length=2)
    num_clusters: PositiveInt
    permutations: int = Field(ge=2)


def run(config: Config) -> Iterator[dict[str, Any]]:
    graph = config.dataset.load().graph.to(config.device)
    for number in range(config.permutations):
        for share in config.shares:
            counts = METHODS[config.method](graph, share, number, config)
            yield {
                "share": share,
                "permutation": number,
                "num_batches": len(counts),
                "batch_size": mean(size for size, _ in counts),
                "num_edges": mean(edges for _, edges in counts),
                "density": mean(edges / size for size, edges in counts),
                "expected_edges": expected_edges(graph, share, config),
            }


Counts = Sequence[tuple[int, int]]
"""Nodes and edges of batches."""


def uniform_batches(graph: wb.Graph, share: float, number: int, config: Config) -> Counts:
    """A random permutation of the nodes, cut into batches."""
    return inside(graph, _batch_of(config, number, graph.num_nodes, share))


def cluster_batches(graph: wb.Graph, share: float, number: int, config: Config) -> Counts:
    """A random permutation of the clusters, cut into batches."""
    batch_of = _batch_of(config, number, config.num_clusters, share)
    return inside(graph, batch_of[clusters(graph, config.num_clusters, config.seed)])


def nodes_by_degree(graph: wb.Graph, share: float, number: int, config: Config) -> Counts:
    """Nodes drawn without replacement with probabilities ∝ Σ_v A_vu / d_v², GraphSAINT's equation for node samplers."""
    per_edge = graph.in_degrees().double().pow(-2).repeat_interleave(graph.in_degrees())
    weight = torch.zeros(graph.num_nodes, dtype=torch.float64, device=graph.device)
    weight.index_add_(0, graph.indices, per_edge)
    key = stream(config.seed, Purpose.SHUFFLE, number)
    times = -uniform(key, torch.arange(graph.num_nodes, device=graph.device)).log() / weight
    nodes = times.argsort()[: _count(share, graph.num_nodes)]
    return [(len(nodes), wb.sampling.induced_edges(graph, nodes))]


def walk_nodes(graph: wb.Graph, share: float, number: int, config: Config) -> Counts:
    """The nodes of walks of two steps from a uniform subset; one ends at a node without neighbours."""
    roots = (_batch_of(config, number, graph.num_nodes, share) == 0).nonzero()[:, 0].to(graph.device)
    visited, degrees = [roots], graph.in_degrees()
    for step in range(2):
        at = visited[-1]
        variates = uniform(stream(config.seed, Purpose.SAMPLING, number, step), roots)
        edge = graph.indptr[at] + (variates * degrees[at]).long()
        edge = edge.clamp(max=graph.num_edges - 1)  # of a node without neighbours there may be none
        visited.append(graph.indices[edge].where(degrees[at] > 0, at))
    nodes = torch.cat(visited).unique()
    return [(len(nodes), wb.sampling.induced_edges(graph, nodes))]


METHODS: Mapping[str, Callable[[wb.Graph, float, int, Config], Counts]] = {
    "uniform": uniform_batches,
    "cluster": cluster_batches,
    "node": nodes_by_degree,
    "walk": walk_nodes,
}


def expected_edges(graph: wb.Graph, share: float, config: Config) -> float | None:
    """|E| · b (b − 1) / (n (n − 1)) of theorem 3.3; for q of p clusters, the same of the edges between clusters."""
    if config.method not in ("uniform", "cluster"):
        return None
    whole = config.num_clusters if config.method == "cluster" else graph.num_nodes
    kept = edges_inside(graph, whole, config.seed) if config.method == "cluster" else 0
    drawn = _count(share, whole)
    return kept * drawn / whole + (graph.num_edges - kept) * drawn * (drawn - 1) / (whole * (whole - 1))


@lru_cache(maxsize=1)
def clusters(graph: wb.Graph, num_clusters: int, seed: int) -> Tensor:
    """The cluster of every node."""
    return wb.partition_graph(graph.to("cpu"), num_clusters, seed=seed)


@lru_cache(maxsize=1)
def edges_inside(graph: wb.Graph, num_clusters: int, seed: int) -> int:
    """Number of edges inside of clusters."""
    return sum(edges for _, edges in inside(graph, clusters(graph, num_clusters, seed)))


def inside(graph: wb.Graph, part: Tensor) -> Counts:
    """Nodes of every part, and edges between them; nodes of part −1 are in none."""
    part = part.to(graph.device)
    destination = part.repeat_interleave(graph.in_degrees())
    edges = destination[(part[graph.indices] == destination) & (destination >= 0)]
    sizes = part[part >= 0].bincount()
    return [*zip(sizes.tolist(), edges.bincount(minlength=len(sizes)).tolist(), strict=True)]


def _batch_of(config: Config, number: int, total: int, share: float) -> Tensor:
    """The batch of every item in a random order [total]; −1 for those of the incomplete last one."""
    size = _count(share, total)
    batch = torch.arange(total) // size
    batch[batch == total // size] = -1
    return batch[permutation(stream(config.seed, Purpose.SHUFFLE, number), total)]


def _count(share: float, total: int) -> int:
    return max(1, round(share * total))


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = mean_intervals(table, value="density", by=[*CASE, "share"]).sort_values("share").groupby(CASE).density
    text = "From the smallest to the largest share the edges per node rise in {risen} cases"
    return Title(text, risen=rows.last() > rows.first())


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows = mean_intervals(table, value="density", by=[*CASE, "share"])
    theory: Any = (
        table.dropna(subset=["expected_edges"]).groupby([*CASE, "share"])[["expected_edges", "batch_size"]].mean()
    )
    theory = theory.assign(density=theory.expected_edges / theory.batch_size).reset_index()
    return lines(
        pd.concat([rows, theory.assign(method=theory.method + ", expected")]),
        x="share",
        log_x=True,
        y="density",
        log_y=True,
        spread={"density": ("low", "high")},
        group="method",
        facet="dataset",
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rising = [
        decided_within(
            f"{method}-density-never-falls",
            f"{SAID[method]}: the edges per node do not fall with the batch size",
            _changes(rows),
            value="change",
            by=["dataset", "shares"],
            least=0.0,
            margin=claims.MARGIN,
        )
        for method, rows in _by_method(table)
    ]
    parts: Any = table[table.share < 1]  # the whole graph is as expected
    theory = groups_with(parts, "expected_edges", ["method"])
    expected = [
        expectation_agrees(
            f"{method}-as-expected",
            f"{SAID[method]}: the number of edges has the expectation of the formula, within {AGREES:.0%}",
            rows,
            value="num_edges",
            expected="expected_edges",
            by=["dataset"],
            along="share",
            run="permutation",
            margin=AGREES,
        )
        for method, rows in _by_method(theory)
    ]
    return [*rising, *expected]


SAID = {
    "uniform": "uniform subsets of the nodes",
    "cluster": "unions of METIS clusters (Cluster-GCN)",
    "node": "subsets with probabilities by degree (GraphSAINT)",
    "walk": "nodes of random walks (GraphSAINT)",
}


def _by_method(table: pd.DataFrame) -> Any:
    return table.groupby("method", sort=False)


def _changes(table: pd.DataFrame) -> pd.DataFrame:
    """Differences in density between successive shares, relative to the density of the largest."""
    rows = []
    runs: Any = table.groupby(["dataset", "permutation"], sort=False)
    for (dataset, _), run in runs:
        of_share = run.set_index("share").density.sort_index()
        rows += [
            (dataset, f"{a:g} → {b:g}", (y - x) / of_share.iloc[-1]) for (a, x), (b, y) in pairwise(of_share.items())
        ]
    return pd.DataFrame(rows, columns=["dataset", "shares", "change"])


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Measured edges per expected edge of the formulas, by data set, method and share; the paper prints no values."""
    rows = table.assign(ratio=table.num_edges / table.expected_edges).dropna(subset=["ratio"])
    return rows.pivot_table("ratio", CASE, "share").reset_index()
