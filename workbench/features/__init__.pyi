from .cache.policies import (
    CACHE_POLICIES as CACHE_POLICIES,
    rank_by_degree as rank_by_degree,
    rank_by_frequency as rank_by_frequency,
)
from .cache.simulate import (
    CacheCost as CacheCost,
    CacheSimulation as CacheSimulation,
    cache_costs as cache_costs,
    miss_ratio_curve as miss_ratio_curve,
    simulate_cache as simulate_cache,
)
from .cached_rows import RecordedRows as RecordedRows
from .memory_rows import split_rows as split_rows
from .protocols import Stageable as Stageable, WritableStore as WritableStore
from .stage import StagedRows as StagedRows
