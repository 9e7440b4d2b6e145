from .advice import Advice as Advice, advise as advise
from .configuration import Configuration as Configuration
from .machine import Machine as Machine, resolve_machine as resolve_machine
from .prices import Priced as Priced, Pricer as Pricer
