"""Groups of dependent batches: which streams they mix, and the laws of PAPERS' smoothing of the variates."""

import math
from functools import lru_cache
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy import stats

import workbench as wb
from workbench.core.randomness import Purpose, Variates, check_dependence, is_mixed, stream, variates
from workbench.kernels.hash import hash_index_torch, mixed_uniform_torch, normal_torch

SAMPLING = Purpose.SAMPLING
COUNT = 10**6
KAPPAS = st.integers(1, 2**70) | st.just(math.inf)
STEPS = st.integers(-(2**63), 2**63 - 1)


def test_independent_batches_have_the_stream_of_their_step():
    assert variates(3, SAMPLING, 5, 1) == Variates(stream(3, SAMPLING, 5, 1), 0, 1.0, 0.0)


@given(step=STEPS, kind=st.sampled_from([wb.Smoothed, wb.Nested]))
def test_a_kappa_of_1_is_independent(step, kind):
    assert variates(3, SAMPLING, step, 1, kind(1)) == variates(3, SAMPLING, step, 1)


@given(steps=st.lists(STEPS, min_size=2, max_size=2), kind=st.sampled_from([wb.Smoothed, wb.Nested]))
def test_an_infinite_kappa_is_one_stream_for_the_run(steps, kind):
    one, other = (variates(3, SAMPLING, step, 1, kind(math.inf)) for step in steps)
    assert one == other
    assert one.sine == 0


@given(step=STEPS, kappa=st.integers(1, 2**70))
def test_nested_batches_share_the_stream_of_their_group(step, kappa):
    assert variates(3, SAMPLING, step, 1, wb.Nested(kappa)) == Variates(stream(3, SAMPLING, step // kappa, 1))


@given(step=st.integers(-100, 100), kappa=st.integers(2, 30))
def test_smoothed_batches_mix_their_group_and_the_next(step, kappa):
    group, offset = step // kappa, step % kappa
    key, next_key, cosine, sine = variates(3, SAMPLING, step, 1, wb.Smoothed(kappa))
    assert key == stream(3, SAMPLING, group, 1)
    assert next_key == (stream(3, SAMPLING, group + 1, 1) if offset else 0)
    angle = math.pi * offset / kappa / 2
    assert (cosine, sine) == pytest.approx((math.cos(angle), math.sin(angle)))


@given(step=STEPS, kappa=KAPPAS)
def test_shares_keep_the_variance(step, kappa):
    drawn = variates(0, SAMPLING, step, dependence=wb.Smoothed(kappa))
    assert drawn.cosine > 0
    assert drawn.sine >= 0
    assert drawn.cosine**2 + drawn.sine**2 == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("kind", [wb.Smoothed, wb.Nested])
@pytest.mark.parametrize("kappa", [0, -1, 2.0, 1.5, True, "4", None, math.nan, -math.inf])
def test_a_wrong_kappa_is_refused(kind, kappa):
    with pytest.raises(ValueError, match=r"kappa is .*; it must be a whole number of at least 1, or math\.inf"):
        kind(kappa)


def test_records_are_frozen_and_compare_by_value():
    assert wb.Smoothed(4) == wb.Smoothed(np.int64(4))  # pyright: ignore[reportArgumentType]
    assert wb.Smoothed(4) != wb.Nested(4)
    with pytest.raises(AttributeError):
        wb.Nested(4).kappa = 5  # pyright: ignore[reportAttributeAccessIssue]


def test_a_step_of_more_than_64_bits_is_refused():
    with pytest.raises(ValueError, match="step is 9223372036854775808"):
        variates(0, SAMPLING, 2**63, dependence=wb.Smoothed(4))


def test_a_dependence_of_another_type_is_refused():
    with pytest.raises(TypeError, match=r"dependence is an int; pass Smoothed\(4\), Nested\(4\), or None"):
        check_dependence(4)
    for dependence in (None, wb.Smoothed(4), wb.Nested(4)):
        check_dependence(dependence)


def test_only_smoothed_groups_of_several_batches_mix():
    assert is_mixed(wb.Smoothed(2))
    assert is_mixed(wb.Smoothed(math.inf))
    assert not any(map(is_mixed, [None, wb.Nested(8), wb.Smoothed(1)]))


@lru_cache
def normals_of(key: int) -> np.ndarray:
    return normal_torch(hash_index_torch(key, torch.arange(COUNT))).numpy()


def mixture(drawn: Variates) -> np.ndarray:
    """The normals of `mixed_normal_torch`, with each stream computed once."""
    first = drawn.cosine * normals_of(drawn.key)
    return first + drawn.sine * normals_of(drawn.next_key) if drawn.sine else first


def law(i: int, j: int, kappa: int) -> float:
    """Correlation of the normals of steps i < j."""
    (group, a), (later, b) = divmod(i, kappa), divmod(j, kappa)
    if group == later:
        return math.cos(math.pi * (j - i) / (2 * kappa))
    return math.sin(math.pi * a / kappa / 2) * math.cos(math.pi * b / kappa / 2) if later == group + 1 else 0.0


@pytest.mark.parametrize("kappa", [2, 3, 8])
def test_correlations_follow_the_law(kappa):
    """All pairs of three groups at N = 10⁶, within 4/√N: four standard errors at least."""
    steps = [mixture(variates(0, SAMPLING, step, dependence=wb.Smoothed(kappa))) for step in range(3 * kappa)]
    measured = np.corrcoef(steps)
    pairs = list(combinations(range(3 * kappa), 2))
    assert max(abs(measured[i, j] - law(i, j, kappa)) for i, j in pairs) <= 4 / COUNT**0.5
    lag = [law(step, step + kappa, kappa) for step in range(kappa)]
    assert lag == pytest.approx([math.sin(math.pi * step / kappa) / 2 for step in range(kappa)])


@pytest.mark.parametrize("step", range(3))
def test_each_batch_alone_has_uniform_variates(step):
    """Kolmogorov–Smirnov at N = 10⁶: a true uniform exceeds 2.7/√N with a probability below 1e-6."""
    drawn = variates(0, SAMPLING, step, dependence=wb.Smoothed(3))
    uniforms = mixed_uniform_torch(*drawn, torch.arange(COUNT)).numpy()
    assert stats.kstest(uniforms, "uniform", method="asymp").statistic <= 2.7 / COUNT**0.5
