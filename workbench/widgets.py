"""Interactive cells of notebooks: thin over ipywidgets; what they draw are pure functions that tests call too.

A notebook that is reopened untrusted, or seen on a git host, shows no widget: place a plain figure beside each.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy

from workbench.core.dataset import Dataset
from workbench.nn.model import build_model
from workbench.partition.batch import partition_batch
from workbench.partition.graph import partition_graph
from workbench.partition.redundancy import redundancy
from workbench.sampling.neighbor import NeighborSampler
from workbench.training.profile import profile_epoch

if TYPE_CHECKING:
    import plotly.graph_objects as go


def explore(draw: Callable[..., Any], **controls: Any) -> Any:
    """A control for every argument of a function, above what it draws; drawn anew when a control is let go.

    Args:
        draw: takes the controls' values by name and returns a figure. What it refuses with a ValueError or MemoryError
            is shown as a line of text.
        controls: by argument; the first value is the one to begin with. True or False: a checkbox; a `range`: a slider;
            a sequence of numbers: a slider over them; another sequence, or a mapping of names to values: a dropdown; a
            set: several to choose from, all at first; or a widget.

    Returns:
        A widget; without ipywidgets the figure to begin with.

    Raises:
        TypeError: a control of another kind.
        ValueError: a control without values.
    """
    try:
        import ipywidgets
    except ModuleNotFoundError:
        return draw(**{name: _first(control) for name, control in controls.items()})
    widgets = {name: _control(name, control) for name, control in controls.items()}
    shown = ipywidgets.interactive_output(lambda **values: _show(draw, values), widgets)
    return ipywidgets.VBox([ipywidgets.HBox(list(widgets.values()), layout={"flex_flow": "row wrap"}), shown])


def micro_batch_explorer(
    dataset: Dataset,
    *,
    methods: Sequence[str] = ("reg", "metis", "random", "range"),
    num_parts: Sequence[int] = (4, 1, 2, 8, 16, 32),
    fanouts: Sequence[Sequence[int]] = ((10, 25), (5, 5)),
    **options: Any,
) -> Any:
    """Choose partitioner, K and fanouts, and see `micro_batch_view` of them.

    Args:
        dataset: as `workbench.load_dataset` gives it.
        methods: of `workbench.PARTITION_METHODS`; the first is shown first, as in what follows.
        num_parts: micro-batches.
        fanouts: lists of neighbours a layer, input layer first.
        options: further arguments of `micro_batch_view`.

    Returns:
        See `explore`.
    """
    view = partial(micro_batch_view, dataset, **options)
    named = {", ".join(map(str, fanout)): tuple(fanout) for fanout in fanouts}
    return explore(view, method=methods, num_parts=num_parts, fanout=named)


def micro_batch_view(
    dataset: Dataset,
    *,
    method: str,
    num_parts: int,
    fanout: Sequence[int],
    model: str = "sage-mean",
    hidden_dim: int = 64,
    num_seeds: int = 1000,
    budget_bytes: int | None = None,
    seed: int = 0,
) -> "go.Figure":
    """Memory bars of the micro-batches of one batch, as measured in a training step, with their redundancy.

    Args:
        dataset: with features and labels.
        method: of `workbench.PARTITION_METHODS`.
        num_parts: micro-batches; no more than there are seeds.
        fanout: neighbours a layer, input layer first.
        model: see `workbench.build_model`; trained by Adam.
        hidden_dim: width of hidden layers.
        num_seeds: the first of the training nodes are the batch.
        budget_bytes: line to hold the bars against.
        seed: of sampling, partition and weights.

    Raises:
        ValueError: what sampling, partition or model refuse.
    """
    from workbench.plots.memory import memory_bars
    from workbench.plots.style import looks

    batch = NeighborSampler(fanout, seed=seed).sample(dataset.graph, dataset.train_idx[:num_seeds])
    num_parts = min(num_parts, batch.num_seeds)
    node_parts = partition_graph(dataset.graph, num_parts, seed=seed) if method == "cluster" else None
    part = partition_batch(batch, num_parts, method=method, seed=seed, node_parts=node_parts)
    micro = batch.split(part)
    net = build_model(
        model,
        in_dim=dataset.num_features,
        hidden_dim=hidden_dim,
        out_dim=dataset.num_classes,
        num_layers=len(fanout),
        seed=seed,
    )
    profile = profile_epoch(net, [micro], dataset.x, dataset.y, cross_entropy, torch.optim.Adam(net.parameters()))
    settings = f"K = {len(micro)}, fanouts {', '.join(map(str, fanout))}"
    return memory_bars(
        profile.part_peak_bytes,
        budget_bytes=budget_bytes,
        redundancy=redundancy(micro, batch),
        title=f"{dataset.name}: {looks([method])[method].name}, {settings}",
    )


def _show(draw: Callable[..., Any], values: Mapping[str, Any]) -> None:
    from IPython.display import Markdown, display

    try:
        display(draw(**values))
    except (ValueError, MemoryError) as error:
        display(Markdown(f"{type(error).__name__}: {error}"))


def _values(control: Any) -> list[Any]:
    return list(control.values()) if isinstance(control, Mapping) else list(control)


def _first(control: Any) -> Any:
    if isinstance(control, bool):
        return control
    if isinstance(control, set | frozenset):
        return tuple(sorted(control))
    return control.value if hasattr(control, "value") else _values(control)[0]


def _control(name: str, control: Any) -> Any:
    import ipywidgets

    about: Any = {"description": name.replace("_", " "), "style": {"description_width": "initial"}}
    if isinstance(control, ipywidgets.Widget):
        return control
    if isinstance(control, bool):
        return ipywidgets.Checkbox(value=control, **about)
    if not isinstance(control, range | set | frozenset | Mapping | Sequence) or isinstance(control, str):
        raise TypeError(f"{name} is a {type(control).__name__}; pass True or False, a range, sequence, mapping or set")
    if not len(control):
        raise ValueError(f"{name} has no values to choose from; pass at least one")
    if isinstance(control, range):
        ends = {"min": min(control), "max": max(control), "step": abs(control.step)}
        return ipywidgets.IntSlider(value=control[0], continuous_update=False, **ends, **about)
    if isinstance(control, set | frozenset):
        return ipywidgets.SelectMultiple(options=sorted(control), value=_first(control), **about)
    if all(isinstance(value, int | float) for value in _values(control)):
        ordered = sorted(_values(control))
        return ipywidgets.SelectionSlider(options=ordered, value=_first(control), continuous_update=False, **about)
    return ipywidgets.Dropdown(options=control, value=_first(control), **about)
