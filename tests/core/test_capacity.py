"""What no memory holds is refused before it is allocated."""

import pytest

from workbench.core import capacity
from workbench.core.errors import CapacityError


def test_what_is_free_is_the_limit(monkeypatch):
    monkeypatch.setattr(capacity, "available_bytes", lambda: 2**30)
    capacity.check_fits("a table", 2**30, "use a smaller one")
    with pytest.raises(CapacityError, match=r"a table takes 2\.00 GiB, but 1\.00 GiB are free; use a smaller one"):
        capacity.check_fits("a table", 2**31, "use a smaller one")


def test_small_things_ask_nobody(monkeypatch):
    monkeypatch.setattr(capacity, "available_bytes", lambda: 0)
    capacity.check_fits("a table", 2**20, "use a smaller one")
