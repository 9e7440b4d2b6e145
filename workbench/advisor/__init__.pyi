from .advice import Advice as Advice
from .configuration import Configuration as Configuration
from .known_machines import MACHINE_NAMES as MACHINE_NAMES
from .machine import resolve_machine as resolve_machine
from .prices import Priced as Priced, Pricer as Pricer
