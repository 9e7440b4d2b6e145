"""Modules compiled by `torch.compile`, whose memory can't be predicted or seen by the meter of the CPU."""

from torch import nn

_COMPILED_RATIO = "0.9 to 1.2 times"
"""Peak bytes of a step of `build_model`'s models compiled by inductor, relative to eager.

By the events of the CPU's allocator, torch 2.13: sage-mean 0.90, gat 1.00, gin 1.01, sage-pool 1.20, others 1.00.
"""


def refuse_compiled(model: nn.Module, what: str, remedy: str = "") -> None:
    """Refuse a module of which a part is compiled.

    Estimates and the CPU's meter observe a module's operators one at a time. Compiled code fuses them and allocates
    without calling operators, and the compiler falls back to the original code where operators are observed.

    Args:
        model: the module.
        what: what would be wrong, such as "memory can't be estimated".
        remedy: another remedy than passing the original module.

    Raises:
        ValueError: The module or one of its submodules is compiled; the message names it.
    """
    for name, module in model.named_modules():
        if not _is_compiled(module):
            continue
        path = f"{type(model).__name__}.{name}" if name else type(model).__name__
        original = "copy.deepcopy(model)" if getattr(module, "_orig_mod", None) is None else "model._orig_mod"
        raise ValueError(
            f"{path} is compiled by torch.compile, so {what}: pass the module as it was before, {original}, for the "
            f"numbers of uncompiled code (the library's layers need {_COMPILED_RATIO} as much compiled){remedy}"
        )


def _is_compiled(module: nn.Module) -> bool:
    """Return whether `torch.compile(module)` returned this module, or `module.compile()` was called."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
