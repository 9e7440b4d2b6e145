"""Which kinds of models a graph allows, and the options of `build_model` that the graph determines."""

from workbench.core.graph import Graph
from workbench.nn.model import MODEL_KINDS, TYPED_MODEL_KINDS


def models_for(graph: Graph) -> tuple[str, ...]:
    """Return the kinds of models that a graph allows: relational ones need edge types.

    Args:
        graph: the graph.
    """
    return MODEL_KINDS if graph.edge_type is None else (*MODEL_KINDS, *TYPED_MODEL_KINDS)


def relation_options(kind: str, graph: Graph, *, num_bases: int | None = None) -> dict[str, int | None]:
    """Return the options of `build_model` that describe a graph's relations; none for kinds without relations.

    Args:
        kind: kind of model.
        graph: the graph that the model is for.
        num_bases: number of bases of relational kinds; None: as many as relations. Ignored by other kinds.

    Raises:
        ValueError: a relational kind, and a graph without edge types.
    """
    if kind not in TYPED_MODEL_KINDS:
        return {}
    if graph.edge_type is None:
        raise ValueError(
            f"{kind} needs edge types, which this graph does not have; use a typed graph (fb15k-237, codex-m, "
            f"synthetic-fb15k-237, synthetic-mag240M), or one of {', '.join(MODEL_KINDS)}"
        )
    return {"num_relations": int(graph.edge_type.max()) + 1 if graph.num_edges else 1, "num_bases": num_bases}
