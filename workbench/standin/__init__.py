"""Stand-ins: synthetic data sets with the size and shape of a published graph and labels that a GNN can learn.

A catalog has the published numbers; degrees, clustering, homophily and signal follow them, at any scale, from a seed.
"""

from workbench.standin.build import build_standin, check_capacity, required_bytes
from workbench.standin.catalog import STANDINS
from workbench.standin.graph_statistics import Comparison, compare

__all__ = ["STANDINS", "Comparison", "build_standin", "check_capacity", "compare", "required_bytes"]
