"""Stand-ins: synthetic data sets with the size and shape of a published graph and labels that a GNN can learn."""

from workbench.standin.build import build_standin
from workbench.standin.catalog import STANDINS
from workbench.standin.comparison import Comparison, compare
from workbench.standin.required_space import check_capacity, required_bytes

__all__ = ["STANDINS", "Comparison", "build_standin", "check_capacity", "compare", "required_bytes"]
