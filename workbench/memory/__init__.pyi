from .estimator import byte_costs as byte_costs, estimator_for as estimator_for
from .plan import plan_with as plan_with
from .training_setup import Backend as Backend
