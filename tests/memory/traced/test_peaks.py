"""What is learnt from recordings whose storages come in one order, in some, or in none."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tests.memory.traced.test_relation import DST, EDGES, LARGE, SEEN, sizes_of
from tests.memory.traced.test_sample import BATCH
from workbench.memory.traced.peaks import Either, Regressed, Replayed, fit_peaks
from workbench.memory.traced.sample import sub_batches
from workbench.memory.traced.trace import Recording, Script, Terms

IN_ORDER = Script((0, 1, 0, 2, 1, 2), ("inputs", "hidden", "workspace"), (("forward", 0), ("backward", 3)))
OF_DEGREE_ONE = 13


def bytes_of(sizes: np.ndarray) -> np.ndarray:
    return np.array([512 * sizes[EDGES], 1024 * sizes[DST] + 512, 256 * sizes[EDGES]])


def recording(sizes: np.ndarray, script: Script = IN_ORDER) -> Recording:
    return Recording(script, bytes_of(sizes))


def detour(number: int) -> Script:
    """As `IN_ORDER`, with something small made and freed so often in between."""
    between = tuple(n for n in range(3, 3 + number) for _ in range(2))
    return Script(
        (0, 1, *between, 0, 2, 1, 2),
        (*IN_ORDER.terms, *("hidden",) * number),
        (("forward", 0), ("backward", 3 + 2 * number)),
    )


def detoured(sizes: np.ndarray, number: int) -> Recording:
    return Recording(detour(number), np.concatenate([bytes_of(sizes), np.full(number, 512)]))


def peak(phases: Mapping[str, Terms]) -> int:
    return max(sum(terms.values()) for terms in phases.values())


def test_one_order_is_gone_through_at_any_size() -> None:
    fitted, error = fit_peaks(SEEN, [recording(sizes) for sizes in SEEN], LARGE[-1])
    assert isinstance(fitted, Replayed) and error == 0
    for sizes in LARGE:
        assert fitted(sizes) == recording(sizes).peaks()


def test_without_an_order_peaks_follow_the_sizes() -> None:
    seen, whole = np.stack([sizes_of(part) for part in sub_batches(BATCH)]), sizes_of(BATCH)
    recordings = [detoured(sizes, number) for number, sizes in enumerate(seen)]
    fitted, error = fit_peaks(seen, recordings, whole)
    assert isinstance(fitted, Regressed) and 0 < error < 0.1
    for sizes in (seen[-1], whole):
        assert -0.05 < peak(fitted(sizes)) / peak(recording(sizes).peaks()) - 1 < 0.1
    assert set(fitted(whole)["forward"]) == {"inputs", "hidden", "workspace"}


def test_an_order_that_most_have_holds_where_in_degrees_are_there() -> None:
    """Batches without destinations of in-degree 1 take another way."""
    sizes = np.concatenate([SEEN, SEEN[::2]])
    sizes[len(SEEN) :, OF_DEGREE_ONE] = 0
    assert (SEEN[:, OF_DEGREE_ONE] > 0).all()
    recordings = [recording(row) if row[OF_DEGREE_ONE] else detoured(row, 1) for row in sizes]
    fitted, _ = fit_peaks(sizes, recordings, LARGE[-1])
    assert isinstance(fitted, Either)
    for row in LARGE:
        assert fitted(row) == recording(row).peaks()
    without, lower = SEEN[-1].copy(), Regressed({"forward": np.zeros(1 + SEEN.shape[1])}, {"forward": {"hidden": 1.0}})
    without[OF_DEGREE_ONE] = 0
    assert peak(fitted(without)) <= peak(recording(without).peaks())
    assert peak(replace(fitted, regressed=lower)(without)) == 0
    assert peak(replace(fitted, regressed=lower)(SEEN[-1])) == peak(recording(SEEN[-1]).peaks())


def test_what_no_size_gives_is_stated_as_the_share_that_estimates_lack() -> None:
    """So the error tells what the largest part needs."""
    values = SEEN[:, EDGES] ** 2 * SEEN[:, DST]
    recordings = [Recording(IN_ORDER, np.array([512, v, 512])) for v in values]
    fitted, error = fit_peaks(SEEN, recordings, LARGE[-1])
    largest = SEEN[:, -1].argmax()
    lowest = peak(fitted(SEEN[largest])) / peak(recordings[largest].peaks())
    assert lowest < 0.5
    assert 1 - lowest <= error < 1


def test_one_recording_is_all_there_is() -> None:
    fitted, error = fit_peaks(SEEN[:1], [recording(SEEN[0])], SEEN[0])
    assert fitted(SEEN[0]) == recording(SEEN[0]).peaks() and error == 0
