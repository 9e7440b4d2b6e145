"""Interactive notebook cells: thin layers of ipywidgets over pure drawing functions (`…_view`).

An explorer returns a widget with the usual controls of its view; the initial figure if ipywidgets is not installed. For
other controls or choices, call `explore(partial(view, data), argument=choices)`.

Untrusted notebooks and git hosts show no widgets: put a plain figure beside each.
"""

from workbench.widgets.cooperation_explorers import (
    CACHE_SHARES,
    RANK_SAMPLERS,
    WORK_SAMPLERS,
    cache_explorer,
    cache_view,
    cooperation_explorer,
    cooperation_view,
    work_explorer,
    work_view,
)
from workbench.widgets.explore import explore
from workbench.widgets.macrobatch_explorer import macrobatch_explorer, macrobatch_view
from workbench.widgets.micro_batch_explorers import (
    curve_explorer,
    curve_view,
    degree_explorer,
    degree_view,
    micro_batch_explorer,
    micro_batch_view,
    terms_explorer,
    terms_view,
)
from workbench.widgets.order_explorer import ORDERS, order_explorer, order_view
from workbench.widgets.placement_explorers import (
    DEVICE_TOPOLOGIES,
    LOCALITY_FACTORS,
    locality_explorer,
    locality_view,
    placement_explorer,
    placement_view,
)
from workbench.widgets.plan_explorer import (
    Workload,
    advice_explorer,
    advice_view,
    make_plan,
    plan_explorer,
    plan_table,
    plan_view,
)

__all__ = [
    "CACHE_SHARES",
    "DEVICE_TOPOLOGIES",
    "LOCALITY_FACTORS",
    "ORDERS",
    "RANK_SAMPLERS",
    "WORK_SAMPLERS",
    "Workload",
    "advice_explorer",
    "advice_view",
    "cache_explorer",
    "cache_view",
    "cooperation_explorer",
    "cooperation_view",
    "curve_explorer",
    "curve_view",
    "degree_explorer",
    "degree_view",
    "explore",
    "locality_explorer",
    "locality_view",
    "macrobatch_explorer",
    "macrobatch_view",
    "make_plan",
    "micro_batch_explorer",
    "micro_batch_view",
    "order_explorer",
    "order_view",
    "placement_explorer",
    "placement_view",
    "plan_explorer",
    "plan_table",
    "plan_view",
    "terms_explorer",
    "terms_view",
    "work_explorer",
    "work_view",
]
