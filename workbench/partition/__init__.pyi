from .balance import ByteCosts as ByteCosts
from .batch import PARTITION_METHODS as PARTITION_METHODS, register_partitioner as register_partitioner
from .batch.partitioner import Partitioner as Partitioner, Parts as Parts
from .graph.pagraph import PaGraphParts as PaGraphParts, pagraph_parts as pagraph_parts
from .graph.split_graph import GraphPart as GraphPart, open_part as open_part, split_graph as split_graph
from .graph.streaming import partition_stream as partition_stream
from .redundancy import Redundancy as Redundancy
from .refine import refine_parts as refine_parts
