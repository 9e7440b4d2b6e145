from .aggregation_cache import WithoutInputLayer as WithoutInputLayer, aggregate_rows as aggregate_rows
from .macrobatches import MacrobatchSampler as MacrobatchSampler, batches as batches
from .plan import (
    FetchBytes as FetchBytes,
    InputHop as InputHop,
    MacrobatchCounts as MacrobatchCounts,
    MacrobatchPlan as MacrobatchPlan,
    WindowFetches as WindowFetches,
    count_macrobatches as count_macrobatches,
    macrobatch_bytes as macrobatch_bytes,
    plan_macrobatch as plan_macrobatch,
    remote_rows as remote_rows,
    window_fetches as window_fetches,
)
from .relay import relay_windows as relay_windows, sample_relayed as sample_relayed
