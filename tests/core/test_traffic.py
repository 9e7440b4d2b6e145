"""Traffic counters: sums by link and item, differences, threads."""

from threading import Thread

import pytest

from workbench.core.machine import Count, Traffic, TrafficCounts


def test_counts_add_up_by_link_and_item() -> None:
    links = Traffic()
    for rows in (3, 2):
        links.add("rank", "rows", rows, 8 * rows)
        links.add("disk", "rows", 1, 8)
    links.add("disk", "edges", 10, 40)
    counts = links.snapshot()
    assert counts.count("rank") == 5 and counts.nbytes("rank", "rows") == 40
    assert counts.count("disk", "edges") == 10 and counts.nbytes("disk") == 2 * 8 + 40
    assert counts.count("peer") == counts.nbytes("peer") == 0
    assert list(links.row()) == [f"{n}{b}" for n in ("disk_rows", "disk_edges", "rank_rows") for b in ("", "_bytes")]
    assert repr(links).startswith("Traffic(disk_rows=2, disk_rows_bytes=16, disk_edges=10")


def test_a_snapshot_is_frozen_and_differences_keep_all_columns() -> None:
    links = Traffic()
    links.add("host", "rows", 4, 16)
    before = links.snapshot()
    links.add("device", "gradients", 0, 0)
    links.add("host", "rows", 1, 4)
    assert before == TrafficCounts({("host", "rows"): Count(4, 16)})
    since = links.snapshot() - before
    assert since.row() == {"host_rows": 1, "host_rows_bytes": 4, "device_gradients": 0, "device_gradients_bytes": 0}


def test_threads_lose_no_count() -> None:
    links = Traffic()

    def add() -> None:
        for _ in range(2000):
            links.add("host", "rows", 1, 3)

    threads = [Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert links.snapshot().counts == {("host", "rows"): Count(8000, 24_000)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hots", "rows", 1, 1), "link 'hots' is not known; choose from device, disk"),
        (("host", "row", 1, 1), "item 'row' is not known"),
        (("host", "rows", -1, 1), "count is -1"),
        (("host", "rows", 1, 0.5), r"nbytes is 0\.5"),
    ],
)
def test_what_cannot_be_counted_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Traffic().add(*arguments)
