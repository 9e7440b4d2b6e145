"""Oracles of the refinement in plain Python: bytes from splits of the batch, pin counts from sets."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.strategies import minibatches
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch

INPUT, EDGE = 512, 16  # bytes


def bytes_of(mb: MiniBatch) -> int:
    return INPUT * mb.num_inputs + EDGE * mb.num_edges


def part_bytes(mb: MiniBatch, part: Tensor, num_parts: int) -> list[int]:
    """Return the bytes of every part by splitting the batch; 0 for parts without seeds."""
    sizes = [0] * num_parts
    for label, micro in zip(part.unique().tolist(), mb.split(part), strict=True):
        sizes[label] = bytes_of(micro)
    return sizes


def hop_starts(mb: MiniBatch) -> list[int]:
    """Return the first node of every hop, then the number of nodes."""
    return [0, *accumulate([mb.num_seeds, *(block.num_src for block in reversed(mb.blocks))])]


def sources_of(mb: MiniBatch) -> list[list[int]]:
    """Return the distinct nodes that every node before the last hop reads, itself one hop on first."""
    first, rows = hop_starts(mb), []
    for hop, block in enumerate(reversed(mb.blocks)):
        indptr, indices = block.indptr.tolist(), block.indices.tolist()
        for node in range(block.num_dst):
            read = dict.fromkeys((node, *indices[indptr[node] : indptr[node + 1]]))
            rows.append([first[hop + 1] + source for source in read])
    return rows


def groups_of(mb: MiniBatch) -> list[int]:
    """Return the node that represents each node: a single reader's representative, otherwise the node itself."""
    readers: dict[int, set[int]] = {}
    for node, row in enumerate(sources_of(mb)):
        for source in row:
            readers.setdefault(source, set()).add(node)
    groups: list[int] = []
    for node in range(hop_starts(mb)[-1]):
        of_readers = {groups[reader] for reader in readers.get(node, ())}
        groups.append(of_readers.pop() if len(of_readers) == 1 else node)
    return groups


def contracted_sources(mb: MiniBatch) -> list[list[int]]:
    """Return the distinct nodes of the contracted graph that each of its nodes reads."""
    groups = groups_of(mb)
    number = {group: position for position, group in enumerate(sorted(set(groups)))}
    rows: list[set[int]] = [set() for _ in number]
    for node, row in enumerate(sources_of(mb)):
        rows[number[groups[node]]] |= {number[groups[source]] for source in row}
    return [sorted(row - {node}) for node, row in enumerate(rows)]


def pins_by_part(mb: MiniBatch, part: Sequence[int], num_parts: int) -> list[Counter[int]]:
    """Return for every part how many of its nodes read each node of the contracted graph beyond the seeds."""
    sources, counts_by_part = contracted_sources(mb), []
    for label in range(num_parts):
        stack = [seed for seed, label_of_seed in enumerate(part) if label_of_seed == label]
        counts: Counter[int] = Counter()
        while stack:
            for source in sources[stack.pop()]:
                counts[source] += 1
                if counts[source] == 1:
                    stack.append(source)
        counts_by_part.append(counts)
    return counts_by_part


def batch_of(rows: Sequence[Sequence[int]]) -> MiniBatch:
    """Build a batch of one layer from the sources of every seed."""
    indptr = torch.tensor([0, *map(len, rows)]).cumsum(0)
    flat = [source for row in rows for source in row]
    num_src = max([len(rows), *(source + 1 for source in flat)])
    block = Block(indptr, torch.tensor(flat, dtype=torch.int32), num_src, len(rows))
    return MiniBatch(torch.arange(num_src), (block,))


@st.composite
def partitioned(draw: st.DrawFn, max_parts: int = 5) -> tuple[MiniBatch, Tensor, int]:
    """Draw a batch of one to three layers, the parts of its seeds, and the number of parts, some of them empty."""
    mb = draw(minibatches(max_nodes=16, max_edges=60))
    num_parts = draw(st.integers(1, max_parts))
    labels = draw(st.lists(st.integers(0, num_parts - 1), min_size=mb.num_seeds, max_size=mb.num_seeds))
    return mb, torch.tensor(labels, dtype=torch.int64), num_parts
