from . import (
    advisor as advisor,
    cooperative as cooperative,
    core as core,
    distributed as distributed,
    experiment as experiment,
    features as features,
    interop as interop,
    links as links,
    macrobatch as macrobatch,
    memory as memory,
    meter as meter,
    nn as nn,
    outofcore as outofcore,
    partition as partition,
    placement as placement,
    sampling as sampling,
    training as training,
)
from .advisor.advice import advise as advise
from .advisor.machine import Machine as Machine
from .core.block import Block as Block
from .core.dataset import Dataset as Dataset
from .core.edge_file import EdgeFile as EdgeFile
from .core.errors import (
    CapacityError as CapacityError,
    CorruptFileError as CorruptFileError,
    DataError as DataError,
    PartitionError as PartitionError,
    RankError as RankError,
)
from .core.graph import Graph as Graph
from .core.machine import Traffic as Traffic
from .core.minibatch import MiniBatch as MiniBatch
from .core.randomness import Nested as Nested, Smoothed as Smoothed
from .core.trace import AccessTrace as AccessTrace
from .core.units import format_bytes as format_bytes, parse_bytes as parse_bytes
from .datasets.load import load_dataset as load_dataset
from .distributed.rank_pool import run_ranks as run_ranks
from .experiment.figure_loader import load_experiment as load_experiment
from .experiment.track import track as track
from .features.cached_rows import CachedRows as CachedRows
from .features.disk_rows import DiskRows as DiskRows
from .features.learned_rows import LearnedRows as LearnedRows
from .features.memory_rows import MappedRows as MappedRows, MemoryRows as MemoryRows
from .features.protocols import FeatureStore as FeatureStore
from .features.stage import stage as stage, windows as windows
from .kernels.threads import get_num_threads as get_num_threads, set_num_threads as set_num_threads
from .memory.estimate import MemoryEstimate as MemoryEstimate
from .memory.estimator import estimate_memory as estimate_memory
from .memory.plan import Plan as Plan, plan_micro_batches as plan_micro_batches
from .memory.training_setup import Recovery as Recovery, TrainingSetup as TrainingSetup
from .meter.limit import limit_memory as limit_memory
from .meter.peak import PeakMeter as PeakMeter, measure_peak as measure_peak
from .meter.stopwatch import Stopwatch as Stopwatch
from .nn.losses import Inputs as Inputs
from .nn.model import build_model as build_model
from .partition.batch import partition_batch as partition_batch
from .partition.graph import partition_graph as partition_graph
from .partition.redundancy import redundancy as redundancy
from .sampling.dense import DenseSampler as DenseSampler
from .sampling.edge_batches import edge_batches as edge_batches
from .sampling.labor import LaborSampler as LaborSampler
from .sampling.ladies import LadiesSampler as LadiesSampler
from .sampling.loader import batches as batches, prefetch as prefetch
from .sampling.neighbor import FullNeighborSampler as FullNeighborSampler, NeighborSampler as NeighborSampler
from .sampling.random_walk import RandomWalkSampler as RandomWalkSampler
from .sampling.sampler import Sampler as Sampler
from .tracking.compare import compare as compare
from .tracking.opening import open_store as open_store
from .training.accumulate import accumulate as accumulate
from .training.adapters import micro_batches as micro_batches
from .training.epoch import train_epochs as train_epochs
from .training.evaluate import (
    accuracy as accuracy,
    full_neighbour_logits as full_neighbour_logits,
    sampled_logits as sampled_logits,
)
from .training.exactness.check import check_exact as check_exact
from .training.link_step import link_step as link_step
from .training.profile import profile_epoch as profile_epoch
from .training.sampler_plan import SamplerPlan as SamplerPlan, plan_sampler as plan_sampler
from .training.step import BatchLoss as BatchLoss, train_step as train_step

__version__: str
__all__: list[str]
