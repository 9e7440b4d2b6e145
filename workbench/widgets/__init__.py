"""Interactive cells of notebooks: thin over ipywidgets; what they draw are pure functions that tests call too.

A notebook that is reopened untrusted, or seen on a git host, shows no widget: place a plain figure beside each.
"""

from workbench.widgets.curves import curve_explorer, curve_view
from workbench.widgets.degrees import degree_explorer, degree_view
from workbench.widgets.explore import explore
from workbench.widgets.micro_batch import micro_batch_explorer, micro_batch_view
from workbench.widgets.plan import Workload, make_plan, plan_explorer, plan_table, plan_view
from workbench.widgets.terms import terms_explorer, terms_view

__all__ = [
    "Workload",
    "curve_explorer",
    "curve_view",
    "degree_explorer",
    "degree_view",
    "explore",
    "make_plan",
    "micro_batch_explorer",
    "micro_batch_view",
    "plan_explorer",
    "plan_table",
    "plan_view",
    "terms_explorer",
    "terms_view",
]
