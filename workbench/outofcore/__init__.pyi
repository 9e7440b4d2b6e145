from .bucket_order import (
    BucketOrder as BucketOrder,
    NodeOrder as NodeOrder,
    balanced_order as balanced_order,
    beta_order as beta_order,
    comet_order as comet_order,
    node_bias as node_bias,
    node_order as node_order,
    partition_bias as partition_bias,
)
from .buffer import PartitionBuffer as PartitionBuffer
from .buffer_batches import batches as batches, edge_batches as edge_batches
from .buffer_state import BufferRows as BufferRows, BufferState as BufferState
from .build_store import LearntInit as LearntInit
from .packed_rows import PackedRows as PackedRows, pack_rows as pack_rows
from .partition_store import PartitionStore as PartitionStore
from .read_ahead import ReadAhead as ReadAhead, read_ahead as read_ahead
from .reading import (
    Reading as Reading,
    ReadingPlan as ReadingPlan,
    expected_buckets as expected_buckets,
    plan_reading as plan_reading,
    read_by_page as read_by_page,
)
from .row_plan import RowPlan as RowPlan, plan_rows as plan_rows
from .tuning import (
    BufferPlan as BufferPlan,
    DiskModel as DiskModel,
    EpochIO as EpochIO,
    epoch_io as epoch_io,
    plan_buffer as plan_buffer,
)
