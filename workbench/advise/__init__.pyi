from .known_machines import MACHINE_NAMES as MACHINE_NAMES
from .machine import resolve_machine as resolve_machine
