"""How the lines of an edge list as text are read, and what the caller says about it."""

from dataclasses import dataclass
from typing import NamedTuple

Columns = tuple[int | str, ...]


class Layout(NamedTuple):
    """How the lines of a text are read.

    Args:
        lines: lines before the first edge.
        separator: the character between fields; "": blanks and tabs.
        fields: columns of every line.
        source: position of the source among them.
        destination: position of the destination.
        weight: position of the weight; None: there is none.
        base: the smallest id.
        mirror: sign of the second direction of every entry off the diagonal; 0: it has one direction.
        num_nodes: if the format tells it.
        entries: if the format tells it.
        may_be_sizes: the first line may say how many nodes and edges there are.
    """

    lines: int
    separator: str
    fields: int
    source: int = 0
    destination: int = 1
    weight: int | None = None
    base: int = 0
    mirror: int = 0
    num_nodes: int | None = None
    entries: int | None = None
    may_be_sizes: bool = False


class MetisLayout(NamedTuple):
    """How a METIS file is read: line i lists the neighbours of node i, from 1.

    Args:
        lines: lines before that of the first node.
        num_nodes: number of nodes.
        entries: neighbours of all nodes, twice the number of edges.
        before: numbers before the first neighbour of a line: size and weights of the node.
        step: numbers per neighbour: 2 with weights of edges.
    """

    lines: int
    num_nodes: int
    entries: int
    before: int
    step: int


@dataclass(frozen=True)
class LayoutOptions:
    """What the caller says about a text.

    Args:
        columns: positions, from 0, or names of source, destination and, if it is to be read, weight; None: known by
            the header or the format, or there are two.
        skip: lines that are passed over before anything is recognised; None: none.
        base: the smallest id; None: 0, or that of the format.
    """

    columns: Columns | None = None
    skip: int | None = None
    base: int | None = None
