from .dataset import LinkSplit as LinkSplit
from .exchange import Exchange as Exchange
from .machine import MACHINES as MACHINES, TrafficCounts as TrafficCounts
from .planned import Planned as Planned
