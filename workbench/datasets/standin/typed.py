"""The typed stand-in: papers cite papers, authors write papers and belong to institutions (MAG240M)."""

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.randomness import permutation, uniform
from workbench.datasets.standin.bipartite import Side, bipartite_edges
from workbench.datasets.standin.degrees import degree_sequence
from workbench.datasets.standin.spec import AuthorParts, StandIn, scaled
from workbench.datasets.standin.streams import Draw, key_of
from workbench.datasets.standin.topology import class_sizes

PAPER, AUTHOR, INSTITUTION = range(3)
CITES, WRITES, AFFILIATED = range(3)


def _shuffled_degrees(degrees: Tensor, key: int) -> Tensor:
    return degrees[permutation(key, len(degrees))]


def _classes(name: str, seed: int, draw: Draw, nodes: int, spec: StandIn) -> Tensor:
    sizes = class_sizes(nodes, spec.classes, spec.recipe.class_skew)
    return torch.arange(spec.classes).repeat_interleave(sizes)[permutation(key_of(name, seed, draw), nodes)]


def _writes(
    spec: StandIn, parts: AuthorParts, seed: int, scale: float, papers: Tensor, authors: Tensor
) -> tuple[Tensor, Tensor]:
    """Author and paper of every edge."""
    total, name = scaled(parts.writes, scale), spec.name
    per_author = degree_sequence(parts.papers_per_author, len(authors), total, neighbours=len(papers))
    per_paper = degree_sequence(parts.authors_per_paper, len(papers), total, neighbours=len(authors))
    left = Side(_shuffled_degrees(per_author, key_of(name, seed, Draw.AUTHOR, 1)), authors)
    right = Side(_shuffled_degrees(per_paper, key_of(name, seed, Draw.AUTHOR, 2)), papers)
    return bipartite_edges(left, right, share=spec.recipe.homophily, key=key_of(name, seed, Draw.AUTHOR, 3))


def _affiliations(spec: StandIn, parts: AuthorParts, seed: int, scale: float, authors: int) -> tuple[Tensor, Tensor]:
    """Author and institution of every edge; an author has at most one institution, which has no class."""
    count, institutions = scaled(parts.affiliations, scale), scaled(parts.institutions, scale)
    members = degree_sequence(parts.authors_per_institution, institutions, count, neighbours=None)
    members = _shuffled_degrees(members, key_of(spec.name, seed, Draw.INSTITUTION, 1))
    some = permutation(key_of(spec.name, seed, Draw.INSTITUTION), authors)[:count]
    return some, torch.arange(institutions).repeat_interleave(members)


def typed_graph(spec: StandIn, cites: Graph, papers: Tensor, seed: int, scale: float) -> tuple[Graph, Tensor]:
    """Add authors and institutions to the papers' citations.

    Ids: papers, then authors, then institutions, each kind in random order. `node_type` and `edge_type` are 0, 1, 2 in
    the order of `PAPER, AUTHOR, INSTITUTION` and `CITES, WRITES, AFFILIATED`; each edge is stored once, as published:
    citing → cited, author → paper, author → institution.

    Args:
        spec: with `authors`.
        cites: graph of the papers.
        papers: int64 [papers], their classes.
        seed: any whole number.
        scale: in (0, 1].

    Returns:
        The graph, and the class of every node (of institutions: one at random) for its features.
    """
    parts = spec.authors
    assert parts is not None
    num_papers, num_authors = len(papers), scaled(parts.authors, scale)
    num_institutions = scaled(parts.institutions, scale)
    authors = _classes(spec.name, seed, Draw.AUTHOR, num_authors, spec)
    writers, written = _writes(spec, parts, seed, scale, papers, authors)
    members, houses = _affiliations(spec, parts, seed, scale, num_authors)
    src = torch.cat([cites.indices.long(), writers + num_papers, members + num_papers])
    cited = torch.arange(num_papers).repeat_interleave(cites.in_degrees())
    dst = torch.cat([cited, written, houses + num_papers + num_authors])
    kinds = torch.tensor([CITES, WRITES, AFFILIATED], dtype=torch.uint8)
    sizes = torch.tensor([cites.num_edges, len(writers), len(members)])
    nodes = torch.tensor([num_papers, num_authors, num_institutions])
    node_type = torch.tensor([PAPER, AUTHOR, INSTITUTION], dtype=torch.uint8).repeat_interleave(nodes)
    graph = Graph.from_edges(
        src, dst, num_nodes=int(nodes.sum()), edge_type=kinds.repeat_interleave(sizes), node_type=node_type
    )
    key = key_of(spec.name, seed, Draw.INSTITUTION, 2)
    others = (uniform(key, torch.arange(num_institutions)) * spec.classes).long()
    graph = Graph(graph.indptr, graph.indices, edge_type=graph.edge_type, node_type=node_type)
    return graph, torch.cat([papers, authors, others])
