"""The toy experiments, and a database that is created once."""

from tests.toy_experiments import calls as calls, store as store, toys as toys
from tests.tracking.conftest import empty_database as empty_database
