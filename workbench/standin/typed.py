"""The heterogeneous stand-in: papers cite papers, authors write papers and belong to institutions (MAG240M)."""

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.randomness import permutation, uniform
from workbench.standin.bipartite import Side, bipartite_edges
from workbench.standin.degree_law import degree_sequence
from workbench.standin.stand_in import Authorship, StandIn, scaled
from workbench.standin.streams import Draw, key_of
from workbench.standin.topology import class_sizes

PAPER, AUTHOR, INSTITUTION = range(3)
CITES, WRITES, AFFILIATED = range(3)


def _shuffled_degrees(degrees: Tensor, key: int) -> Tensor:
    return degrees[permutation(key, len(degrees))]


def _classes(name: str, seed: int, draw: Draw, nodes: int, spec: StandIn) -> Tensor:
    sizes = class_sizes(nodes, spec.classes, spec.shape.class_skew)
    return torch.arange(spec.classes).repeat_interleave(sizes)[permutation(key_of(name, seed, draw), nodes)]


def _writes(
    spec: StandIn, parts: Authorship, seed: int, scale: float, papers: Tensor, authors: Tensor
) -> tuple[Tensor, Tensor]:
    """Return author and paper of every edge."""
    total, name = scaled(parts.writes, scale), spec.name
    per_author = degree_sequence(parts.papers_per_author, len(authors), total, max_neighbours=len(papers))
    per_paper = degree_sequence(parts.authors_per_paper, len(papers), total, max_neighbours=len(authors))
    left = Side(_shuffled_degrees(per_author, key_of(name, seed, Draw.AUTHOR, 1)), authors)
    right = Side(_shuffled_degrees(per_paper, key_of(name, seed, Draw.AUTHOR, 2)), papers)
    return bipartite_edges(left, right, share=spec.shape.homophily, key=key_of(name, seed, Draw.AUTHOR, 3))


def _affiliations(spec: StandIn, parts: Authorship, seed: int, scale: float, authors: int) -> tuple[Tensor, Tensor]:
    """Return author and institution of every edge; an author has at most one institution, which has no class."""
    count, institutions = scaled(parts.affiliations, scale), scaled(parts.institutions, scale)
    members = degree_sequence(parts.authors_per_institution, institutions, count, max_neighbours=None)
    members = _shuffled_degrees(members, key_of(spec.name, seed, Draw.INSTITUTION, 1))
    affiliated = permutation(key_of(spec.name, seed, Draw.INSTITUTION), authors)[:count]
    return affiliated, torch.arange(institutions).repeat_interleave(members)


def typed_graph(spec: StandIn, cites: Graph, papers: Tensor, seed: int, scale: float) -> tuple[Graph, Tensor]:
    """Add authors and institutions to the papers' citation graph.

    Node ids are papers, then authors, then institutions, in random order within a type. `node_type` is `PAPER`,
    `AUTHOR` or `INSTITUTION`, `edge_type` is `CITES`, `WRITES` or `AFFILIATED`; each edge is stored once, as published:
    citing → cited, author → paper, author → institution.

    Args:
        spec: a stand-in with `authors`.
        cites: citation graph of the papers.
        papers: int64 [papers], their classes.
        seed: a 64-bit integer.
        scale: in (0, 1].

    Returns:
        The graph, and int64 [nodes], the class of every node for its features (random for institutions).
    """
    parts = spec.authors
    assert parts is not None
    num_papers, num_authors = len(papers), scaled(parts.authors, scale)
    num_institutions = scaled(parts.institutions, scale)
    authors = _classes(spec.name, seed, Draw.AUTHOR, num_authors, spec)
    writers, written = _writes(spec, parts, seed, scale, papers, authors)
    members, institutions = _affiliations(spec, parts, seed, scale, num_authors)
    src = torch.cat([cites.indices.long(), writers + num_papers, members + num_papers])
    cited = torch.arange(num_papers).repeat_interleave(cites.in_degrees())
    dst = torch.cat([cited, written, institutions + num_papers + num_authors])
    kinds = torch.tensor([CITES, WRITES, AFFILIATED], dtype=torch.uint8)
    sizes = torch.tensor([cites.num_edges, len(writers), len(members)])
    nodes = torch.tensor([num_papers, num_authors, num_institutions])
    node_type = torch.tensor([PAPER, AUTHOR, INSTITUTION], dtype=torch.uint8).repeat_interleave(nodes)
    graph = Graph.from_edges(
        src, dst, num_nodes=int(nodes.sum()), edge_type=kinds.repeat_interleave(sizes), node_type=node_type
    )
    key = key_of(spec.name, seed, Draw.INSTITUTION, 2)
    random_classes = (uniform(key, torch.arange(num_institutions)) * spec.classes).long()
    graph = Graph(graph.indptr, graph.indices, edge_type=graph.edge_type, node_type=node_type)
    return graph, torch.cat([papers, authors, random_classes])
