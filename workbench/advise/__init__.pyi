from .machine import resolve_machine as resolve_machine
