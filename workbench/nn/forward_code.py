"""What the code of a module's `forward` tells about the arguments that it expects."""

import dis
import inspect
from collections.abc import Iterator
from types import CodeType

from torch import nn

_THROUGH = ("zip", "enumerate", "len", "reversed", "iter", "list")  # functions that a list of layers is passed to


def names_in(module: nn.Module) -> Iterator[str]:
    """Names of attributes and functions in the code of a user's `forward`."""
    forward = inspect.getattr_static(type(module), "forward", None)  # that of a scripted module can't be read otherwise
    code = getattr(forward, "__code__", None)
    if code is not None and type(module).__module__.partition(".")[0] not in ("torch", "dgl", "torch_geometric"):
        yield from _names_of(code)


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)


def goes_through(model: nn.Module, name: str) -> bool:
    """Whether a module's `forward` iterates over a parameter, or reads it at a position that is not a constant."""
    code = getattr(inspect.getattr_static(type(model), "forward", None), "__code__", None)
    function = None
    instructions = [] if code is None else list(dis.get_instructions(code))
    for this, following in zip(instructions, [*instructions[1:], None], strict=True):
        if this.opname.startswith("LOAD_GLOBAL"):
            function = this.argval
        elif this.opname.startswith("CALL"):
            function = None
        if this.opname.startswith("LOAD_FAST") and this.argval == name and following is not None:
            is_subscript = following.opname.startswith("LOAD_FAST") and _subscripts(instructions, this)
            if following.opname == "GET_ITER" or function in _THROUGH or is_subscript:
                return True
    return False


def _subscripts(instructions: list[dis.Instruction], this: dis.Instruction) -> bool:
    position = instructions.index(this)
    return len(instructions) > position + 2 and instructions[position + 2].opname == "BINARY_SUBSCR"
