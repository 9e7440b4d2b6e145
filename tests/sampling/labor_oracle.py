"""LABOR in plain Python, as the paper states it: c and π, not their inverses, and c by trying every number of ones."""

from workbench.core.randomness import Variates
from workbench.kernels.hash import _GAMMA, _U64, _mix_int

Rows = list[list[int]]


def variate(key: int, source: int) -> float:
    """Return r of a source: indexed SplitMix64 in Python's integers."""
    return (_mix_int((key & _U64) + (source + 1) * _GAMMA) >> 11) / 2**53


def inclusion(rows: Rows, k: int, rounds: int | None) -> list[list[float]]:
    """Return min(1, c_s · π_t) of every edge; `rounds` 0: LABOR-0, None: until convergence."""
    c = [k / len(row) if row else 1.0 for row in rows]
    pi = {t: 1.0 for row in rows for t in row}
    done, previous = 0, float("inf")
    while rounds != done:
        most = {t: max(c[s] for s, row in enumerate(rows) if t in row) for t in pi}
        pi = {t: min(p * most[t], 1e60) for t, p in pi.items()}
        c = [solve([pi[t] for t in row], k, c[s]) for s, row in enumerate(rows)]
        total, done = sum(min(1, p) for p in pi.values()), done + 1
        if total >= previous * (1 - 1e-4):
            break
        previous = total
    return [[min(1, c[s] * pi[t]) for t in row] for s, row in enumerate(rows)]


def solve(pi: list[float], k: int, c: float) -> float:
    """Return c with Σ 1 / min(1, c · π) = d² / k: the m sources of the largest π are kept for certain."""
    if len(pi) <= k:
        return c
    order = sorted(pi, reverse=True)
    for m in range(len(pi)):
        c = sum(1 / p for p in order[m:]) / (len(pi) ** 2 / k - m)
        if c * order[m] <= 1:
            break
    return c


def kept(row: list[int], p: list[float], k: int, variates: Variates, *, poisson: bool) -> list[int]:
    """Return the offsets of the edges that a row keeps."""
    r = [variate(variates.key, t) for t in row]
    if poisson:
        return [j for j in range(len(row)) if r[j] <= p[j]]
    return sorted(sorted(range(len(row)), key=lambda j: (r[j], j))[:k])
