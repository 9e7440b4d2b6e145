"""Finds the module that makes the parts of a batch differ from the whole."""

from torch import nn

from workbench.interop.layer_advice import is_layer
from workbench.training.exactness.trial import Trial, seed_positions


def first_inexact(model: nn.Module, trial: Trial, tolerance: float) -> str:
    """Find the first module whose results for the seeds differ between whole and parts, though its arguments do not.

    Args:
        model: the module that was tried.
        trial: its passes.
        tolerance: largest difference, relative to the largest value.

    Returns:
        The name of the module in the model. A layer of a library is named instead of its own modules; "" is the model
        itself: what differs is computed between its modules, or in the backward pass.
    """
    modules, calls = dict(model.named_modules()), [call.module for call in trial.whole.calls]
    if any([call.module for call in part.calls] != calls for part in trial.parts):
        return ""
    names = {module: name for name, module in modules.items()}
    for position, module in enumerate(calls):
        if not _differs(trial, position, "results", tolerance):
            continue
        for name in _enclosing(names[module], modules):
            call = next((p for p in range(position, len(calls)) if calls[p] is modules[name]), position)
            if not _differs(trial, call, "results", tolerance):
                break  # the rows that differ inside are not those of the seeds
            if calls[call] is modules[name] and not _differs(trial, call, "arguments", tolerance):
                return name
    return ""


def _enclosing(name: str, modules: dict[str, nn.Module]) -> list[str]:
    """Names of a module and those around it, from the outermost layer of a library on, if it belongs to one."""
    parts = name.split(".") if name else []
    around = [".".join(parts[:count]) for count in range(len(parts), -1, -1)]
    layers = [position for position, name in enumerate(around) if is_layer(modules[name])]
    return around[layers[-1] :] if layers else around


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
