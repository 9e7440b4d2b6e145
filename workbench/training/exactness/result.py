"""`Exactness`, the result of a check, and what is known of models without trying them."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from workbench.interop.layer_advice import exact_alternative, known_inexact
from workbench.nn.gnn import GNN

_USED_BY_OWN = {
    nn.Linear,
    nn.ReLU,
    nn.ELU,
    nn.LayerNorm,
    nn.BatchNorm1d,
    nn.Identity,
    nn.LSTM,
    nn.ModuleList,
    nn.Sequential,
}


@dataclass(frozen=True)
class Exactness:
    """Whether the parts of a batch compute the same as the whole batch.

    Args:
        exact: True if they do, False if they do not, None if it can't be decided, or if it is not so of this batch, but
            of others: then `kind` is set.
        deviation: largest deviation of outputs (relative to the largest output) and of gradients (of their norms),
            where it was measured.
        module: name in the model of the first module that is inexact; "" for the model itself.
        kind: name of the module's class; "" if no module was found to be inexact.
        reason: why the model is inexact, and what to use instead; or why it can't be decided.
    """

    exact: bool | None
    deviation: float | None = None
    module: str = ""
    kind: str = ""
    reason: str = ""

    def __str__(self) -> str:
        if self.exact is not False:
            return "exact" if self.exact else f"undecided: {self.reason}"
        measured = "" if self.deviation is None else f" (a relative deviation of {self.deviation:.1g} on a small batch)"
        return (
            f"{self.kind}{f' ({self.module})' if self.module else ''} makes gradients of micro-batches differ from the "
            f"whole batch's{measured}: {self.reason}"
        )


def known_model(model: nn.Module) -> Exactness | None:
    """Decide a model of the library, whose layers are exact but for two; None for any other."""
    inner: Any = model
    while hasattr(inner, "_orig_mod") or hasattr(inner, "no_sync"):
        inner = inner._orig_mod if hasattr(inner, "_orig_mod") else inner.module
    if type(inner) is not GNN or not all(map(_is_own, inner.modules())):
        return None
    return inexact_by_class(inner) or Exactness(True)


def _is_own(module: nn.Module) -> bool:
    return type(module).__module__.startswith("workbench.nn.") or type(module) in _USED_BY_OWN


def inexact_by_class(model: nn.Module) -> Exactness | None:
    """Find a module that is known to look across the batch."""
    for name, module in known_inexact(model):
        return Exactness(False, None, name, type(module).__name__, exact_alternative(module))
    return None
