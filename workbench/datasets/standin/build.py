"""Building a stand-in by name."""

from workbench.core.dataset import Dataset
from workbench.datasets.standin.citation import citations, dates, pairs_of
from workbench.datasets.standin.classes import features, multi_labels, split_nodes
from workbench.datasets.standin.degrees import degree_sequence
from workbench.datasets.standin.room import check_room, find
from workbench.datasets.standin.spec import StandIn, scaled, scaled_splits
from workbench.datasets.standin.streams import Draw, key_of
from workbench.datasets.standin.topology import arrange, node_classes, undirected_graph


def build_standin(name: str, *, scale: float | None = None, seed: int = 0) -> Dataset:
    """Generate a stand-in: a pure function of (name, scale, seed), whatever the number of threads.

    Nodes, edges and splits scale, the mean degree and the quantiles of degrees stay; the largest degree falls to that of
    the top 1 / scale nodes, and to a quarter of the nodes.

    Args:
        name: a key of `STANDINS`.
        scale: in (0, 1]; None: the default of the stand-in.
        seed: any whole number.

    Raises:
        CapacityError: it would need more memory than is free.
        ValueError: an unknown name, or a scale outside (0, 1] or too small for the mean degree.
    """
    spec, size = find(name, scale)
    check_room(name, size)
    assert isinstance(spec, StandIn)
    return _build_nodes(spec, size, seed)


def _build_nodes(spec: StandIn, scale: float, seed: int) -> Dataset:
    nodes, edges = scaled(spec.nodes, scale), scaled(spec.edges, scale)
    pairs = pairs_of(edges, spec.reciprocity)
    law = degree_sequence(spec.recipe.degrees, nodes, 2 * pairs)
    wiring = arrange(spec.name, seed, law, spec.classes, spec.recipe.class_skew)
    graph = undirected_graph(spec.name, seed, wiring, spec.recipe)
    classes, date = node_classes(wiring), None
    if spec.directed:
        date = dates(spec.name, seed, graph)
        graph = citations(graph, date, spec.reciprocity, key_of(spec.name, seed, Draw.RECIPROCITY))
    del wiring, law
    sizes = scaled_splits(spec.splits, scale, nodes)
    train, val, test = split_nodes(spec.name, seed, nodes, sizes, date)
    x = features(
        spec.name,
        seed,
        classes,
        num_classes=spec.classes,
        width=spec.features,
        signal=spec.signal,
        dtype=spec.feature_dtype,
    )
    y = multi_labels(spec.name, seed, classes, spec.classes) if spec.multi_label else classes
    return Dataset.build(
        graph, x, y, train_idx=train, val_idx=val, test_idx=test, num_classes=spec.classes, name=spec.name
    )
