"""`inclusion_probability`: how likely each node is to be an input of a batch, which ranks rows for buffers and caches.

Batches are those of this library's neighbour samplers: every layer draws anew for all nodes reached before it. Let s be
the probability that a node is a seed, Q_l(u) that the first l layers reach it, and w_l(v) = min(1, f_l / d_v) that a
layer draws one given in-neighbour of v. The probability that v has drawn a given in-neighbour by layer l is

    X_l(v) = X_{l−1}(v) (1 − w_l(v)) + Q_{l−1}(v) w_l(v),     Q_l(u) = 1 − (1 − s(u)) Π_{v: u ∈ N(v)} (1 − X_l(v)).

Only the product takes events as independent that may not be: those of different v. They are independent where no two
directed walks to u meet again upstream, as in trees. The members of a clique are drawn together, from the same seeds;
`sketched_probability` samples instead of assuming independence.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice, pairwise
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_choice, check_ids, check_seed, check_sources
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, stream
from workbench.kernels.csr import ranges_by_edges
from workbench.kernels.hash import exponential_torch, hash_index, hash_index_torch, negative_log, open_unit_interval
from workbench.kernels.jit import compiled
from workbench.kernels.lane_instructions import prefetch
from workbench.kernels.segment import edge_ranges
from workbench.kernels.threads import parallel_rows, run_tasks
from workbench.sampling.loader import batches
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.sampler import Sampler, check_graph, check_sampler, checked_fanouts

INCLUSION_METHODS = ("inclusion", "hops", "mass", "sketched", "presampled")


def inclusion_probability(
    graph: Graph,
    seeds: Tensor,
    *,
    fanouts: Sequence[int],
    batch_size: int,
    method: str = "inclusion",
    num_draws: int = 8,
    num_batches: int = 100,
    sampler: Sampler | None = None,
    seed: int = 0,
) -> Tensor:
    """Compute for every node how likely it is to be an input of a batch.

    Args:
        graph: the graph that is sampled.
        seeds: int64 or int32 node ids, each once: the training nodes that batches are drawn from.
        fanouts: in-neighbours drawn per layer, input layer first; -1 for all.
        batch_size: seeds per batch.
        method: "inclusion": the probability that a batch reads the node, for seeds drawn independently of each other;
            exact on trees, otherwise it takes draws of different nodes as independent. "hops": the same from walks of
            exactly h hops for each h, as if a layer drew for the nodes of the previous hop alone (SALIENT++, but seeds
            count, and edges keep their directions). "mass": expected mass that random walks from the batch's seeds
            bring, one step per layer: proportional to the data-placement paper's. "sketched": the probability of
            "inclusion", without taking draws as independent where that matters: from the number of seeds that reach
            the node, estimated in a few samples that start from all seeds at once; better in graphs with cliques, and
            random. "presampled": the share of sampled batches that read it.
        num_draws: samples that "sketched" averages over; its standard error falls with their root.
        num_batches: batches that "presampled" counts.
        sampler: what "presampled" samples with, such as a LaborSampler; None: a NeighborSampler of the fanouts.
        seed: of the samples of "sketched" and "presampled".

    Returns:
        float64 [num_nodes] on the graph's device; "mass" may exceed 1.

    Raises:
        TypeError: seeds or fanouts of another type, or fanouts per edge type, except for "presampled".
        ValueError: an unknown method, no seeds, seeds that occur twice, or a number below 1.
        IndexError: a seed or an edge's source out of range.

    Source: Song and Jiang, "Rethinking Graph Data Placement for Graph Neural Network Training on Multiple GPUs" (mass:
    1ᵀLʰ); Kaler et al., SALIENT++, MLSys 2023 (hops); Yang et al., GNNLab, EuroSys 2022 (presampled);
    Cohen, "Size-estimation framework with applications to transitive closure and reachability", JCSS 1997 (sketched).

    >>> path = Graph.from_edges([1, 2], [0, 1])  # 2 → 1 → 0
    >>> inclusion_probability(path, torch.tensor([0, 1]), fanouts=[1, 1], batch_size=1)
    tensor([0.5000, 0.7500, 0.7500], dtype=torch.float64)
    """
    check_graph(graph)
    check_choice("method", method, INCLUSION_METHODS)
    check_at_least("batch_size", batch_size, 1)
    seeds = check_ids("seeds", seeds, graph.num_nodes, unique=True).to(graph.device)
    if not len(seeds):
        raise ValueError("seeds is empty; pass the ids of the training nodes that batches are drawn from")
    limits = checked_fanouts(fanouts)
    if method == "presampled":
        sampler = NeighborSampler(limits, seed=seed) if sampler is None else sampler
        return _presampled(graph, seeds, sampler, int(batch_size), num_batches, seed)
    check_sources(graph.indices, graph.num_nodes, IndexError)
    share = min(1.0, batch_size / len(seeds))
    shares = (_drawn_share(graph, fanout) for fanout in reversed(limits))
    if method == "sketched":
        check_at_least("num_draws", num_draws, 1)
        sampler = NeighborSampler(limits, seed=seed)
        return sketched_probability(graph, seeds, list(shares), sampler=sampler, share=share, num_draws=num_draws)
    start = torch.zeros(graph.num_nodes, dtype=torch.float64, device=graph.device)
    start[seeds] = share
    return {"inclusion": _inclusion, "hops": _hops, "mass": _mass}[method](graph, start, shares)


def _drawn_share(graph: Graph, fanout: object) -> Tensor:
    """w_l(v): the probability that a layer draws one given in-neighbour of v; 0 without in-neighbours."""
    if not isinstance(fanout, int):
        raise TypeError(
            f"fanout {fanout!r} is a mapping, but probabilities are those of all edge types together; pass an integer, "
            'or method="presampled"'
        )
    degrees = graph.in_degrees()
    if fanout == -1:
        return (degrees > 0).to(torch.float64)
    return degrees.clamp(max=fanout).to(torch.float64).div_(degrees.clamp(min=1))


def _inclusion(graph: Graph, start: Tensor, shares: Iterable[Tensor]) -> Tensor:
    reached, drew = start, torch.zeros_like(start)
    for share in shares:
        drew = drew + share * (reached - drew)
        reached = _either(start, to_neighbors(graph, drew, unite=True))
    return reached


def _hops(graph: Graph, start: Tensor, shares: Iterable[Tensor]) -> Tensor:
    hop = reached = start
    for share in shares:
        hop = to_neighbors(graph, share * hop, unite=True)
        reached = _either(reached, hop)
    return reached


def _mass(graph: Graph, start: Tensor, shares: Iterable[Tensor]) -> Tensor:
    inverse = graph.in_degrees().clamp(min=1).to(torch.float64).reciprocal_()
    for _ in shares:
        start = to_neighbors(graph, start * inverse, unite=False)
    return start


def _presampled(graph: Graph, seeds: Tensor, sampler: Sampler, batch_size: int, num_batches: int, seed: int) -> Tensor:
    check_at_least("num_batches", num_batches, 1)
    check_sampler(sampler)
    check_seed(seed)
    counts = torch.zeros(graph.num_nodes, dtype=torch.int64, device=graph.device)
    given: dict[str, Any] = {"batch_size": min(batch_size, len(seeds)), "drop_last": True, "seed": seed}

    def sampled() -> Iterator[Tensor]:
        for epoch in count():
            yield from (mb.node_ids for _, mb in batches(graph, seeds, sampler=sampler, epoch=epoch, **given))

    for node_ids in islice(sampled(), num_batches):
        counts[node_ids] += 1  # each id once per batch
    return counts.to(torch.float64) / num_batches


def _either(p: Tensor, q: Tensor) -> Tensor:
    """Probability of at least one of two independent events, without the cancellation of 1 − (1 − p)(1 − q)."""
    return p + q * (1 - p)


_RANKS = 16  # float32: a cache line; standard error of an estimate from one draw 1 / √14

_SHORT = 0.25  # rows that draw a given edge with at least this probability are sampled: up to 4 in-edges per draw

_MOST_SHARE = 1 - 1e-9

_AHEAD = 16

_LESS = 1 - 1e-6  # float32 may round a rank up


def sketched_probability(
    graph: Graph, seeds: Tensor, shares: Sequence[Tensor], *, sampler: NeighborSampler, share: float, num_draws: int
) -> Tensor:
    """Estimate how likely each node is to be an input of a batch: float64 [num_nodes], in [0, 1].

    Args:
        seeds: int64 ids, each once.
        shares: per layer, the seeds' first, float64 [num_nodes]: probability that it draws one given in-neighbour.
        sampler: draws the rows; its steps 0, 1, … are the draws.
        share: probability that a batch contains a given seed.
    """
    rate = -math.log1p(-min(share, _MOST_SHARE))
    of_seeds = torch.zeros(graph.num_nodes, dtype=torch.float64, device=graph.device)
    of_seeds[seeds] = share
    first = _rates(graph, of_seeds, shares[0], rate)  # the same in all draws
    total = torch.zeros_like(of_seeds)
    ranks = torch.empty((graph.num_nodes, _RANKS), dtype=torch.float32, device=graph.device)
    for step in range(num_draws):
        _draw_ranks(ranks, graph, seeds, shares, first, sampler, rate, step)
        total += _probability(ranks, rate)
    return total / num_draws


def _draw_ranks(
    ranks: Tensor,
    graph: Graph,
    seeds: Tensor,
    shares: Sequence[Tensor],
    first: Tensor,
    sampler: NeighborSampler,
    rate: float,
    step: int,
) -> None:
    """Fill float32 [num_nodes, ranks] with the least ranks of the seeds that reach each node; infinite without any."""
    ranks.fill_(float("inf"))
    rates = torch.zeros(graph.num_nodes, dtype=torch.float64, device=graph.device)
    rates[seeds] = 1.0
    add_ranks(ranks, rates, stream(sampler.seed, Purpose.ORDER, step, len(shares)))
    for hop, drawn_share in enumerate(shares):
        layer, reached = len(shares) - 1 - hop, _probability(ranks, rate) if hop else rates
        rates = _rates(graph, reached, drawn_share, rate) if hop else first
        short = ((reached > 0) & (drawn_share >= _SHORT)).nonzero()[:, 0]
        drawn = sampler.draw(graph, short, layer=layer, step=step)
        pass_ranks(ranks, ranks[short], drawn.indptr, drawn.sources)
        add_ranks(ranks, rates, stream(sampler.seed, Purpose.ORDER, step, layer))


def _rates(graph: Graph, reached: Tensor, drawn_share: Tensor, rate: float) -> Tensor:
    """Rates of fresh seeds that stand for the draws of the rows which are not sampled, float64 [num_nodes].

    Args:
        reached: float64 [num_nodes], probability that a row is drawn from.
        drawn_share: float64 [num_nodes], probability that it draws one given in-neighbour.
    """
    drawn = torch.where(drawn_share < _SHORT, reached * drawn_share, 0.0).float()  # half as much to write to at random
    return to_neighbors(graph, drawn.neg_().log1p_().div_(-rate), unite=False).double()


def _probability(ranks: Tensor, rate: float) -> Tensor:
    """1 − (1 − s)^|A|, without bias: Pugh, "The Best Estimate of Reliability in the Exponential Case", 1963."""
    if ranks.device.type != "cpu":
        return 1 - (1 - rate / ranks.sum(1, dtype=torch.float64)).clamp_(min=0).pow_(_RANKS - 1)
    out = torch.empty(len(ranks), dtype=torch.float64)
    arrays = ranks.numpy(), out.numpy()
    parallel_rows(lambda lo, hi: _estimate(*arrays, rate, lo, hi), len(ranks))
    return out


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
                uniform = open_unit_interval(hash_index(key, u * _RANKS + k))
                if _LESS * (1.0 - uniform) < ranks[u, k] * rates[u]:  # -log x > 1 - x: few logarithms are taken
                    ranks[u, k] = min(ranks[u, k], negative_log(uniform) / rates[u])


@compiled
def _estimate(ranks, out, rate, lo, hi):
    for u in range(lo, hi):
        total = 0.0
        for k in range(_RANKS):
            total += ranks[u, k]
        out[u] = 1.0 - max(0.0, 1.0 - rate / total) ** (_RANKS - 1)


_MAX_CHUNKS = 8

_EDGES_PER_SUM = 4  # at least as many edges per partial sum: these then need at most half the memory of the edges


def to_neighbors(graph: Graph, x: Tensor, *, unite: bool) -> Tensor:
    """Combine x of every node v into all its in-neighbours: 1 − Π (1 − x(v)), or with unite=False the sum.

    Args:
        x: float64 or float32 [num_nodes], probabilities, or any values if they are summed.
        unite: 1 − Π (1 − x) instead of Σ x.

    Returns:
        [num_nodes] in the dtype of x.
    """
    if x.device.type != "cpu":
        return to_neighbors_torch(graph, x, unite=unite)
    # Partial results by the size of the graph, not by threads: any number of these gives the same sums.
    chunks = max(1, min(_MAX_CHUNKS, graph.num_edges // max(1, _EDGES_PER_SUM * graph.num_nodes)))
    partial = torch.zeros(chunks, graph.num_nodes, dtype=x.dtype)
    arrays = graph.indptr.numpy(), graph.indices.numpy(), x.numpy()
    bounds = list(pairwise(ranges_by_edges(graph.indptr, chunks)))

    def combine(chunk: int) -> None:
        _combine(*arrays, *bounds[chunk], unite, partial[chunk].numpy())

    tasks: list[Callable[[], None]] = [lambda chunk=chunk: combine(chunk) for chunk in range(chunks)]
    run_tasks(tasks)
    sums = partial.numpy()
    parallel_rows(lambda lo, hi: _merge(sums, unite, lo, hi), graph.num_nodes)
    return partial[0]


def to_neighbors_torch(graph: Graph, x: Tensor, *, unite: bool) -> Tensor:
    """Combine values as `to_neighbors` does, in plain torch for any device; the oracle of the compiled kernels.

    Args:
        x: float64 [num_nodes], probabilities, or any values if they are summed.
        unite: 1 − Π (1 − x) instead of Σ x.
    """
    values = torch.log1p(-x) if unite else x
    rows = torch.repeat_interleave(torch.arange(graph.num_nodes, device=x.device), graph.in_degrees())
    out = torch.zeros_like(x)
    for part in edge_ranges(graph.num_edges, 8):
        out.index_add_(0, graph.indices[part], values[rows[part]])
    return -torch.expm1(out) if unite else out


@compiled
def _combine(indptr, indices, x, first, last, unite, out):
    end = indptr[last]
    for v in range(first, last):
        value = x[v]
        if value == 0.0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            if e + _AHEAD < end:
                prefetch(out, indices[e + _AHEAD])
            u = indices[e]
            out[u] += value * (1.0 - out[u]) if unite else value


@compiled
def _merge(partial, unite, lo, hi):
    """Combine the partial results in the first of them, in the order of their edges."""
    for u in range(lo, hi):
        total = partial[0, u]
        for chunk in range(1, len(partial)):
            total += partial[chunk, u] * (1.0 - total) if unite else partial[chunk, u]
        partial[0, u] = total
