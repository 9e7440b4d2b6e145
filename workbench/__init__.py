"""GNN Workbench: composable primitives for training graph neural networks on graphs too large for one GPU.

`import workbench as wb` imports no other library: each public name is imported from its module on first access.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; a test compares it with the table below
    from workbench.cooperative.cost_model import PeCounts as PeCounts
    from workbench.cooperative.cost_model import StageSeconds as StageSeconds
    from workbench.cooperative.cost_model import StepSeconds as StepSeconds
    from workbench.cooperative.cost_model import step_seconds as step_seconds
    from workbench.cooperative.sampler import CooperativeSampler as CooperativeSampler
    from workbench.cooperative.sampler import exchangers as exchangers
    from workbench.cooperative.sampling import cooperative_batches as cooperative_batches
    from workbench.cooperative.sampling import independent_batches as independent_batches
    from workbench.cooperative.sampling import reach_counts as reach_counts
    from workbench.cooperative.sampling import sample_owned as sample_owned
    from workbench.cooperative.step import cooperative_logits as cooperative_logits
    from workbench.cooperative.step import cooperative_step as cooperative_step
    from workbench.cooperative.work import CooperativeWork as CooperativeWork
    from workbench.cooperative.work import Work as Work
    from workbench.cooperative.work import cooperative_work as cooperative_work
    from workbench.cooperative.work import expected_inputs as expected_inputs
    from workbench.cooperative.work import marginal_inputs as marginal_inputs
    from workbench.cooperative.work import measure_work as measure_work
    from workbench.cooperative.work import work_curve as work_curve
    from workbench.core.block import Block as Block
    from workbench.core.dataset import Dataset as Dataset
    from workbench.core.dataset import LinkSplit as LinkSplit
    from workbench.core.edge_file import EdgeFile as EdgeFile
    from workbench.core.errors import CapacityError as CapacityError
    from workbench.core.errors import CorruptFileError as CorruptFileError
    from workbench.core.errors import DataError as DataError
    from workbench.core.errors import PartitionError as PartitionError
    from workbench.core.errors import RankError as RankError
    from workbench.core.exchange import Exchange as Exchange
    from workbench.core.graph import Graph as Graph
    from workbench.core.machine import MACHINES as MACHINES
    from workbench.core.machine import Machine as Machine
    from workbench.core.machine import Traffic as Traffic
    from workbench.core.machine import TrafficCounts as TrafficCounts
    from workbench.core.minibatch import MiniBatch as MiniBatch
    from workbench.core.randomness import Nested as Nested
    from workbench.core.randomness import Smoothed as Smoothed
    from workbench.core.trace import AccessTrace as AccessTrace
    from workbench.core.units import format_bytes as format_bytes
    from workbench.core.units import parse_bytes as parse_bytes
    from workbench.datasets.load import load_dataset as load_dataset
    from workbench.distributed.group import all_reduce_gradients as all_reduce_gradients
    from workbench.distributed.group import check_ranks_agree as check_ranks_agree
    from workbench.distributed.group import get_rank as get_rank
    from workbench.distributed.group import get_world_size as get_world_size
    from workbench.distributed.measure_machine import measure_machine as measure_machine
    from workbench.distributed.owned_rows import OwnedRows as OwnedRows
    from workbench.distributed.owned_rows import open_owned_graph as open_owned_graph
    from workbench.distributed.rank_pool import RankPool as RankPool
    from workbench.distributed.rank_pool import run_ranks as run_ranks
    from workbench.experiment.figure_loader import load_experiment as load_experiment
    from workbench.experiment.finding import Finding as Finding
    from workbench.experiment.track import track as track
    from workbench.features.cache.policies import CACHE_POLICIES as CACHE_POLICIES
    from workbench.features.cache.policies import rank_by_degree as rank_by_degree
    from workbench.features.cache.policies import rank_by_frequency as rank_by_frequency
    from workbench.features.cache.simulate import CacheCost as CacheCost
    from workbench.features.cache.simulate import CacheSimulation as CacheSimulation
    from workbench.features.cache.simulate import cache_costs as cache_costs
    from workbench.features.cache.simulate import miss_ratio_curve as miss_ratio_curve
    from workbench.features.cache.simulate import simulate_cache as simulate_cache
    from workbench.features.cached_rows import CachedRows as CachedRows
    from workbench.features.cached_rows import RecordedRows as RecordedRows
    from workbench.features.disk_rows import DiskRows as DiskRows
    from workbench.features.learned_rows import LearnedRows as LearnedRows
    from workbench.features.memory_rows import MappedRows as MappedRows
    from workbench.features.memory_rows import MemoryRows as MemoryRows
    from workbench.features.protocols import FeatureStore as FeatureStore
    from workbench.features.protocols import Stageable as Stageable
    from workbench.features.protocols import WritableStore as WritableStore
    from workbench.features.split_rows import split_rows as split_rows
    from workbench.features.stage import StagedRows as StagedRows
    from workbench.features.stage import stage as stage
    from workbench.features.stage import windows as windows
    from workbench.kernels.threads import get_num_threads as get_num_threads
    from workbench.kernels.threads import set_num_threads as set_num_threads
    from workbench.links.edge_batch import EdgeBatch as EdgeBatch
    from workbench.links.knowledge_graph import KnowledgeGraph as KnowledgeGraph
    from workbench.links.negatives import Negatives as Negatives
    from workbench.links.negatives import false_negatives as false_negatives
    from workbench.links.negatives import sample_negatives as sample_negatives
    from workbench.links.triple_file import read_knowledge_graph as read_knowledge_graph
    from workbench.macrobatch.aggregation_cache import WithoutInputLayer as WithoutInputLayer
    from workbench.macrobatch.aggregation_cache import aggregate_rows as aggregate_rows
    from workbench.macrobatch.macrobatches import MacrobatchSampler as MacrobatchSampler
    from workbench.macrobatch.macrobatches import macrobatches as macrobatches
    from workbench.macrobatch.plan import FetchBytes as FetchBytes
    from workbench.macrobatch.plan import InputHop as InputHop
    from workbench.macrobatch.plan import MacrobatchCounts as MacrobatchCounts
    from workbench.macrobatch.plan import MacrobatchPlan as MacrobatchPlan
    from workbench.macrobatch.plan import count_macrobatches as count_macrobatches
    from workbench.macrobatch.plan import macrobatch_bytes as macrobatch_bytes
    from workbench.macrobatch.plan import plan_macrobatch as plan_macrobatch
    from workbench.macrobatch.relay import relay_windows as relay_windows
    from workbench.macrobatch.relay import sample_relayed as sample_relayed
    from workbench.macrobatch.remote_rows import WindowFetches as WindowFetches
    from workbench.macrobatch.remote_rows import remote_rows as remote_rows
    from workbench.macrobatch.remote_rows import window_fetches as window_fetches
    from workbench.memory.estimate import MemoryEstimate as MemoryEstimate
    from workbench.memory.estimator import byte_costs as byte_costs
    from workbench.memory.estimator import estimate_memory as estimate_memory
    from workbench.memory.estimator import estimator_for as estimator_for
    from workbench.memory.plan import Plan as Plan
    from workbench.memory.plan import plan_micro_batches as plan_micro_batches
    from workbench.memory.plan import plan_with as plan_with
    from workbench.memory.training_setup import Backend as Backend
    from workbench.memory.training_setup import Recovery as Recovery
    from workbench.memory.training_setup import TrainingSetup as TrainingSetup
    from workbench.meter.epoch_passes import EpochPass as EpochPass
    from workbench.meter.epoch_passes import EpochPasses as EpochPasses
    from workbench.meter.epoch_passes import measure_epoch as measure_epoch
    from workbench.meter.limit import limit_memory as limit_memory
    from workbench.meter.peak import PeakMeter as PeakMeter
    from workbench.meter.peak import measure_peak as measure_peak
    from workbench.meter.stopwatch import Stopwatch as Stopwatch
    from workbench.meter.stopwatch import ThreadStopwatch as ThreadStopwatch
    from workbench.meter.stopwatch import timed as timed
    from workbench.nn.decoders import ComplEx as ComplEx
    from workbench.nn.decoders import Decoder as Decoder
    from workbench.nn.decoders import DistMult as DistMult
    from workbench.nn.decoders import DotProduct as DotProduct
    from workbench.nn.decoders import TransE as TransE
    from workbench.nn.dropout import HashDropout as HashDropout
    from workbench.nn.gcn import symmetric_norm as symmetric_norm
    from workbench.nn.losses import Inputs as Inputs
    from workbench.nn.model import LayerSize as LayerSize
    from workbench.nn.model import ModelWork as ModelWork
    from workbench.nn.model import build_model as build_model
    from workbench.nn.model import model_work as model_work
    from workbench.nn.pair_losses import PairScores as PairScores
    from workbench.nn.pair_losses import logistic_pair_loss as logistic_pair_loss
    from workbench.nn.pair_losses import pair_scores as pair_scores
    from workbench.nn.pair_losses import softmax_pair_loss as softmax_pair_loss
    from workbench.outofcore.bucket_order import BucketOrder as BucketOrder
    from workbench.outofcore.bucket_order import NodeOrder as NodeOrder
    from workbench.outofcore.bucket_order import balanced_order as balanced_order
    from workbench.outofcore.bucket_order import beta_order as beta_order
    from workbench.outofcore.bucket_order import comet_order as comet_order
    from workbench.outofcore.bucket_order import node_bias as node_bias
    from workbench.outofcore.bucket_order import node_order as node_order
    from workbench.outofcore.bucket_order import partition_bias as partition_bias
    from workbench.outofcore.buffer import PartitionBuffer as PartitionBuffer
    from workbench.outofcore.buffer_batches import buffer_batches as buffer_batches
    from workbench.outofcore.buffer_batches import buffer_edge_batches as buffer_edge_batches
    from workbench.outofcore.buffer_state import BufferRows as BufferRows
    from workbench.outofcore.buffer_state import BufferState as BufferState
    from workbench.outofcore.build_store import LearntInit as LearntInit
    from workbench.outofcore.partition_store import PartitionStore as PartitionStore
    from workbench.outofcore.tuning import BufferPlan as BufferPlan
    from workbench.outofcore.tuning import DiskModel as DiskModel
    from workbench.outofcore.tuning import EpochIO as EpochIO
    from workbench.outofcore.tuning import epoch_io as epoch_io
    from workbench.outofcore.tuning import tune_buffer as tune_buffer
    from workbench.partition.balance import ByteCosts as ByteCosts
    from workbench.partition.batch import PARTITION_METHODS as PARTITION_METHODS
    from workbench.partition.batch import partition_batch as partition_batch
    from workbench.partition.batch import register_partitioner as register_partitioner
    from workbench.partition.batch.partitioner import Partitioner as Partitioner
    from workbench.partition.batch.partitioner import Parts as Parts
    from workbench.partition.graph import partition_graph as partition_graph
    from workbench.partition.graph.pagraph import PaGraphParts as PaGraphParts
    from workbench.partition.graph.pagraph import pagraph_parts as pagraph_parts
    from workbench.partition.graph.split_graph import GraphPart as GraphPart
    from workbench.partition.graph.split_graph import open_part as open_part
    from workbench.partition.graph.split_graph import split_graph as split_graph
    from workbench.partition.graph.streaming import partition_stream as partition_stream
    from workbench.partition.redundancy import Redundancy as Redundancy
    from workbench.partition.redundancy import redundancy as redundancy
    from workbench.partition.refine import refine_parts as refine_parts
    from workbench.placement.access_probability import inclusion_probability as inclusion_probability
    from workbench.placement.locality import LocalityControl as LocalityControl
    from workbench.placement.locality import LocalitySampler as LocalitySampler
    from workbench.placement.locality import locality_factors as locality_factors
    from workbench.placement.place import PLACEMENT_METHODS as PLACEMENT_METHODS
    from workbench.placement.place import place_rows as place_rows
    from workbench.placement.placed_rows import PlacedRows as PlacedRows
    from workbench.placement.placement import Placement as Placement
    from workbench.placement.placement import RowLookup as RowLookup
    from workbench.sampling.aggregate_error import AggregateError as AggregateError
    from workbench.sampling.aggregate_error import aggregate_error as aggregate_error
    from workbench.sampling.aggregate_error import bias_sigma as bias_sigma
    from workbench.sampling.batches import Batches as Batches
    from workbench.sampling.dense import DenseSampler as DenseSampler
    from workbench.sampling.edge_batches import edge_batches as edge_batches
    from workbench.sampling.induced import induced_edges as induced_edges
    from workbench.sampling.labor import LaborSampler as LaborSampler
    from workbench.sampling.ladies import LadiesSampler as LadiesSampler
    from workbench.sampling.loader import batches as batches
    from workbench.sampling.loader import prefetch as prefetch
    from workbench.sampling.neighbor import FullNeighborSampler as FullNeighborSampler
    from workbench.sampling.neighbor import NeighborSampler as NeighborSampler
    from workbench.sampling.owned_graph import OwnedGraph as OwnedGraph
    from workbench.sampling.random_walk import RandomWalkSampler as RandomWalkSampler
    from workbench.sampling.sampler import Drawn as Drawn
    from workbench.sampling.sampler import Sampler as Sampler
    from workbench.tracking.compare import compare as compare
    from workbench.tracking.opening import open_store as open_store
    from workbench.training.accumulate import accumulate as accumulate
    from workbench.training.adapters import micro_batches as micro_batches
    from workbench.training.aggregated_rows import AggregatedRows as AggregatedRows
    from workbench.training.aggregated_rows import AggregateOnRead as AggregateOnRead
    from workbench.training.epoch import epoch_steps as epoch_steps
    from workbench.training.epoch import train_epochs as train_epochs
    from workbench.training.evaluate import accuracy as accuracy
    from workbench.training.evaluate import full_neighbour_logits as full_neighbour_logits
    from workbench.training.evaluate import layerwise as layerwise
    from workbench.training.evaluate import sampled_logits as sampled_logits
    from workbench.training.exactness.check import Exactness as Exactness
    from workbench.training.exactness.check import check_exact as check_exact
    from workbench.training.link_step import link_step as link_step
    from workbench.training.profile import EpochProfile as EpochProfile
    from workbench.training.profile import profile_epoch as profile_epoch
    from workbench.training.ranking import LinkMetrics as LinkMetrics
    from workbench.training.ranking import evaluate_links as evaluate_links
    from workbench.training.ranking import hits_above as hits_above
    from workbench.training.ranking import rank_triples as rank_triples
    from workbench.training.ranking import score_ranks as score_ranks
    from workbench.training.row_parts import RowParts as RowParts
    from workbench.training.sampler_plan import SamplerPlan as SamplerPlan
    from workbench.training.sampler_plan import plan_sampler as plan_sampler
    from workbench.training.step import BatchLoss as BatchLoss
    from workbench.training.step import take_step as take_step
    from workbench.training.step import train_step as train_step

_NAMES = {
    "cooperative.cost_model": ["PeCounts", "StageSeconds", "StepSeconds", "step_seconds"],
    "cooperative.sampler": ["CooperativeSampler", "exchangers"],
    "cooperative.sampling": ["cooperative_batches", "independent_batches", "reach_counts", "sample_owned"],
    "cooperative.step": ["cooperative_logits", "cooperative_step"],
    "cooperative.work": [
        "CooperativeWork",
        "Work",
        "cooperative_work",
        "expected_inputs",
        "marginal_inputs",
        "measure_work",
        "work_curve",
    ],
    "core.block": ["Block"],
    "core.dataset": ["Dataset", "LinkSplit"],
    "core.edge_file": ["EdgeFile"],
    "core.errors": ["CapacityError", "CorruptFileError", "DataError", "PartitionError", "RankError"],
    "core.exchange": ["Exchange"],
    "core.graph": ["Graph"],
    "core.machine": ["MACHINES", "Machine", "Traffic", "TrafficCounts"],
    "core.minibatch": ["MiniBatch"],
    "core.randomness": ["Nested", "Smoothed"],
    "core.trace": ["AccessTrace"],
    "core.units": ["format_bytes", "parse_bytes"],
    "datasets.load": ["load_dataset"],
    "distributed.group": ["all_reduce_gradients", "check_ranks_agree", "get_rank", "get_world_size"],
    "distributed.measure_machine": ["measure_machine"],
    "distributed.owned_rows": ["OwnedRows", "open_owned_graph"],
    "distributed.rank_pool": ["RankPool", "run_ranks"],
    "experiment.figure_loader": ["load_experiment"],
    "experiment.finding": ["Finding"],
    "experiment.track": ["track"],
    "features.cache.policies": ["CACHE_POLICIES", "rank_by_degree", "rank_by_frequency"],
    "features.cache.simulate": ["CacheCost", "CacheSimulation", "cache_costs", "miss_ratio_curve", "simulate_cache"],
    "features.cached_rows": ["CachedRows", "RecordedRows"],
    "features.disk_rows": ["DiskRows"],
    "features.learned_rows": ["LearnedRows"],
    "features.memory_rows": ["MappedRows", "MemoryRows"],
    "features.protocols": ["FeatureStore", "Stageable", "WritableStore"],
    "features.split_rows": ["split_rows"],
    "features.stage": ["StagedRows", "stage", "windows"],
    "kernels.threads": ["get_num_threads", "set_num_threads"],
    "links.edge_batch": ["EdgeBatch"],
    "links.knowledge_graph": ["KnowledgeGraph"],
    "links.negatives": ["Negatives", "false_negatives", "sample_negatives"],
    "links.triple_file": ["read_knowledge_graph"],
    "macrobatch.aggregation_cache": ["WithoutInputLayer", "aggregate_rows"],
    "macrobatch.macrobatches": ["MacrobatchSampler", "macrobatches"],
    "macrobatch.plan": [
        "FetchBytes",
        "InputHop",
        "MacrobatchCounts",
        "MacrobatchPlan",
        "count_macrobatches",
        "macrobatch_bytes",
        "plan_macrobatch",
    ],
    "macrobatch.relay": ["relay_windows", "sample_relayed"],
    "macrobatch.remote_rows": ["WindowFetches", "remote_rows", "window_fetches"],
    "memory.estimate": ["MemoryEstimate"],
    "memory.estimator": ["byte_costs", "estimate_memory", "estimator_for"],
    "memory.plan": ["Plan", "plan_micro_batches", "plan_with"],
    "memory.training_setup": ["Backend", "Recovery", "TrainingSetup"],
    "meter.epoch_passes": ["EpochPass", "EpochPasses", "measure_epoch"],
    "meter.limit": ["limit_memory"],
    "meter.peak": ["PeakMeter", "measure_peak"],
    "meter.stopwatch": ["Stopwatch", "ThreadStopwatch", "timed"],
    "nn.decoders": ["ComplEx", "Decoder", "DistMult", "DotProduct", "TransE"],
    "nn.dropout": ["HashDropout"],
    "nn.gcn": ["symmetric_norm"],
    "nn.losses": ["Inputs"],
    "nn.model": ["LayerSize", "ModelWork", "build_model", "model_work"],
    "nn.pair_losses": ["PairScores", "logistic_pair_loss", "pair_scores", "softmax_pair_loss"],
    "outofcore.bucket_order": [
        "BucketOrder",
        "NodeOrder",
        "balanced_order",
        "beta_order",
        "comet_order",
        "node_bias",
        "node_order",
        "partition_bias",
    ],
    "outofcore.buffer": ["PartitionBuffer"],
    "outofcore.buffer_batches": ["buffer_batches", "buffer_edge_batches"],
    "outofcore.buffer_state": ["BufferRows", "BufferState"],
    "outofcore.build_store": ["LearntInit"],
    "outofcore.partition_store": ["PartitionStore"],
    "outofcore.tuning": ["BufferPlan", "DiskModel", "EpochIO", "epoch_io", "tune_buffer"],
    "partition.balance": ["ByteCosts"],
    "partition.batch": ["PARTITION_METHODS", "partition_batch", "register_partitioner"],
    "partition.batch.partitioner": ["Partitioner", "Parts"],
    "partition.graph": ["partition_graph"],
    "partition.graph.pagraph": ["PaGraphParts", "pagraph_parts"],
    "partition.graph.split_graph": ["GraphPart", "open_part", "split_graph"],
    "partition.graph.streaming": ["partition_stream"],
    "partition.redundancy": ["Redundancy", "redundancy"],
    "partition.refine": ["refine_parts"],
    "placement.access_probability": ["inclusion_probability"],
    "placement.locality": ["LocalityControl", "LocalitySampler", "locality_factors"],
    "placement.place": ["PLACEMENT_METHODS", "place_rows"],
    "placement.placed_rows": ["PlacedRows"],
    "placement.placement": ["Placement", "RowLookup"],
    "sampling.aggregate_error": ["AggregateError", "aggregate_error", "bias_sigma"],
    "sampling.batches": ["Batches"],
    "sampling.dense": ["DenseSampler"],
    "sampling.edge_batches": ["edge_batches"],
    "sampling.induced": ["induced_edges"],
    "sampling.labor": ["LaborSampler"],
    "sampling.ladies": ["LadiesSampler"],
    "sampling.loader": ["batches", "prefetch"],
    "sampling.neighbor": ["FullNeighborSampler", "NeighborSampler"],
    "sampling.owned_graph": ["OwnedGraph"],
    "sampling.random_walk": ["RandomWalkSampler"],
    "sampling.sampler": ["Drawn", "Sampler"],
    "tracking.compare": ["compare"],
    "tracking.opening": ["open_store"],
    "training.accumulate": ["accumulate"],
    "training.adapters": ["micro_batches"],
    "training.aggregated_rows": ["AggregateOnRead", "AggregatedRows"],
    "training.epoch": ["epoch_steps", "train_epochs"],
    "training.evaluate": ["accuracy", "full_neighbour_logits", "layerwise", "sampled_logits"],
    "training.exactness.check": ["Exactness", "check_exact"],
    "training.link_step": ["link_step"],
    "training.profile": ["EpochProfile", "profile_epoch"],
    "training.ranking": ["LinkMetrics", "evaluate_links", "hits_above", "rank_triples", "score_ranks"],
    "training.row_parts": ["RowParts"],
    "training.sampler_plan": ["SamplerPlan", "plan_sampler"],
    "training.step": ["BatchLoss", "take_step", "train_step"],
}
__version__: str  # of __getattr__, so that no metadata are read on import
_MODULE_OF = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
__all__ = sorted(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def _version() -> str:
    """The installed version; a placeholder if the package is a folder on the path."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gnn-workbench")
    except PackageNotFoundError:
        return "0+uninstalled"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
