"""The work of a batch as a function of its size: how many nodes it reads, before any training.

Both theorems are about a uniform random subset of b of n seeds. A node that r of the n seeds reach is missing from its
batch with probability C(n - r, b) / C(n, b), so the counts r of one sampled batch of all n seeds give the expected
number of inputs for every b at once. This requires samples that do not depend on the batch.

Balın, LaSalle, Çatalyürek: "Cooperative Minibatching in Graph Neural Networks", theorems 3.1 and 3.2.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.cooperative.sampling import reach_counts
from workbench.core.block import Block
from workbench.core.errors import ID_DTYPES, check_at_least, check_seed, check_type, check_vector, find_out_of_range
from workbench.core.exchange import ID_BYTES
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, permutation, stream
from workbench.kernels.relabel import IdIndex
from workbench.sampling.sampler import Sampler, check_graph, check_sampler, require_row_independence


def expected_inputs(reach: Tensor, num_seeds: int, batch_sizes: Sequence[int]) -> Tensor:
    """Compute the expected number of input nodes of batches of b seeds, drawn uniformly without replacement.

    E|S_b| = Σ_v 1 − C(n − r_v, b) / C(n, b).

    Args:
        reach: int64 or int32 [num_inputs], the number r of seeds that reach each node, as `reach_counts` returns it.
        num_seeds: number n of seeds (or items) that batches are drawn from.
        batch_sizes: numbers b of seeds per batch, from 0 to n.

    Returns:
        float64 [len(batch_sizes)].

    Raises:
        TypeError: counts of another dtype.
        ValueError: a count or a batch size is out of range.

    Source: Cooperative Minibatching, theorem 3.2: E|S_b| = Σ_{i ≤ b} E|T_i| / i.

    >>> expected_inputs(torch.tensor([2, 1, 1]), 2, [1, 2])  # two seeds that share one of their two nodes each
    tensor([2., 3.], dtype=torch.float64)
    """
    nodes, sizes = _nodes_by_reach(reach, num_seeds), _checked_sizes(batch_sizes, num_seeds, least=0)
    return torch.stack([(nodes * (1 - _missed(len(nodes), num_seeds, b))).sum() for b in sizes])


def marginal_inputs(reach: Tensor, num_seeds: int, batch_sizes: Sequence[int]) -> Tensor:
    """Compute the expected number of input nodes that the b-th seed of a batch adds to those of the others.

    It is E|T_b| / b, with T_b the nodes that exactly one of b seeds reaches, and never increases with b.

    Args:
        reach: int64 or int32 [num_inputs], the number r of seeds that reach each node, as `reach_counts` returns it.
        num_seeds: number n of seeds (or items) that batches are drawn from.
        batch_sizes: numbers b of seeds per batch, from 1 to n.

    Returns:
        float64 [len(batch_sizes)].

    Raises:
        TypeError: counts of another dtype.
        ValueError: a count or a batch size is out of range.

    Source: Cooperative Minibatching, equations 5 to 7.

    >>> marginal_inputs(torch.tensor([2, 1, 1]), 2, [1, 2])
    tensor([2., 1.], dtype=torch.float64)
    """
    nodes, sizes = _nodes_by_reach(reach, num_seeds), _checked_sizes(batch_sizes, num_seeds, least=1)
    r = torch.arange(len(nodes), dtype=torch.float64)
    # The b-th seed is one of the node's r, with probability r / n, and the b − 1 others are among the n − r.
    others = [_missed(len(nodes), num_seeds - 1, b - 1, shift=1) for b in sizes]
    return torch.stack([(nodes * r / num_seeds * missed).sum() for missed in others])


def work_curve(graph: Graph, seeds: Tensor, *, sampler: Sampler, batch_sizes: Sequence[int], step: int = 0) -> Tensor:
    """Compute the expected number of input nodes for every batch size from one sampled batch of all seeds.

    The expectation is over the seeds of a batch; the random variates are those of `step`.

    Args:
        graph: the graph to sample from.
        seeds: int64 or int32 node ids, each once: the training nodes that batches are drawn from. For batches much
            smaller than these, a random subset of them gives an unbiased estimate at less cost.
        sampler: draws every row independently of the others.
        batch_sizes: numbers of seeds per batch.
        step: number of the batch, which selects the random variates.

    Returns:
        float64 [len(batch_sizes)].

    Raises:
        ValueError: a sampler whose rows depend on each other (`measure_work` measures it), duplicate seeds, or a batch
            size out of range.

    Source: Cooperative Minibatching, theorems 3.1 and 3.2.
    """
    check_graph(graph)
    check_sampler(sampler)
    require_row_independence(sampler, "the expected work of all batch sizes from one sample")
    sizes = _checked_sizes(batch_sizes, len(seeds), least=0)
    return expected_inputs(reach_counts(sampler.sample(graph, seeds, step=step)), len(seeds), sizes)


class Work(NamedTuple):
    """What one sampled batch counts.

    Args:
        batch_size: number of items that the batch was drawn from.
        repetition: number of the permutation that they are a prefix of.
        nodes: |S⁰|, |S¹|, …: numbers of nodes, from the seeds to the inputs.
        edges: numbers of edges per layer, in the same order.
    """

    batch_size: int
    repetition: int
    nodes: tuple[int, ...]
    edges: tuple[int, ...]

    @property
    def num_seeds(self) -> int:
        return self.nodes[0]

    @property
    def num_inputs(self) -> int:
        """Number of nodes whose features the batch reads."""
        return self.nodes[-1]


def measure_work(
    graph: Graph,
    items: Tensor,
    *,
    sampler: Sampler,
    batch_sizes: Sequence[int],
    repetitions: int = 5,
    seeds_of: Callable[[Tensor, int], Tensor] | None = None,
    seed: int = 0,
) -> Iterator[Work]:
    """Sample batches of several sizes and count their nodes and edges, for any sampler.

    The batches of a repetition are prefixes of one permutation and share their step, so that differences between sizes
    vary less than the sizes themselves; repetitions are independent of each other.

    Args:
        graph: the graph to sample from.
        items: what batches are drawn from: int64 or int32 node ids, or with `seeds_of` any tensor, by its first
            dimension.
        sampler: any sampler.
        batch_sizes: numbers of items per batch, from 1 to all.
        repetitions: number of permutations.
        seeds_of: maps the items of a batch and its step to the ids of its seeds, each once; None: items are seeds.
        seed: of the permutations.

    Yields:
        The counts of each batch, repetition by repetition.

    Raises:
        ValueError: a batch size or the number of repetitions is out of range, or seeds occur twice.

    Source: Cooperative Minibatching, section 4.1.
    """
    check_graph(graph)
    check_sampler(sampler)
    check_at_least("repetitions", repetitions, 1)
    check_seed(seed)
    sizes = _checked_sizes(batch_sizes, len(items), least=1)

    def batches() -> Iterator[Work]:
        for step in range(repetitions):
            order = permutation(stream(seed, Purpose.SHUFFLE, step), len(items)).to(items.device)
            for size in sizes:
                drawn = items[order[:size]]
                seeds = drawn if seeds_of is None else seeds_of(drawn, step)
                yield _count(size, step, sampler.sample(graph, seeds, step=step))

    return batches()


def _count(size: int, repetition: int, batch: MiniBatch) -> Work:
    nodes = (batch.num_seeds, *(block.num_src for block in reversed(batch.blocks)))
    return Work(size, repetition, nodes, tuple(block.num_edges for block in reversed(batch.blocks)))


def _nodes_by_reach(reach: Tensor, num_seeds: int) -> Tensor:
    """Number of nodes by the number of seeds that reach them, float64 [at least 2]."""
    check_at_least("num_seeds", num_seeds, 1)
    check_vector("reach", reach, None, ID_DTYPES)
    if (bad := find_out_of_range(reach, 0, num_seeds + 1)) is not None:
        raise ValueError(f"reach contains {bad}; counts must be from 0 to the {num_seeds} seeds")
    return torch.bincount(reach.cpu(), minlength=2).to(torch.float64)


def _checked_sizes(batch_sizes: Sequence[int], count: int, *, least: int) -> list[int]:
    sizes = [*batch_sizes]
    if not sizes:
        raise ValueError("batch_sizes has no size; pass at least one")
    for size in sizes:
        check_at_least("a batch size", size, least, most=count)
    return [int(size) for size in sizes]


def _missed(length: int, num_seeds: int, batch_size: int, *, shift: int = 0) -> Tensor:
    """Probability, for r = 0, 1, …, that a batch has none of r seeds: C(n − r, b) / C(n, b), a running product."""
    j = torch.arange(length - 1 - shift, dtype=torch.float64)
    steps = ((num_seeds - batch_size - j) / (num_seeds - j)).clamp(min=0)
    return torch.cat([torch.ones(1 + shift, dtype=torch.float64), steps.cumprod(0)])


class LayerWork(NamedTuple):
    """What one rank counts in one layer, hop l from the seeds.

    Args:
        rank: number of the rank.
        hop: l, 1 for the sources of the seeds, up to the number of layers for the inputs.
        destinations: |S_p^{l-1}|, nodes whose rows the rank draws and computes.
        owned: |S_p^l|, nodes that the rank has the values of before the exchange of rows.
        needed: |S̃_p^l|, its destinations and the sources of its edges: what its layer reads after the exchange.
        halo: c|S̃_p^l|, those of them that other ranks own: ids that it sends, and rows that it receives.
        sent: rows that it sends, one per receiver; as many ids as it is asked for.
        edges: drawn edges.
        cross_edges: drawn edges from nodes of other ranks.
        received_from: rows that it receives, by sender.
        row_bytes: size of a row.
    """

    rank: int
    hop: int
    destinations: int
    owned: int
    needed: int
    halo: int
    sent: int
    edges: int
    cross_edges: int
    received_from: tuple[int, ...]
    row_bytes: int

    def row(self) -> dict[str, int]:
        """Return the counts as a table row, with bytes of the ids and rows that cross links."""
        counts = {name: value for name, value in self._asdict().items() if name not in ("received_from", "row_bytes")}
        return counts | {
            "id_bytes": ID_BYTES * self.halo,
            "received_bytes": self.row_bytes * self.halo,
            "sent_bytes": self.row_bytes * self.sent,
        }


@dataclass(frozen=True)
class CooperativeWork:
    """The work of all ranks.

    Args:
        layers: by rank, and hop by hop within a rank.
        distinct: |S^l| for every hop l: nodes of all ranks, each counted once.
    """

    layers: tuple[LayerWork, ...]
    distinct: tuple[int, ...]

    @property
    def num_ranks(self) -> int:
        return len(self.layers) // max(1, len(self.distinct))

    @property
    def links(self) -> Tensor:
        """Rows by link: int64 [hops, ranks, ranks], those of hop l that rank p receives from q at [l - 1, p, q]."""
        counts = torch.tensor([layer.received_from for layer in self.layers], dtype=torch.int64)
        return counts.view(self.num_ranks, len(self.distinct), self.num_ranks).transpose(0, 1)

    @property
    def link_bytes(self) -> Tensor:
        """Bytes by link, of rows in forward passes: int64 [ranks, ranks], those that rank p receives from q."""
        sizes = torch.tensor([layer.row_bytes for layer in self.layers[: len(self.distinct)]], dtype=torch.int64)
        return (self.links * sizes[:, None, None]).sum(0)

    @property
    def duplication(self) -> float:
        """Input nodes of all ranks per distinct input node: 1 for cooperating ranks."""
        inputs = sum(layer.owned for layer in self.layers if layer.hop == len(self.distinct))
        return inputs / self.distinct[-1] if self.distinct[-1] else 1.0

    def rows(self) -> list[dict[str, int]]:
        """Return a table row per rank and hop."""
        return [layer.row() for layer in self.layers]

    def row(self) -> dict[str, float]:
        """Return means over the ranks as one table row: `owned_3`, `halo_3`, `needed_3`, `edges_3`, … by hop.

        `edges_l` are the edges whose sources are at hop l; `imbalance` is the largest number of edges of a rank,
        divided by the mean.
        """
        row: dict[str, float] = {}
        for hop in range(len(self.distinct), 0, -1):
            ranks = [layer for layer in self.layers if layer.hop == hop]
            for name in ("owned", "halo", "needed", "edges"):
                row[f"{name}_{hop}"] = sum(getattr(layer, name) for layer in ranks) / len(ranks)
        edges = torch.tensor([layer.edges for layer in self.layers]).view(self.num_ranks, -1).sum(1).double()
        crossing = sum(layer.cross_edges for layer in self.layers)
        row["cross_edge_share"] = crossing / max(1.0, float(edges.sum()))
        row["imbalance"] = float(edges.max() / edges.mean()) if edges.sum() else 1.0
        return row | {"duplication": self.duplication}


def cooperative_work(batches: Sequence[MiniBatch], *, row_bytes: int | Sequence[int] = 0) -> CooperativeWork:
    """Count the work of a global batch that several ranks sampled, and what they exchange.

    Args:
        batches: one per rank: `cooperative.batches`, or `independent_batches`, which exchange nothing.
        row_bytes: bytes per input row of a layer: one number for all layers, or one per layer, input layer first.

    Returns:
        The counts.

    Raises:
        TypeError: `batches` contains anything but batches.
        ValueError: no batches, batches of different numbers of layers, or another number of `row_bytes`.

    Source: Cooperative Minibatching, tables 1 and 7.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> batches = wb.cooperative.batches(path, torch.tensor([3, 1]), sampler=wb.FullNeighborSampler(1),
    ...                                  owner=torch.tensor([0, 1, 0, 1]), num_ranks=2)
    >>> wb.cooperative.cooperative_work(batches).links.tolist()
    [[[0, 0], [2, 0]]]
    """
    batches = list(batches)
    for position, mb in enumerate(batches):
        check_type(f"batches[{position}]", mb, MiniBatch, "pass one MiniBatch per rank")
    lengths = {len(mb.blocks) for mb in batches}
    if len(lengths) != 1:
        raise ValueError(f"batches have {sorted(lengths)} layers; pass the batches of all ranks, from one sampler")
    num_layers = lengths.pop()
    sizes = list(row_bytes) if isinstance(row_bytes, Iterable) else [row_bytes] * num_layers
    if len(sizes) != num_layers:
        raise ValueError(f"row_bytes has {len(sizes)} sizes for {num_layers} layers; pass one per layer, or one number")
    for size in sizes:
        check_at_least("row_bytes", size, 0)
    layers = [layer for rank, mb in enumerate(batches) for layer in _layers(rank, mb, len(batches), sizes)]
    return CooperativeWork(tuple(layers), tuple(_distinct(batches)))


def _layers(rank: int, mb: MiniBatch, num_ranks: int, row_bytes: Sequence[int]) -> Iterator[LayerWork]:
    for hop in range(1, len(mb.blocks) + 1):
        number = len(mb.blocks) - hop
        block, owned = mb.blocks[number], _num_owned(mb, hop)
        exchange = mb.exchanges[number] if mb.exchanges else None
        received = exchange.receive_counts if exchange else (0,) * num_ranks
        yield LayerWork(
            rank,
            hop,
            destinations=block.num_dst,
            owned=owned,
            needed=_num_used(block),
            halo=sum(received),
            sent=sum(exchange.send_counts) if exchange else 0,
            edges=block.num_edges,
            cross_edges=int((block.indices >= owned).sum()),
            received_from=received,
            row_bytes=row_bytes[number],
        )


def _num_owned(mb: MiniBatch, hop: int) -> int:
    """|S^l|: the destinations of the next layer towards the inputs, or the inputs."""
    return mb.num_inputs if hop == len(mb.blocks) else mb.blocks[len(mb.blocks) - hop - 1].num_dst


def _num_used(block: Block) -> int:
    """Number of destinations and sources of edges; other sources are there because other ranks ask for them."""
    used = torch.zeros(block.num_src, dtype=torch.bool, device=block.device)
    used[: block.num_dst] = True
    used[block.indices.long()] = True
    return int(used.sum())


def _distinct(batches: Sequence[MiniBatch]) -> Iterator[int]:
    for hop in range(1, len(batches[0].blocks) + 1):
        ids = [mb.node_ids[: _num_owned(mb, hop)] for mb in batches]
        limit = 1 + max((int(v.max()) for v in ids if len(v)), default=-1)
        yield len(IdIndex(ids, limit).ids)
