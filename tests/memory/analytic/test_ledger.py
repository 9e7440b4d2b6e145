"""The ledger against bytes counted by hand."""

from workbench.memory.analytic.ledger import Ledger


def test_nothing_is_left_on_the_ledger() -> None:
    ledger = Ledger()
    kept = [ledger.hold(size, "hidden") for size in (1, 512, 513)]
    assert (ledger.total, ledger.peak) == (2048, 2048)
    kept[2].book("loss")
    assert ledger.live["hidden"] == 1024
    assert ledger.live["loss"] == 1024
    kept.clear()
    assert ledger.total == 0
    assert not any(ledger.live.values())
    assert ledger.peak == 2048
