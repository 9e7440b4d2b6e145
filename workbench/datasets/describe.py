"""A set in figures: what `workbench data info` and `workbench data list` show."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from workbench.core.dataset import Dataset
from workbench.core.knowledge import KnowledgeGraph
from workbench.core.units import format_bytes
from workbench.datasets.known import known_sets
from workbench.datasets.load import find_source
from workbench.datasets.measure import graph_figures
from workbench.datasets.standin.catalog import STANDINS
from workbench.datasets.standin.compare import compare
from workbench.datasets.standin.spec import Published


class Figure(NamedTuple):
    """One figure of a set, as text, and the original's where the set is a stand-in and its original's is published."""

    name: str
    here: str
    published: str = ""


class Listed(NamedTuple):
    """A set in a list: `here` says where it comes from when it is loaded, "" if it can't be."""

    name: str
    here: str
    what: str
    source: str


def describe(data: Dataset | KnowledgeGraph) -> list[Figure]:
    """Sizes and shape of a set, beside those of the original where it is a stand-in.

    Degrees and clustering are those of the undirected graph without loops and repeats; clustering of a large graph is
    that of a sample of its nodes, with the standard error.

    Args:
        data: on the CPU.
    """
    published = STANDINS[data.name].published if data.name in STANDINS else None
    original = {} if published is None else _of_original(published)
    here = _of_triples(data) if isinstance(data, KnowledgeGraph) else _of_nodes(data)
    return [Figure(name, value, original.get(name, "")) for name, value in here.items() if value]


def targets(data: Dataset | KnowledgeGraph, *, scale: float | None = None) -> list[tuple[str, str, str, str]]:
    """What a stand-in was built to meet: figure, target with tolerance, what it has, and whether that is met.

    Args:
        data: a stand-in.
        scale: it was built at; None: its default.

    Raises:
        ValueError: no stand-in.
    """
    return [
        (f.name, f"{_number(f.target)} ± {_number(f.tolerance)}", _number(f.achieved), "met" if f.met else "missed")
        for f in compare(data, scale=scale)
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def published_in(name: str) -> str:
    """Where the original's figures are from; "" for what is no stand-in."""
    return STANDINS[name].published.source if name in STANDINS else ""


def listed(folder: Path) -> list[Listed]:
    """Every set in a data folder and every other that is known by name.

    Args:
        folder: with data; it need not exist.
    """
    known = known_sets()
    names = sorted({*known, *(path.stem for path in folder.glob("*.npz"))})
    rows = []
    for name in names:
        what, source = known.get(name, ("a set of your own", "archive"))
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
    figures = _shape(data)
    return {
        "nodes": figures.pop("nodes"),
        "edges": f"{sum(parts):,} (triples)",
        "classes": f"{data.num_relations:,} (relations)",
        "train / val / test": _counts(parts),
        **{name: f"{value} (training triples)" for name, value in figures.items() if value and name != "edges"},
        "fingerprint": data.fingerprint,
    }


def _shape(data: Dataset | KnowledgeGraph) -> dict[str, str]:
    """Figures of the graph: of a knowledge graph, that of its training triples."""
    if isinstance(data, KnowledgeGraph):
        found = graph_figures(data.graph())
    else:
        found = graph_figures(data.graph, data.y if data.num_classes else None)
    near = f" ± {found.clustering.standard_error:.3f}" if found.clustering.standard_error else ""
    return {
        "nodes": f"{found.num_nodes:,}",
        "edges": f"{found.num_edges:,}",
        "mean degree": f"{found.mean_degree:.2f}",
        "degree quantiles": _quantiles(found.degree_quantiles),
        "largest degree": f"{found.largest_degree:,}",
        "clustering": f"{found.clustering.mean:.3f}{near}",
        "reciprocity": _share(found.reciprocity),
        "homophily": _share(found.homophily),
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
