"""Options of commands as keywords of `load_dataset` and `build_model`, and as text of a program that calls them."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.nn.model import relation_options


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
