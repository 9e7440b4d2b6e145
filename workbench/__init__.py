"""GNN Workbench: composable primitives for training graph neural networks on graphs too big for one GPU.

`import workbench as wb` loads nothing; every public name is imported from its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; a test holds it against the table below
    from workbench.core.block import Block as Block
    from workbench.core.dataset import Dataset as Dataset
    from workbench.core.edgebatch import EdgeBatch as EdgeBatch
    from workbench.core.errors import CapacityError as CapacityError
    from workbench.core.errors import CorruptFileError as CorruptFileError
    from workbench.core.errors import DataError as DataError
    from workbench.core.errors import PartitionError as PartitionError
    from workbench.core.exchange import Exchange as Exchange
    from workbench.core.graph import Graph as Graph
    from workbench.core.knowledge import KnowledgeGraph as KnowledgeGraph
    from workbench.core.limit import limit_memory as limit_memory
    from workbench.core.linksplit import LinkSplit as LinkSplit
    from workbench.core.meter import PeakMeter as PeakMeter
    from workbench.core.meter import measure_peak as measure_peak
    from workbench.core.minibatch import MiniBatch as MiniBatch
    from workbench.core.stopwatch import Stopwatch as Stopwatch
    from workbench.core.units import format_bytes as format_bytes
    from workbench.core.units import parse_bytes as parse_bytes
    from workbench.datasets.load import load_dataset as load_dataset
    from workbench.experiment.finding import Finding as Finding
    from workbench.experiment.load import load_experiment as load_experiment
    from workbench.kernels.threads import get_num_threads as get_num_threads
    from workbench.kernels.threads import set_num_threads as set_num_threads
    from workbench.memory.estimate import estimate_memory as estimate_memory
    from workbench.memory.kernels import Kernels as Kernels
    from workbench.memory.plan import Plan as Plan
    from workbench.memory.plan import plan_micro_batches as plan_micro_batches
    from workbench.memory.record import MemoryEstimate as MemoryEstimate
    from workbench.nn.dropout import HashDropout as HashDropout
    from workbench.nn.model import build_model as build_model
    from workbench.nn.norm import symmetric_norm as symmetric_norm
    from workbench.partition.batch import PARTITION_METHODS as PARTITION_METHODS
    from workbench.partition.batch import partition_batch as partition_batch
    from workbench.partition.graph import partition_graph as partition_graph
    from workbench.partition.redundancy import Redundancy as Redundancy
    from workbench.partition.redundancy import redundancy as redundancy
    from workbench.partition.refine import refine_parts as refine_parts
    from workbench.sampling.neighbor import FullNeighborSampler as FullNeighborSampler
    from workbench.sampling.neighbor import NeighborSampler as NeighborSampler
    from workbench.sampling.stream import batches as batches
    from workbench.sampling.stream import prefetch as prefetch
    from workbench.tracking.compare import compare as compare
    from workbench.tracking.store import open_store as open_store
    from workbench.training.accumulate import accumulate as accumulate
    from workbench.training.epoch import epoch_steps as epoch_steps
    from workbench.training.epoch import train_epochs as train_epochs
    from workbench.training.evaluate import accuracy as accuracy
    from workbench.training.evaluate import full_neighbour_logits as full_neighbour_logits
    from workbench.training.micro import micro_batches as micro_batches
    from workbench.training.profile import EpochProfile as EpochProfile
    from workbench.training.profile import profile_epoch as profile_epoch
    from workbench.training.recover import Recovery as Recovery
    from workbench.training.step import train_step as train_step

_NAMES = {
    "core.block": ["Block"],
    "core.dataset": ["Dataset"],
    "core.edgebatch": ["EdgeBatch"],
    "core.errors": ["CapacityError", "CorruptFileError", "DataError", "PartitionError"],
    "core.exchange": ["Exchange"],
    "core.graph": ["Graph"],
    "core.knowledge": ["KnowledgeGraph"],
    "core.limit": ["limit_memory"],
    "core.linksplit": ["LinkSplit"],
    "core.meter": ["PeakMeter", "measure_peak"],
    "core.minibatch": ["MiniBatch"],
    "core.stopwatch": ["Stopwatch"],
    "core.units": ["format_bytes", "parse_bytes"],
    "datasets.load": ["load_dataset"],
    "experiment.finding": ["Finding"],
    "experiment.load": ["load_experiment"],
    "kernels.threads": ["get_num_threads", "set_num_threads"],
    "memory.estimate": ["estimate_memory"],
    "memory.kernels": ["Kernels"],
    "memory.plan": ["Plan", "plan_micro_batches"],
    "memory.record": ["MemoryEstimate"],
    "nn.dropout": ["HashDropout"],
    "nn.model": ["build_model"],
    "nn.norm": ["symmetric_norm"],
    "partition.batch": ["PARTITION_METHODS", "partition_batch"],
    "partition.graph": ["partition_graph"],
    "partition.redundancy": ["Redundancy", "redundancy"],
    "partition.refine": ["refine_parts"],
    "sampling.neighbor": ["FullNeighborSampler", "NeighborSampler"],
    "sampling.stream": ["batches", "prefetch"],
    "tracking.compare": ["compare"],
    "tracking.store": ["open_store"],
    "training.accumulate": ["accumulate"],
    "training.epoch": ["epoch_steps", "train_epochs"],
    "training.evaluate": ["accuracy", "full_neighbour_logits"],
    "training.micro": ["micro_batches"],
    "training.profile": ["EpochProfile", "profile_epoch"],
    "training.recover": ["Recovery"],
    "training.step": ["train_step"],
}
_MODULE_OF = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
__all__ = sorted(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
