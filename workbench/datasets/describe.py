"""Statistics of data sets, for `workbench data info` and `workbench data list`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from workbench.core.dataset import Dataset
from workbench.core.units import format_bytes
from workbench.datasets.catalog import known_sets
from workbench.datasets.load import find_source
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.standin.catalog import STANDINS
from workbench.standin.graph_statistics import compare, graph_statistics
from workbench.standin.stand_in import Published


class Statistic(NamedTuple):
    """One statistic of a data set as text.

    Args:
        name: name of the statistic.
        here: its value.
        published: value of a stand-in's original; "" if it is not published, or the data set is not a stand-in.
    """

    name: str
    here: str
    published: str = ""


class Listed(NamedTuple):
    """A data set in a list.

    Args:
        name: its name.
        here: source from which it can be loaded: "archive", "OGB" or "stand-in"; "" if it can't.
        what: a short description.
        source: its source in the catalog.
    """

    name: str
    here: str
    what: str
    source: str


def describe(data: Dataset | KnowledgeGraph) -> list[Statistic]:
    """Compute the statistics of a data set, next to those of the original if it is a stand-in.

    Degrees and clustering are those of the undirected simple graph; the clustering of a large graph is that of a sample
    of its nodes, with the standard error.

    Returns:
        One record per statistic.
    """
    published = STANDINS[data.name].published if data.name in STANDINS else None
    original = {} if published is None else _of_original(published)
    here = _of_triples(data) if isinstance(data, KnowledgeGraph) else _of_nodes(data)
    return [Statistic(name, value, original.get(name, "")) for name, value in here.items() if value]


def targets(data: Dataset | KnowledgeGraph, *, scale: float | None = None) -> list[tuple[str, str, str, str]]:
    """Compare a stand-in with its targets.

    Args:
        scale: the scale at which it was built; None: its default.

    Returns:
        Rows of statistic, target ± tolerance, achieved value, and "met" or "missed".
    """
    return [
        (f.name, f"{_number(f.target)} ± {_number(f.tolerance)}", _number(f.achieved), "met" if f.met else "missed")
        for f in compare(data, scale=scale)
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def published_in(name: str) -> str:
    """Return the source of a stand-in's published statistics; "" for other data sets."""
    return STANDINS[name].published.source if name in STANDINS else ""


def listed(folder: Path) -> list[Listed]:
    """List all data sets of a data folder and of the catalog.

    Args:
        folder: the data folder, which need not exist.

    Returns:
        The data sets, sorted by name.
    """
    known = known_sets()
    names = sorted({*known, *(path.stem for path in folder.glob("*.npz"))})
    rows = []
    for name in names:
        what, source = known.get(name, ("your own data set", "archive"))
        try:
            here = find_source(name, folder).kind
        except (FileNotFoundError, ValueError):
            here = ""
        rows.append(Listed(name, here, what, source))
    return rows


def _of_nodes(data: Dataset) -> dict[str, str]:
    split = (data.train_idx, data.val_idx, data.test_idx)
    return {
        **_shape(data),
        "features": f"{data.num_features:,} ({data.features})",
        "classes": f"{data.num_classes:,}",
        "train / val / test": f"{_counts(len(ids) for ids in split)} ({data.split})",
        "bytes": format_bytes(data.nbytes),
        "fingerprint": data.fingerprint,
    }


def _of_triples(data: KnowledgeGraph) -> dict[str, str]:
    parts = [len(part) for part in (data.train, data.valid, data.test)]
    statistics = _shape(data)
    return {
        "nodes": statistics.pop("nodes"),
        "edges": f"{sum(parts):,} (triples)",
        "classes": f"{data.num_relations:,} (relations)",
        "train / val / test": _counts(parts),
        **{name: f"{value} (training triples)" for name, value in statistics.items() if value and name != "edges"},
        "fingerprint": data.fingerprint,
    }


def _shape(data: Dataset | KnowledgeGraph) -> dict[str, str]:
    """Compute the statistics of the graph, or of a knowledge graph's training triples."""
    if isinstance(data, KnowledgeGraph):
        graph = graph_statistics(data.graph())
    else:
        graph = graph_statistics(data.graph, data.y if data.num_classes else None)
    error = f" ± {graph.clustering.standard_error:.3f}" if graph.clustering.standard_error else ""
    return {
        "nodes": f"{graph.num_nodes:,}",
        "edges": f"{graph.num_edges:,}",
        "mean degree": f"{graph.mean_degree:.2f}",
        "degree quantiles": _quantiles(graph.degree_quantiles),
        "largest degree": f"{graph.largest_degree:,}",
        "clustering": f"{graph.clustering.mean:.3f}{error}",
        "reciprocity": _share(graph.reciprocity),
        "homophily": _share(graph.homophily),
    }


def _of_original(published: Published) -> dict[str, str]:
    counts = {
        "nodes": published.nodes,
        "edges": published.edges,
        "features": published.features,
        "classes": published.classes,
        "largest degree": published.largest_degree,
    }
    shares: Mapping[str, float | None] = {
        "clustering": published.clustering,
        "reciprocity": published.reciprocity,
        "homophily": published.homophily,
    }
    return {
        **{name: f"{count:,}" for name, count in counts.items() if count is not None},
        **{name: _share(share) for name, share in shares.items() if share is not None},
        **({} if (sizes := published.splits) is None else {"train / val / test": _counts(sizes)}),
        **({} if published.degree_quantiles is None else {"degree quantiles": _quantiles(published.degree_quantiles)}),
    }


def _counts(sizes: Iterable[int]) -> str:
    return " / ".join(f"{size:,}" for size in sizes)


def _quantiles(pairs: tuple[tuple[float, int], ...]) -> str:
    return ", ".join(f"{share:.0%} {degree:,}" for share, degree in pairs)


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.3f}"
