from .aggregate_error import (
    AggregateError as AggregateError,
    aggregate_error as aggregate_error,
    bias_sigma as bias_sigma,
)
from .batches import Batches as Batches
from .neighbor import induced_edges as induced_edges
from .owned_graph import OwnedGraph as OwnedGraph
from .sampler import Drawn as Drawn
