"""The toy experiments and their store."""

from tests.toy_experiments import calls as calls, store as store, toys as toys
