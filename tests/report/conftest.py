"""The toy experiments and their store."""

from tests.toy_experiments import calls as calls
from tests.toy_experiments import store as store
from tests.toy_experiments import toys as toys
