from .machines import resolve_machine as resolve_machine
