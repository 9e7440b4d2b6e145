"""Interactive notebook cells: thin layers of ipywidgets over pure drawing functions (`…_view`).

Untrusted notebooks and git hosts show no widgets: put a plain figure beside each.
"""

from workbench.widgets.cache_explorer import CACHE_SHARES, cache_explorer, cache_view
from workbench.widgets.cooperation_explorer import RANK_SAMPLERS, cooperation_explorer, cooperation_view
from workbench.widgets.curve_explorer import curve_explorer, curve_view
from workbench.widgets.degree_explorer import degree_explorer, degree_view
from workbench.widgets.explore import explore
from workbench.widgets.locality_explorer import LOCALITY_FACTORS, locality_explorer, locality_view
from workbench.widgets.macrobatch_explorer import macrobatch_explorer, macrobatch_view
from workbench.widgets.micro_batch_explorer import micro_batch_explorer, micro_batch_view
from workbench.widgets.order_explorer import ORDERS, order_explorer, order_view
from workbench.widgets.placement_explorer import DEVICE_TOPOLOGIES, placement_explorer, placement_view
from workbench.widgets.plan_explorer import Workload, make_plan, plan_explorer, plan_table, plan_view
from workbench.widgets.terms_explorer import terms_explorer, terms_view
from workbench.widgets.work_explorer import WORK_SAMPLERS, work_explorer, work_view

__all__ = [
    "CACHE_SHARES",
    "DEVICE_TOPOLOGIES",
    "LOCALITY_FACTORS",
    "ORDERS",
    "RANK_SAMPLERS",
    "WORK_SAMPLERS",
    "Workload",
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
