"""`inclusion_probability`: how likely each node is to be an input of a batch, which ranks rows for buffers and caches.

Batches are those of this library's neighbour samplers: every layer draws anew for all nodes reached before it. Let s be
the probability that a node is a seed, Q_l(u) that the first l layers reach it, and w_l(v) = min(1, f_l / d_v) that a
layer draws one given in-neighbour of v. The probability that v has drawn a given in-neighbour by layer l is

    X_l(v) = X_{l−1}(v) (1 − w_l(v)) + Q_{l−1}(v) w_l(v),     Q_l(u) = 1 − (1 − s(u)) Π_{v: u ∈ N(v)} (1 − X_l(v)).

Only the product takes events as independent that may not be: those of different v. They are independent where no two
directed walks to u meet again upstream, as in trees. The members of a clique are drawn together, from the same seeds;
`reach_sketch` samples instead of assuming independence.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any

import torch
from torch import Tensor

from workbench.core.csr_checks import check_sources
from workbench.core.errors import check_at_least, check_choice, check_ids, check_seed
from workbench.core.graph import Graph
from workbench.sampling.fanouts import checked_fanouts
from workbench.sampling.loader import batches
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.reach_sketch import sketched_probability
from workbench.sampling.sampler import Sampler, check_graph, check_sampler
from workbench.sampling.to_neighbors import to_neighbors

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
