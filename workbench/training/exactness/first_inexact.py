"""Finds the module that makes the parts of a batch differ from the whole."""

from torch import Tensor, nn

from workbench.interop.layer_advice import is_batch_statistic, is_known_inexact, is_layer, statistic_owner
from workbench.training.exactness.trial import Trial, seed_positions


def first_inexact(model: nn.Module, trial: Trial, tolerance: float) -> str:
    """Find the first module whose results for the seeds differ between whole and parts, though its arguments do not.

    Args:
        model: the module that was tried.
        trial: its passes.
        tolerance: largest difference, relative to the largest value.

    Returns:
        The name of the innermost such module in the model; "" is the model itself: what differs is computed between its
        modules, or in the backward pass. Batch statistics inside a layer are named even if they are those of its edges,
        of which none is a seed's.
    """
    modules, calls = dict(model.named_modules()), [call.module for call in trial.whole.calls]
    if any([call.module for call in part.calls] != calls for part in trial.parts):
        return ""
    names = {module: name for name, module in modules.items()}
    for position, module in enumerate(calls):
        if not _differs(trial, position, "results", tolerance):
            continue
        for name in _enclosing(names[module]):
            call = next((p for p in range(position, len(calls)) if calls[p] is modules[name]), position)
            if not _differs(trial, call, "results", tolerance):
                break  # the rows that differ inside are not those of the seeds
            named = calls[call] is modules[name] and _can_be_named(name, modules, trial.whole.calls[call].arguments)
            if named and not _differs(trial, call, "arguments", tolerance):
                return _statistic_inside(model, name, set(calls))
    return ""


def _statistic_inside(model: nn.Module, name: str, called: set[nn.Module]) -> str:
    """The name of the first batch statistic that ran in a module of a library; else the module's own."""
    module = model.get_submodule(name)
    inside = module.named_modules(prefix=name) if is_layer(module) else ()
    found = (inner for inner, kind in inside if is_batch_statistic(kind) and kind in called)
    statistic = next(found, None)
    return name if statistic is None else statistic_owner(model, statistic)


def _enclosing(name: str) -> list[str]:
    """Names of a module and those around it, from the innermost."""
    parts = name.split(".") if name else []
    return [".".join(parts[:count]) for count in range(len(parts), -1, -1)]


def _can_be_named(name: str, modules: dict[str, nn.Module], arguments: list[Tensor]) -> bool:
    """Whether a module is to blame, rather than a layer of DGL or PyG around it.

    Such a layer consists of modules that read rows of edges, such as sums by destination, or that it calls on other
    edges than it was called on: these differ, but what is inexact is the layer. Inside of it, a module is to blame that
    is known to be inexact, is the user's own, or is torch's and reads rows of nodes.
    """
    library = type(modules[name]).__module__.partition(".")[0]
    is_inside = any(is_layer(modules[outer]) for outer in _enclosing(name)[1:])
    if not is_inside or library not in ("torch", "torch_geometric", "dgl"):
        return True
    return is_known_inexact(modules[name]) or (library == "torch" and bool(arguments))


def _differs(trial: Trial, position: int, field: str, tolerance: float) -> bool:
    """Return whether the seeds' rows of a call differ; rows of other shapes can't be compared."""
    whole = getattr(trial.whole.calls[position], field)
    for part in trial.parts:
        mine = getattr(part.calls[position], field)
        for rows, all_rows in zip(mine, whole, strict=True) if len(mine) == len(whole) else ():
            expected = all_rows[seed_positions(part.batch)]
            difference = (rows - expected).abs().max() if rows.shape == expected.shape and rows.numel() else 0.0
            if not difference <= tolerance * expected.abs().max():
                return True
    return False
