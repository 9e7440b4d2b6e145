"""GNN Workbench: composable primitives for training graph neural networks on graphs too large for one GPU.

`import workbench as wb` imports no other library: each public name is imported from its module on first access.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; a test compares it with the table below
    from workbench.core.block import Block as Block
    from workbench.core.dataset import Dataset as Dataset
    from workbench.core.edge_file import EdgeFile as EdgeFile
    from workbench.core.errors import CapacityError as CapacityError
    from workbench.core.errors import CorruptFileError as CorruptFileError
    from workbench.core.errors import DataError as DataError
    from workbench.core.errors import PartitionError as PartitionError
    from workbench.core.errors import RankError as RankError
    from workbench.core.exchange import Exchange as Exchange
    from workbench.core.graph import Graph as Graph
    from workbench.core.link_split import LinkSplit as LinkSplit
    from workbench.core.machine import MACHINES as MACHINES
    from workbench.core.machine import Machine as Machine
    from workbench.core.minibatch import MiniBatch as MiniBatch
    from workbench.core.trace import AccessTrace as AccessTrace
    from workbench.core.traffic import Traffic as Traffic
    from workbench.core.traffic import TrafficCounts as TrafficCounts
    from workbench.core.units import format_bytes as format_bytes
    from workbench.core.units import parse_bytes as parse_bytes
    from workbench.core.variates import Nested as Nested
    from workbench.core.variates import Smoothed as Smoothed
    from workbench.datasets.load import load_dataset as load_dataset
    from workbench.distributed.aggregate_rows import aggregate_rows as aggregate_rows
    from workbench.distributed.agreement import check_ranks_agree as check_ranks_agree
    from workbench.distributed.cooperative_logits import cooperative_logits as cooperative_logits
    from workbench.distributed.cooperative_sampler import CooperativeSampler as CooperativeSampler
    from workbench.distributed.cooperative_step import cooperative_step as cooperative_step
    from workbench.distributed.exchangers import exchangers as exchangers
    from workbench.distributed.gradients import all_reduce_gradients as all_reduce_gradients
    from workbench.distributed.group import get_rank as get_rank
    from workbench.distributed.group import get_world_size as get_world_size
    from workbench.distributed.launch import run_ranks as run_ranks
    from workbench.distributed.macrobatch_sampler import MacrobatchSampler as MacrobatchSampler
    from workbench.distributed.macrobatches import macrobatches as macrobatches
    from workbench.distributed.measure_machine import measure_machine as measure_machine
    from workbench.distributed.open_owned import open_owned_graph as open_owned_graph
    from workbench.distributed.owned_rows import OwnedRows as OwnedRows
    from workbench.distributed.placed_rows import PlacedRows as PlacedRows
    from workbench.distributed.plan_macrobatch import plan_macrobatch as plan_macrobatch
    from workbench.distributed.rank_pool import RankPool as RankPool
    from workbench.experiment.figure_loader import load_experiment as load_experiment
    from workbench.experiment.finding import Finding as Finding
    from workbench.experiment.track import track as track
    from workbench.features.aggregate_cost import InputHop as InputHop
    from workbench.features.cache.costs import CacheCost as CacheCost
    from workbench.features.cache.costs import cache_costs as cache_costs
    from workbench.features.cache.policies import CACHE_POLICIES as CACHE_POLICIES
    from workbench.features.cache.simulate import CacheSimulation as CacheSimulation
    from workbench.features.cache.simulate import simulate_cache as simulate_cache
    from workbench.features.cache.stack_distance import miss_ratio_curve as miss_ratio_curve
    from workbench.features.cache.static import rank_by_degree as rank_by_degree
    from workbench.features.cache.static import rank_by_frequency as rank_by_frequency
    from workbench.features.cached_rows import CachedRows as CachedRows
    from workbench.features.disk_rows import DiskRows as DiskRows
    from workbench.features.learned_rows import LearnedRows as LearnedRows
    from workbench.features.macrobatch_bytes import FetchBytes as FetchBytes
    from workbench.features.macrobatch_bytes import macrobatch_bytes as macrobatch_bytes
    from workbench.features.macrobatch_counts import MacrobatchCounts as MacrobatchCounts
    from workbench.features.macrobatch_counts import count_macrobatches as count_macrobatches
    from workbench.features.macrobatch_plan import MacrobatchPlan as MacrobatchPlan
    from workbench.features.mapped_rows import MappedRows as MappedRows
    from workbench.features.memory_rows import MemoryRows as MemoryRows
    from workbench.features.protocols import FeatureStore as FeatureStore
    from workbench.features.protocols import Stageable as Stageable
    from workbench.features.protocols import WritableStore as WritableStore
    from workbench.features.recorded_rows import RecordedRows as RecordedRows
    from workbench.features.split_rows import split_rows as split_rows
    from workbench.features.stage import StagedRows as StagedRows
    from workbench.features.stage import stage as stage
    from workbench.features.stage import windows as windows
    from workbench.features.window_fetches import WindowFetches as WindowFetches
    from workbench.features.window_fetches import window_fetches as window_fetches
    from workbench.kernels.threads import get_num_threads as get_num_threads
    from workbench.kernels.threads import set_num_threads as set_num_threads
    from workbench.links.edge_batch import EdgeBatch as EdgeBatch
    from workbench.links.false_negatives import false_negatives as false_negatives
    from workbench.links.knowledge_graph import KnowledgeGraph as KnowledgeGraph
    from workbench.links.negatives import Negatives as Negatives
    from workbench.links.negatives import sample_negatives as sample_negatives
    from workbench.links.triple_file import read_knowledge_graph as read_knowledge_graph
    from workbench.memory.backend import Backend as Backend
    from workbench.memory.byte_costs import byte_costs as byte_costs
    from workbench.memory.estimate import MemoryEstimate as MemoryEstimate
    from workbench.memory.estimator import estimate_memory as estimate_memory
    from workbench.memory.estimator import estimator_for as estimator_for
    from workbench.memory.plan import Plan as Plan
    from workbench.memory.plan import plan_micro_batches as plan_micro_batches
    from workbench.memory.plan import plan_with as plan_with
    from workbench.memory.recovery import Recovery as Recovery
    from workbench.memory.training_setup import TrainingSetup as TrainingSetup
    from workbench.meter.epoch_passes import EpochPass as EpochPass
    from workbench.meter.epoch_passes import EpochPasses as EpochPasses
    from workbench.meter.epoch_passes import measure_epoch as measure_epoch
    from workbench.meter.limit import limit_memory as limit_memory
    from workbench.meter.peak import PeakMeter as PeakMeter
    from workbench.meter.peak import measure_peak as measure_peak
    from workbench.meter.stopwatch import Stopwatch as Stopwatch
    from workbench.meter.stopwatch import timed as timed
    from workbench.meter.thread_stopwatch import ThreadStopwatch as ThreadStopwatch
    from workbench.nn.decoder import Decoder as Decoder
    from workbench.nn.decoders import ComplEx as ComplEx
    from workbench.nn.decoders import DistMult as DistMult
    from workbench.nn.decoders import DotProduct as DotProduct
    from workbench.nn.decoders import TransE as TransE
    from workbench.nn.dropout import HashDropout as HashDropout
    from workbench.nn.inputs import Inputs as Inputs
    from workbench.nn.model import build_model as build_model
    from workbench.nn.model_work import LayerSize as LayerSize
    from workbench.nn.model_work import ModelWork as ModelWork
    from workbench.nn.model_work import model_work as model_work
    from workbench.nn.pair_losses import logistic_pair_loss as logistic_pair_loss
    from workbench.nn.pair_losses import softmax_pair_loss as softmax_pair_loss
    from workbench.nn.pair_scores import PairScores as PairScores
    from workbench.nn.pair_scores import pair_scores as pair_scores
    from workbench.nn.symmetric_norm import symmetric_norm as symmetric_norm
    from workbench.outofcore.balanced import balanced_order as balanced_order
    from workbench.outofcore.beta import beta_order as beta_order
    from workbench.outofcore.bucket_order import BucketOrder as BucketOrder
    from workbench.outofcore.buffer import PartitionBuffer as PartitionBuffer
    from workbench.outofcore.buffer_batches import buffer_batches as buffer_batches
    from workbench.outofcore.buffer_edge_batches import buffer_edge_batches as buffer_edge_batches
    from workbench.outofcore.buffer_rows import BufferRows as BufferRows
    from workbench.outofcore.buffer_state import BufferState as BufferState
    from workbench.outofcore.comet import comet_order as comet_order
    from workbench.outofcore.disk_model import DiskModel as DiskModel
    from workbench.outofcore.epoch_io import EpochIO as EpochIO
    from workbench.outofcore.epoch_io import epoch_io as epoch_io
    from workbench.outofcore.learnt_init import LearntInit as LearntInit
    from workbench.outofcore.node_order import NodeOrder as NodeOrder
    from workbench.outofcore.node_order import node_order as node_order
    from workbench.outofcore.partition_store import PartitionStore as PartitionStore
    from workbench.outofcore.permutation_bias import node_bias as node_bias
    from workbench.outofcore.permutation_bias import partition_bias as partition_bias
    from workbench.outofcore.tuning import BufferPlan as BufferPlan
    from workbench.outofcore.tuning import tune_buffer as tune_buffer
    from workbench.partition.batch import PARTITION_METHODS as PARTITION_METHODS
    from workbench.partition.batch import partition_batch as partition_batch
    from workbench.partition.batch import register_partitioner as register_partitioner
    from workbench.partition.batch.partitioner import Partitioner as Partitioner
    from workbench.partition.batch.partitioner import Parts as Parts
    from workbench.partition.costs import ByteCosts as ByteCosts
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
    from workbench.placement.place import PLACEMENT_METHODS as PLACEMENT_METHODS
    from workbench.placement.place import place_rows as place_rows
    from workbench.placement.placement import Placement as Placement
    from workbench.placement.placement import RowLookup as RowLookup
    from workbench.sampling.aggregate_error import AggregateError as AggregateError
    from workbench.sampling.aggregate_error import aggregate_error as aggregate_error
    from workbench.sampling.batches import Batches as Batches
    from workbench.sampling.bias_sigma import bias_sigma as bias_sigma
    from workbench.sampling.cooperation_cost import PeCounts as PeCounts
    from workbench.sampling.cooperation_cost import StageSeconds as StageSeconds
    from workbench.sampling.cooperation_cost import StepSeconds as StepSeconds
    from workbench.sampling.cooperation_cost import step_seconds as step_seconds
    from workbench.sampling.cooperative import cooperative_batches as cooperative_batches
    from workbench.sampling.cooperative import independent_batches as independent_batches
    from workbench.sampling.cooperative import sample_owned as sample_owned
    from workbench.sampling.cooperative_work import CooperativeWork as CooperativeWork
    from workbench.sampling.cooperative_work import cooperative_work as cooperative_work
    from workbench.sampling.dense import DenseSampler as DenseSampler
    from workbench.sampling.drawn import Drawn as Drawn
    from workbench.sampling.edge_loader import edge_batches as edge_batches
    from workbench.sampling.inclusion import inclusion_probability as inclusion_probability
    from workbench.sampling.induced import induced_edges as induced_edges
    from workbench.sampling.labor import LaborSampler as LaborSampler
    from workbench.sampling.ladies import LadiesSampler as LadiesSampler
    from workbench.sampling.loader import batches as batches
    from workbench.sampling.loader import prefetch as prefetch
    from workbench.sampling.locality import LocalitySampler as LocalitySampler
    from workbench.sampling.locality_factors import locality_factors as locality_factors
    from workbench.sampling.neighbor import FullNeighborSampler as FullNeighborSampler
    from workbench.sampling.neighbor import NeighborSampler as NeighborSampler
    from workbench.sampling.owned_graph import OwnedGraph as OwnedGraph
    from workbench.sampling.random_walk import RandomWalkSampler as RandomWalkSampler
    from workbench.sampling.reach import reach_counts as reach_counts
    from workbench.sampling.relay import sample_relayed as sample_relayed
    from workbench.sampling.relay_windows import relay_windows as relay_windows
    from workbench.sampling.remote_rows import remote_rows as remote_rows
    from workbench.sampling.sampler import Sampler as Sampler
    from workbench.sampling.without_input_layer import WithoutInputLayer as WithoutInputLayer
    from workbench.sampling.work import Work as Work
    from workbench.sampling.work import expected_inputs as expected_inputs
    from workbench.sampling.work import marginal_inputs as marginal_inputs
    from workbench.sampling.work import measure_work as measure_work
    from workbench.sampling.work import work_curve as work_curve
    from workbench.tracking.compare import compare as compare
    from workbench.tracking.opening import open_store as open_store
    from workbench.training.accumulate import accumulate as accumulate
    from workbench.training.adapters import micro_batches as micro_batches
    from workbench.training.aggregate_on_read import AggregateOnRead as AggregateOnRead
    from workbench.training.aggregated_rows import AggregatedRows as AggregatedRows
    from workbench.training.batch_loss import BatchLoss as BatchLoss
    from workbench.training.epoch import epoch_steps as epoch_steps
    from workbench.training.epoch import train_epochs as train_epochs
    from workbench.training.evaluate import accuracy as accuracy
    from workbench.training.evaluate import full_neighbour_logits as full_neighbour_logits
    from workbench.training.exactness.check import check_exact as check_exact
    from workbench.training.exactness.result import Exactness as Exactness
    from workbench.training.layerwise import layerwise as layerwise
    from workbench.training.link_step import link_step as link_step
    from workbench.training.locality_control import LocalityControl as LocalityControl
    from workbench.training.profile import EpochProfile as EpochProfile
    from workbench.training.profile import profile_epoch as profile_epoch
    from workbench.training.ranking import LinkMetrics as LinkMetrics
    from workbench.training.ranking import evaluate_links as evaluate_links
    from workbench.training.ranking import hits_above as hits_above
    from workbench.training.ranking import rank_triples as rank_triples
    from workbench.training.ranking import score_ranks as score_ranks
    from workbench.training.row_parts import RowParts as RowParts
    from workbench.training.sampled_logits import sampled_logits as sampled_logits
    from workbench.training.sampler_plan import SamplerPlan as SamplerPlan
    from workbench.training.sampler_plan import plan_sampler as plan_sampler
    from workbench.training.step import take_step as take_step
    from workbench.training.step import train_step as train_step

_NAMES = {
    "core.block": ["Block"],
    "core.dataset": ["Dataset"],
    "links.edge_batch": ["EdgeBatch"],
    "core.edge_file": ["EdgeFile"],
    "core.errors": ["CapacityError", "CorruptFileError", "DataError", "PartitionError", "RankError"],
    "core.exchange": ["Exchange"],
    "core.graph": ["Graph"],
    "links.knowledge_graph": ["KnowledgeGraph"],
    "links.false_negatives": ["false_negatives"],
    "links.negatives": ["Negatives", "sample_negatives"],
    "links.triple_file": ["read_knowledge_graph"],
    "meter.limit": ["limit_memory"],
    "core.link_split": ["LinkSplit"],
    "meter.peak": ["PeakMeter", "measure_peak"],
    "core.machine": ["MACHINES", "Machine"],
    "core.minibatch": ["MiniBatch"],
    "meter.epoch_passes": ["EpochPass", "EpochPasses", "measure_epoch"],
    "meter.stopwatch": ["Stopwatch", "timed"],
    "meter.thread_stopwatch": ["ThreadStopwatch"],
    "core.trace": ["AccessTrace"],
    "core.traffic": ["Traffic", "TrafficCounts"],
    "core.units": ["format_bytes", "parse_bytes"],
    "core.variates": ["Nested", "Smoothed"],
    "datasets.load": ["load_dataset"],
    "distributed.aggregate_rows": ["aggregate_rows"],
    "distributed.agreement": ["check_ranks_agree"],
    "distributed.cooperative_logits": ["cooperative_logits"],
    "distributed.cooperative_sampler": ["CooperativeSampler"],
    "distributed.cooperative_step": ["cooperative_step"],
    "distributed.exchangers": ["exchangers"],
    "distributed.gradients": ["all_reduce_gradients"],
    "distributed.group": ["get_rank", "get_world_size"],
    "distributed.launch": ["run_ranks"],
    "distributed.macrobatch_sampler": ["MacrobatchSampler"],
    "distributed.macrobatches": ["macrobatches"],
    "distributed.open_owned": ["open_owned_graph"],
    "distributed.measure_machine": ["measure_machine"],
    "distributed.owned_rows": ["OwnedRows"],
    "distributed.plan_macrobatch": ["plan_macrobatch"],
    "distributed.placed_rows": ["PlacedRows"],
    "distributed.rank_pool": ["RankPool"],
    "experiment.finding": ["Finding"],
    "experiment.figure_loader": ["load_experiment"],
    "experiment.track": ["track"],
    "features.aggregate_cost": ["InputHop"],
    "features.cache.costs": ["CacheCost", "cache_costs"],
    "features.cache.policies": ["CACHE_POLICIES"],
    "features.cache.simulate": ["CacheSimulation", "simulate_cache"],
    "features.cache.stack_distance": ["miss_ratio_curve"],
    "features.cache.static": ["rank_by_degree", "rank_by_frequency"],
    "features.cached_rows": ["CachedRows"],
    "features.disk_rows": ["DiskRows"],
    "features.learned_rows": ["LearnedRows"],
    "features.macrobatch_bytes": ["FetchBytes", "macrobatch_bytes"],
    "features.macrobatch_counts": ["MacrobatchCounts", "count_macrobatches"],
    "features.macrobatch_plan": ["MacrobatchPlan"],
    "features.mapped_rows": ["MappedRows"],
    "features.memory_rows": ["MemoryRows"],
    "features.protocols": ["FeatureStore", "Stageable", "WritableStore"],
    "features.recorded_rows": ["RecordedRows"],
    "features.split_rows": ["split_rows"],
    "features.stage": ["StagedRows", "stage", "windows"],
    "features.window_fetches": ["WindowFetches", "window_fetches"],
    "kernels.threads": ["get_num_threads", "set_num_threads"],
    "memory.estimator": ["estimate_memory", "estimator_for"],
    "memory.backend": ["Backend"],
    "memory.byte_costs": ["byte_costs"],
    "memory.plan": ["Plan", "plan_micro_batches", "plan_with"],
    "memory.recovery": ["Recovery"],
    "memory.training_setup": ["TrainingSetup"],
    "memory.estimate": ["MemoryEstimate"],
    "nn.decoder": ["Decoder"],
    "nn.decoders": ["ComplEx", "DistMult", "DotProduct", "TransE"],
    "nn.dropout": ["HashDropout"],
    "nn.inputs": ["Inputs"],
    "nn.model": ["build_model"],
    "nn.model_work": ["LayerSize", "ModelWork", "model_work"],
    "nn.pair_losses": ["logistic_pair_loss", "softmax_pair_loss"],
    "nn.pair_scores": ["PairScores", "pair_scores"],
    "nn.symmetric_norm": ["symmetric_norm"],
    "outofcore.balanced": ["balanced_order"],
    "outofcore.beta": ["beta_order"],
    "outofcore.bucket_order": ["BucketOrder"],
    "outofcore.buffer_batches": ["buffer_batches"],
    "outofcore.buffer_edge_batches": ["buffer_edge_batches"],
    "outofcore.comet": ["comet_order"],
    "outofcore.learnt_init": ["LearntInit"],
    "outofcore.partition_store": ["PartitionStore"],
    "outofcore.epoch_io": ["EpochIO", "epoch_io"],
    "outofcore.buffer_rows": ["BufferRows"],
    "outofcore.buffer": ["PartitionBuffer"],
    "outofcore.buffer_state": ["BufferState"],
    "outofcore.disk_model": ["DiskModel"],
    "outofcore.node_order": ["NodeOrder", "node_order"],
    "outofcore.permutation_bias": ["node_bias", "partition_bias"],
    "outofcore.tuning": ["BufferPlan", "tune_buffer"],
    "partition.batch": ["PARTITION_METHODS", "partition_batch", "register_partitioner"],
    "partition.batch.partitioner": ["Partitioner", "Parts"],
    "partition.costs": ["ByteCosts"],
    "partition.graph": ["partition_graph"],
    "partition.graph.split_graph": ["GraphPart", "open_part", "split_graph"],
    "partition.graph.streaming": ["partition_stream"],
    "partition.graph.pagraph": ["PaGraphParts", "pagraph_parts"],
    "partition.redundancy": ["Redundancy", "redundancy"],
    "partition.refine": ["refine_parts"],
    "placement.place": ["PLACEMENT_METHODS", "place_rows"],
    "placement.placement": ["Placement", "RowLookup"],
    "sampling.aggregate_error": ["AggregateError", "aggregate_error"],
    "sampling.bias_sigma": ["bias_sigma"],
    "sampling.neighbor": ["FullNeighborSampler", "NeighborSampler"],
    "sampling.batches": ["Batches"],
    "sampling.dense": ["DenseSampler"],
    "sampling.edge_loader": ["edge_batches"],
    "sampling.inclusion": ["inclusion_probability"],
    "sampling.induced": ["induced_edges"],
    "sampling.labor": ["LaborSampler"],
    "sampling.ladies": ["LadiesSampler"],
    "sampling.loader": ["batches", "prefetch"],
    "sampling.locality": ["LocalitySampler"],
    "sampling.locality_factors": ["locality_factors"],
    "sampling.reach": ["reach_counts"],
    "sampling.relay": ["sample_relayed"],
    "sampling.relay_windows": ["relay_windows"],
    "sampling.remote_rows": ["remote_rows"],
    "sampling.random_walk": ["RandomWalkSampler"],
    "sampling.cooperation_cost": ["PeCounts", "StageSeconds", "StepSeconds", "step_seconds"],
    "sampling.cooperative": ["cooperative_batches", "independent_batches", "sample_owned"],
    "sampling.cooperative_work": ["CooperativeWork", "cooperative_work"],
    "sampling.drawn": ["Drawn"],
    "sampling.owned_graph": ["OwnedGraph"],
    "sampling.sampler": ["Sampler"],
    "sampling.without_input_layer": ["WithoutInputLayer"],
    "sampling.work": ["Work", "expected_inputs", "marginal_inputs", "measure_work", "work_curve"],
    "tracking.compare": ["compare"],
    "tracking.opening": ["open_store"],
    "training.accumulate": ["accumulate"],
    "training.epoch": ["epoch_steps", "train_epochs"],
    "training.exactness.check": ["check_exact"],
    "training.exactness.result": ["Exactness"],
    "training.evaluate": ["accuracy", "full_neighbour_logits"],
    "training.adapters": ["micro_batches"],
    "training.layerwise": ["layerwise"],
    "training.link_step": ["link_step"],
    "training.ranking": ["LinkMetrics", "evaluate_links", "hits_above", "rank_triples", "score_ranks"],
    "training.row_parts": ["RowParts"],
    "training.locality_control": ["LocalityControl"],
    "training.profile": ["EpochProfile", "profile_epoch"],
    "training.aggregate_on_read": ["AggregateOnRead"],
    "training.aggregated_rows": ["AggregatedRows"],
    "training.batch_loss": ["BatchLoss"],
    "training.sampled_logits": ["sampled_logits"],
    "training.sampler_plan": ["SamplerPlan", "plan_sampler"],
    "training.step": ["take_step", "train_step"],
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
