"""What the refinement counts, in plain Python: from splits of the batch, and from sets."""

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
    """Bytes of every part, by splitting the batch; 0 where there is no output."""
    found = [0] * num_parts
    for label, micro in zip(part.unique().tolist(), mb.split(part), strict=True):
        found[label] = bytes_of(micro)
    return found


def firsts(mb: MiniBatch) -> list[int]:
    """The number of the first node of every hop, and of none."""
    return [0, *accumulate([mb.num_seeds, *(block.num_src for block in reversed(mb.blocks))])]


def children(mb: MiniBatch) -> list[list[int]]:
    """For every node before the last hop those that it reads, itself one hop on first; several edges are one."""
    first, found = firsts(mb), []
    for hop, block in enumerate(reversed(mb.blocks)):
        bounds, sources = block.indptr.tolist(), block.indices.tolist()
        for node in range(block.num_dst):
            read = dict.fromkeys((node, *sources[bounds[node] : bounds[node + 1]]))
            found.append([first[hop + 1] + source for source in read])
    return found


def presence(mb: MiniBatch, part: Sequence[int], num_parts: int) -> list[Counter[int]]:
    """For every part how many of its nodes need a node; its outputs are left out."""
    below, found = children(mb), []
    for label in range(num_parts):
        counts: Counter[int] = Counter()
        layer = {output for output, own in enumerate(part) if own == label}
        while layer:
            reached = Counter(child for node in layer if node < len(below) for child in below[node])
            counts += reached
            layer = set(reached)
        found.append(counts)
    return found


def batch_of(rows: Sequence[Sequence[int]]) -> MiniBatch:
    """A batch of one layer: the sources of every output."""
    indptr = torch.tensor([0, *map(len, rows)]).cumsum(0)
    flat = [source for row in rows for source in row]
    num_src = max([len(rows), *(source + 1 for source in flat)])
    block = Block(indptr, torch.tensor(flat, dtype=torch.int32), num_src, len(rows))
    return MiniBatch(torch.arange(num_src), (block,))


@st.composite
def partitioned(draw: st.DrawFn, max_parts: int = 5) -> tuple[MiniBatch, Tensor, int]:
    """A batch of one to three layers, labels of its outputs, and a number of parts, some of which may be empty."""
    mb = draw(minibatches(max_nodes=16, max_edges=60))
    num_parts = draw(st.integers(1, max_parts))
    labels = draw(st.lists(st.integers(0, num_parts - 1), min_size=mb.num_seeds, max_size=mb.num_seeds))
    return mb, torch.tensor(labels, dtype=torch.int64), num_parts
