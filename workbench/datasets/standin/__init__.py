"""Stand-ins: generated sets of a published graph's size and shape, with labels that a GNN can learn."""

from workbench.datasets.standin.build import build_standin
from workbench.datasets.standin.catalog import STANDINS
from workbench.datasets.standin.compare import Figure, compare
from workbench.datasets.standin.room import check_room, required_bytes

__all__ = ["STANDINS", "Figure", "build_standin", "check_room", "compare", "required_bytes"]
