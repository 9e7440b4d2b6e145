"""Files of METIS: line i lists the neighbours of node i, from 1."""

from dataclasses import dataclass

import numpy as np

from workbench.core.edge_blocks import Edges, end_of_line
from workbench.core.edge_kernels import read_neighbours
from workbench.core.edge_layout import not_an_edge_list
from workbench.core.errors import DataError
from workbench.core.text_file import TextFile
from workbench.core.text_layout import MetisLayout


@dataclass
class MetisReader:
    """Reads lines with the neighbours of a node each."""

    file: TextFile
    layout: MetisLayout
    lines: int = 0
    node: int = 0
    entries: int = 0

    def __post_init__(self) -> None:
        self.lines = self.layout.lines

    def read(self, block: bytes) -> Edges:
        capacity = len(block) // 2 + 1
        src, dst = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        n, before, step = self.layout.num_nodes, self.layout.before, self.layout.step
        at, count, lines, self.node, bad = read_neighbours(
            np.frombuffer(block, np.uint8), self.node, n, before, step, src, dst
        )
        self.lines += lines
        if bad:
            raise not_an_edge_list(
                self.file,
                self.lines + 1,
                block[at : end_of_line(block, 1, at)],
                f"does not list neighbours from 1 to {n} of node {self.node + 1}, as METIS files do",
                "pass columns=(0, 1) if the file is an edge list",
            )
        self.entries += count
        return Edges(src[:count], dst[:count])

    def finish(self) -> None:
        found, said = (self.node, self.entries), (self.layout.num_nodes, self.layout.entries)
        if found != said:
            raise DataError(
                f"{self.file.path} lists {found[0]:,} nodes and {found[1]:,} neighbours, but line "
                f"{self.layout.lines} announces {said[0]:,} and {said[1]:,} (METIS: every edge twice); it is damaged, "
                "or an edge list, for which pass columns=(0, 1)"
            )
