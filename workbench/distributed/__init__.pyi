from .group import (
    all_reduce_gradients as all_reduce_gradients,
    check_ranks_agree as check_ranks_agree,
    get_rank as get_rank,
    get_world_size as get_world_size,
)
from .measure_machine import measure_machine as measure_machine
from .owned import OwnedRows as OwnedRows, open_owned_graph as open_owned_graph
from .rank_pool import RankPool as RankPool
