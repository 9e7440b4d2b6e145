from .advice import Advice as Advice, advise as advise
from .configuration import Configuration as Configuration
from .known_machines import MACHINE_NAMES as MACHINE_NAMES
from .machine import Machine as Machine, resolve_machine as resolve_machine
from .prices import Priced as Priced, Pricer as Pricer
