"""Link prediction with DGL: its sampler and layers, learnt rows of DGL or of torch, negatives scored in two ways."""

from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.performance.timing import import_dgl
from workbench.links.knowledge_graph import KnowledgeGraph

_NAMES = count()  # of DGL's shared memory


class DglLinks:
    """A DistMult decoder with inverse relations, alone or behind a layer of GraphSAGE, and its optimizers.

    Args:
        kg: the knowledge graph.
        start: floating [num_entities, dim], values of the rows.
        encoder: "none" or "sage".
        rows: "dgl" (`NodeEmbedding` and `SparseAdagrad`) or "torch" (a sparse `nn.Embedding` and torch's Adagrad).
        scoring: "products" of all queries of a chunk and its negatives, or "pairs": DGL's dot product per edge of a
            graph of negative pairs.
        lr: learning rate.
    """

    def __init__(self, kg: KnowledgeGraph, start: Tensor, *, encoder: str, rows: str, scoring: str, lr: float) -> None:
        dgl = import_dgl()
        self.dgl, self.kg, self.scoring, dim = dgl, kg, scoring, start.shape[1]
        head, _, tail = kg.train.unbind(1)
        ends = torch.cat((head, tail)), torch.cat((tail, head))
        self.graph = dgl.graph(ends, num_nodes=kg.num_entities).formats("csc")
        self.sampler = dgl.dataloading.MultiLayerFullNeighborSampler(1)
        self.conv = dgl.nn.SAGEConv(dim, dim, "mean") if encoder == "sage" else None
        self.relations = nn.Parameter(torch.empty(2 * kg.num_relations, dim))
        if rows == "dgl":
            self.rows = dgl.nn.NodeEmbedding(*start.shape, f"links{next(_NAMES)}", init_func=lambda x: x.copy_(start))
            self.row_optimizer = dgl.optim.SparseAdagrad([self.rows], lr=lr)
        else:
            self.rows = nn.Embedding.from_pretrained(start.clone(), freeze=False, sparse=True)
            self.row_optimizer = torch.optim.Adagrad(self.rows.parameters(), lr=lr)
        parameters = [self.relations, *(() if self.conv is None else self.conv.parameters())]
        self.optimizer = torch.optim.Adagrad(parameters, lr=lr)

    def step(self, edges: Tensor, negatives: Tensor, excluded: Tensor | None = None) -> Tensor:
        """Train on some triples.

        Args:
            edges: int64 [n], rows of the training triples.
            negatives: int64 [2, chunks, count], nodes that replace heads and tails.
            excluded: int64 [any], edges that are not sampled; None: those of the triples, in both directions.

        Returns:
            The loss.
        """
        loss = self.loss(edges, negatives, excluded)
        self.optimizer.zero_grad()
        self.row_optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.sparse.check_sparse_tensor_invariants(False):  # said so, or torch warns of its own optimizer
            self.row_optimizer.step()
        return loss.detach()

    def loss(self, edges: Tensor, negatives: Tensor, excluded: Tensor | None = None) -> Tensor:
        """Compute the sum over both ends; every node's row is read and computed once."""
        head, relation, tail = self.kg.train[edges].unbind(1)
        nodes = torch.cat((head, tail, negatives.flatten()))
        seeds, position = torch.unique(nodes, return_inverse=True)
        rows = F.embedding(position, self._encoded(seeds, edges, excluded))
        count, (_, chunks, each) = len(edges), negatives.shape
        heads, tails, *others = rows.split([count, count, chunks * each, chunks * each])
        other_heads, other_tails = (x.view(chunks, each, -1) for x in others)
        inverse = relation + self.kg.num_relations
        ends = (tails, heads, other_heads, inverse), (heads, tails, other_tails, relation)
        return torch.stack([self._cross_entropy(*end) for end in ends]).sum()

    def _encoded(self, seeds: Tensor, edges: Tensor, excluded: Tensor | None) -> Tensor:
        if self.conv is None:
            return self.rows(seeds)
        if excluded is None:
            excluded = torch.cat((edges, edges + len(self.kg.train)))
        inputs, _, (block,) = self.sampler.sample(self.graph, seeds, exclude_eids=excluded)
        return self.conv(block, self.rows(inputs))

    def _cross_entropy(self, kept: Tensor, other: Tensor, negatives: Tensor, relation: Tensor) -> Tensor:
        query = kept * F.embedding(relation, self.relations)
        positive = (query * other).sum(1, keepdim=True)
        scores = torch.cat((positive, self._scores(query, negatives)), 1)
        return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.int64), reduction="sum")

    def _scores(self, query: Tensor, negatives: Tensor) -> Tensor:
        """Scores [n, count] of the negatives of each query's chunk, [chunks, count, dim]."""
        chunks, each, dim = negatives.shape
        if self.scoring == "products" and len(query) % chunks == 0:
            return torch.bmm(query.view(chunks, -1, dim), negatives.transpose(1, 2)).view(len(query), each)
        chunk = torch.arange(len(query)) * chunks // len(query)
        if self.scoring == "products":
            return torch.cat([query[chunk == c] @ negatives[c].T for c in range(chunks)])
        source = torch.arange(len(query)).repeat_interleave(each)
        target = (chunk[:, None] * each + torch.arange(each)).flatten()
        pairs: Any = self.dgl.create_block((source, target), num_src_nodes=len(query), num_dst_nodes=chunks * each)
        pairs.srcdata["query"], pairs.dstdata["row"] = query, negatives.reshape(-1, dim)
        pairs.apply_edges(self.dgl.function.u_dot_v("query", "row", "score"))
        return pairs.edata["score"].view(len(query), each)
