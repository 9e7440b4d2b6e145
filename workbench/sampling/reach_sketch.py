"""Access probabilities from the number of seeds that reach each node, which min-wise sketches estimate.

Fix the draws of all nodes in all layers, and let A(u) be the set of seeds whose own sample contains u. A batch of
seeds, each chosen with probability s, reads u with probability 1 − (1 − s)^|A(u)|, whatever the graph: nothing but the
seeds is taken as independent. |A(u)| is estimated as in Cohen's framework: every seed has K exponential ranks, and a
sample that starts from all seeds at once passes the least ranks along the drawn edges. The sum T of the K least ranks
of A(u) has a gamma distribution of rate |A(u)|, so with t = −log(1 − s)

    1 − (1 − t / T)₊^(K−1)

is unbiased, and so is its average over several draws. A row of thousands of in-edges, however, draws a given one too
rarely for a few draws to tell how often. Long rows v therefore pass on the probability w(v) P(v) that a batch reaches v
and draws the edge: u gets the ranks of fresh seeds at rate Σ_v −log(1 − w(v) P(v)) / t, as if its long rows drew
independently.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, stream
from workbench.kernels.hash import exponential, exponential_torch, hash_index, hash_index_torch
from workbench.kernels.jit import compiled
from workbench.kernels.prefetch import prefetch
from workbench.kernels.segment import edge_ranges
from workbench.kernels.threads import parallel_rows
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.to_neighbors import to_neighbors

_RANKS = 16  # float32: a cache line; standard error of an estimate from one draw 1 / √14
_SHORT = 0.25  # rows that draw a given edge with at least this probability are sampled: up to 4 in-edges per draw
_MOST_SHARE = 1 - 1e-9
_AHEAD = 16


def sketched_probability(
    graph: Graph, seeds: Tensor, shares: Sequence[Tensor], *, sampler: NeighborSampler, share: float, num_draws: int
) -> Tensor:
    """Estimate how likely each node is to be an input of a batch.

    Args:
        graph: the graph that is sampled.
        seeds: int64 ids, each once.
        shares: per layer, the seeds' first, float64 [num_nodes]: probability that it draws one given in-neighbour.
        sampler: draws the rows; its steps 0, 1, … are the draws.
        share: probability that a batch contains a given seed.
        num_draws: number of draws, each in all layers.

    Returns:
        float64 [num_nodes], in [0, 1].
    """
    rate = -torch.tensor(-min(share, _MOST_SHARE), dtype=torch.float64).log1p()
    total = torch.zeros(graph.num_nodes, dtype=torch.float64, device=graph.device)
    for step in range(num_draws):
        total += _probability(_least_ranks(graph, seeds, shares, sampler, float(rate), step), float(rate))
    return total / num_draws


def _least_ranks(
    graph: Graph, seeds: Tensor, shares: Sequence[Tensor], sampler: NeighborSampler, rate: float, step: int
) -> Tensor:
    """float32 [num_nodes, ranks]: least ranks of the seeds that reach each node in one draw; infinite without any."""
    ranks = torch.full((graph.num_nodes, _RANKS), float("inf"), dtype=torch.float32, device=graph.device)
    rates = torch.zeros(graph.num_nodes, dtype=torch.float64, device=graph.device)
    rates[seeds] = 1.0
    add_ranks(ranks, rates, stream(sampler.seed, Purpose.ORDER, step, len(shares)))
    for layer, drawn_share in zip(reversed(range(len(shares))), shares, strict=True):
        reached = ranks[:, 0].isfinite() & (drawn_share > 0)
        short = (reached & (drawn_share >= _SHORT)).nonzero()[:, 0]
        long = (reached & (drawn_share < _SHORT)).nonzero()[:, 0]
        rates = torch.zeros_like(drawn_share)
        rates[long] = -torch.log1p(-drawn_share[long] * _probability(ranks[long], rate)) / rate
        rates = to_neighbors(graph, rates, unite=False)
        drawn = sampler.draw(graph, short, layer=layer, step=step)
        pass_ranks(ranks, ranks[short], drawn.indptr, drawn.sources)
        add_ranks(ranks, rates, stream(sampler.seed, Purpose.ORDER, step, layer))
    return ranks


def _probability(ranks: Tensor, rate: float) -> Tensor:
    """1 − (1 − s)^|A|, without bias: Pugh, "The Best Estimate of Reliability in the Exponential Case", 1963."""
    return 1 - (1 - rate / ranks.sum(1).double()).clamp_(min=0).pow_(_RANKS - 1)


def pass_ranks(ranks: Tensor, given: Tensor, indptr: Tensor, sources: Tensor) -> None:
    """Lower the ranks of drawn sources to those of the rows that drew them, in place.

    Args:
        ranks: float32 [num_nodes, ranks].
        given: float32 [rows, ranks], ranks of the rows before the layer.
        indptr: int64 [rows + 1].
        sources: node ids that each row drew.
    """
    if ranks.device.type != "cpu":
        return pass_ranks_torch(ranks, given, indptr, sources)
    arrays = ranks.numpy(), given.numpy(), indptr.numpy(), sources.numpy()
    parallel_rows(lambda lo, hi: _pass(*arrays, lo, hi), len(ranks))  # each thread reads all edges, for its sources
    return None


def pass_ranks_torch(ranks: Tensor, given: Tensor, indptr: Tensor, sources: Tensor) -> None:
    """Do as `pass_ranks` in plain torch, for any device; the oracle of the compiled kernel."""
    row = torch.repeat_interleave(torch.arange(len(given), device=ranks.device), indptr.diff())
    for part in edge_ranges(len(sources), 4 * ranks.shape[1]):
        index = sources[part].long()[:, None].expand(-1, ranks.shape[1])
        ranks.scatter_reduce_(0, index, given[row[part]], "amin")


def add_ranks(ranks: Tensor, rates: Tensor, key: int) -> None:
    """Lower ranks to exponential variates of some rates, in place: those of as many fresh seeds, on average.

    Args:
        ranks: float32 [num_nodes, ranks].
        rates: float64 [num_nodes], not negative; 0: no seeds.
        key: key of the variates.
    """
    if ranks.device.type != "cpu":
        return add_ranks_torch(ranks, rates, key)
    arrays = ranks.numpy(), rates.numpy()
    parallel_rows(lambda lo, hi: _add(*arrays, key, lo, hi), len(ranks))
    return None


def add_ranks_torch(ranks: Tensor, rates: Tensor, key: int) -> None:
    """Do as `add_ranks` in plain torch, for any device; the oracle of the compiled kernel."""
    nodes = (rates > 0).nonzero()
    ids = nodes * ranks.shape[1] + torch.arange(ranks.shape[1], device=ranks.device)
    fresh = exponential_torch(hash_index_torch(key, ids)) / rates[nodes]
    ranks[nodes[:, 0]] = torch.minimum(ranks[nodes[:, 0]], fresh.to(ranks.dtype))


@compiled
def _pass(ranks, given, indptr, sources, lo, hi):
    end = len(sources)
    for row in range(len(given)):
        for e in range(indptr[row], indptr[row + 1]):
            if e + _AHEAD < end and lo <= sources[e + _AHEAD] < hi:
                prefetch(ranks, sources[e + _AHEAD])
            u = sources[e]
            if lo <= u < hi:
                for k in range(_RANKS):
                    ranks[u, k] = min(ranks[u, k], given[row, k])


@compiled
def _add(ranks, rates, key, lo, hi):
    for u in range(lo, hi):
        if rates[u] > 0.0:
            for k in range(_RANKS):
                rank = exponential(hash_index(key, u * _RANKS + k)) / rates[u]
                ranks[u, k] = min(ranks[u, k], rank)
