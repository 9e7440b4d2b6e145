"""The simulated allocator against bytes counted by hand."""

from workbench.memory.analytic.fake_autograd import SimulatedAllocator


def test_storages_are_rounded_moved_between_terms_and_freed() -> None:
    allocator = SimulatedAllocator()
    storages = [allocator.allocate(size, "hidden") for size in (1, 512, 513)]
    assert (allocator.total, allocator.peak) == (2048, 2048)
    storages[2].set_term("loss")
    assert allocator.live["hidden"] == 1024
    assert allocator.live["loss"] == 1024
    storages.clear()
    assert allocator.total == 0
    assert not any(allocator.live.values())
    assert allocator.peak == 2048
