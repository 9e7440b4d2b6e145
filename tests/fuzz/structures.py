"""Fuzz targets: records (graphs, blocks, edge batches, data sets), built by hand, validated and used."""

import random
import tempfile
from pathlib import Path

import torch

from tests.fuzz.mutate import wrong
from tests.strategies import random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.dataset import Dataset, LinkSplit
from workbench.core.exchange import Exchange
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, permutation, stream
from workbench.core.units import format_bytes, parse_bytes
from workbench.links.edge_batch import EdgeBatch
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.links.negatives import Negatives, false_negatives, sample_negatives
from workbench.nn.sage import SAGELayer
from workbench.sampling.edge_batches import edge_batches
from workbench.sampling.neighbor import NeighborSampler


def _graph() -> Graph:
    return random_graph(20, 90, edge_weight=torch.float32, num_edge_types=3)


def _use(graph: Graph) -> None:
    """Sample from the graph, if it has a node."""
    seeds = torch.arange(min(3, graph.num_nodes))
    NeighborSampler([2, -1]).sample(graph, seeds).validate(num_nodes=graph.num_nodes)


def graph_by_hand(rng: random.Random) -> None:
    _use(Graph(**wrong(_graph()._tensors(), rng)).validate())


def graph_from_edges(rng: random.Random) -> None:
    src, dst = torch.randint(20, (2, 60), generator=torch.Generator().manual_seed(1))
    valid = {
        "src": src,
        "dst": dst,
        "num_nodes": 20,
        "undirected": rng.choice((False, True, "multi")),
        "edge_weight": torch.rand(60),
        "edge_type": torch.arange(60) % 4,
        "num_edge_types": 4,
        "node_type": torch.arange(20),
    }
    _use(Graph.from_edges(**wrong(valid, rng, keep=("undirected",))).validate())


def graph_edges(rng: random.Random) -> None:
    graph = _graph()
    found = graph.find_edges(**wrong({"src": torch.arange(9), "dst": torch.arange(9)}, rng))
    graph.edge_positions(**wrong({"edge_ids": found}, rng))


def graph_file(rng: random.Random) -> None:
    """Modify a file of a saved graph in place, which opening without `verify` may not detect."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph"
        _graph().save(path)
        victim = rng.choice(sorted(path.iterdir()))
        data = bytearray(victim.read_bytes())
        at = rng.randrange(len(data))
        data[at : at + 8] = rng.randbytes(min(8, len(data) - at))
        if rng.random() < 0.2:
            data = data[:at]
        victim.write_bytes(bytes(data))
        _use(Graph.open(path, verify=rng.random() < 0.3))


def _layer(block: Block) -> None:
    """Run the forward and backward pass of a layer on the block."""
    if block.num_src > 10_000:  # the test's features would not fit into memory
        return
    x = torch.ones(block.num_src, 4, requires_grad=True)
    SAGELayer(4, 3)(block, x).sum().backward()


def block_by_hand(rng: random.Random) -> None:
    block = random_minibatch(_graph(), fanouts=(3,)).blocks[0]
    valid = {**block._tensors(), "num_src": block.num_src, "num_dst": block.num_dst}
    _layer(Block(**wrong(valid, rng)).validate())


def batch_by_hand(rng: random.Random) -> None:
    mb = random_minibatch(_graph(), fanouts=(3, 2))
    valid = {"node_ids": mb.node_ids, "blocks": mb.blocks, "parent": torch.arange(mb.num_inputs), "step": 3}
    made = MiniBatch(**wrong(valid, rng)).validate()
    made.split(torch.arange(made.num_seeds) % 2)


def batch_with_a_bad_block(rng: random.Random) -> None:
    mb = random_minibatch(_graph(), fanouts=(3, 2))
    layer = rng.randrange(2)
    block = mb.blocks[layer]
    valid = {**block._tensors(), "num_src": block.num_src, "num_dst": block.num_dst}
    blocks = list(mb.blocks)
    blocks[layer] = Block(**wrong(valid, rng))
    made = MiniBatch(mb.node_ids, tuple(blocks)).validate()
    made.split(torch.arange(made.num_seeds) % 2)


def exchange_by_hand(rng: random.Random) -> None:
    ids = torch.tensor([4, 5])
    valid = {"send_index": ids - 4, "send_counts": (0, 2), "receive_counts": (1, 1), "halo_ids": ids}
    Exchange(**wrong(valid, rng)).validate(3)


def edge_batch_by_hand(rng: random.Random) -> None:
    ids = torch.arange(6)
    valid = {"seeds": ids + 4, "src": ids % 5, "dst": ids, "neg_src": ids, "neg_dst": ids.flip(0), "relation": ids}
    if rng.random() < 0.5:
        valid |= {"neg_src": ids.view(3, 2), "neg_dst": ids[:3, None], "chunk": ids // 2, "parent": ids}
    made = EdgeBatch(**wrong(valid, rng)).validate()
    made.split(torch.arange(made.num_pairs) % 2)
    made.per_pair().validate()


def edge_batch_from_pairs(rng: random.Random) -> None:
    ids = torch.arange(6)
    valid = {"src": ids, "dst": ids + 3, "negative_dst": torch.stack([ids, ids + 9], 1), "relation": ids}
    if rng.random() < 0.5:
        valid |= {"negative_dst": ids.view(2, 3), "chunks": 2}
    made = EdgeBatch.from_pairs(**wrong(valid, rng)).validate()
    made.select(**wrong({"pairs": torch.arange(2)}, rng)).validate()
    made.target_edges(**wrong({"graph": _graph()}, rng))


def negatives(rng: random.Random) -> None:
    nodes, graph = torch.arange(6), _graph()
    options = {"end": "dst", "by_degree": 0.5, "pool": nodes, "kept": nodes, "seed": 1, "step": 2}
    sample_negatives(graph, **wrong({"shape": (6, 2)} | options, rng))
    drawn = Negatives(**wrong({"count": 3, "chunks": 2, "ends": "both", "by_degree": 0.5, "seed": 1}, rng))
    batch = drawn.draw(**wrong({"graph": graph, "src": nodes, "dst": nodes + 3, "relation": nodes, "step": 1}, rng))
    false_negatives(**wrong({"batch": batch, "graph": graph}, rng))


def epoch_of_pairs(rng: random.Random) -> None:
    valid = {
        "graph": _graph(),
        "pairs": torch.arange(12).view(2, 6),
        "sampler": NeighborSampler([2]),
        "batch_size": 4,
        "relation": torch.arange(6),
        "negatives": Negatives(2, chunks=2),
        "epoch": 1,
        "drop_last": True,
        "seed": 3,
    }
    list(edge_batches(**wrong(valid, rng, keep=("drop_last",))))


def data_set(rng: random.Random) -> None:
    ids = torch.arange(20)
    valid = {
        "graph": _graph(),
        "x": torch.rand(20, 4),
        "y": ids % 3,
        "train_idx": ids[:9],
        "val_idx": ids[9:14],
        "test_idx": ids[14:],
        "num_classes": 3,
    }
    Dataset.build(**wrong(valid, rng)).validate()


def link_split(rng: random.Random) -> None:
    pairs = torch.arange(12).view(2, 6)
    names = ("train_edge", "valid_edge", "valid_edge_neg", "test_edge", "test_edge_neg")
    LinkSplit(**wrong(dict.fromkeys(names, pairs), rng)).validate(12)


def knowledge_graph(rng: random.Random) -> None:
    triples = torch.stack([torch.arange(9), torch.arange(9) % 2, torch.arange(9).flip(0)], 1)
    valid = {"train": triples, "valid": triples, "test": triples, "num_entities": 9, "num_relations": 2}
    graph = KnowledgeGraph.build(**wrong(valid, rng))
    graph.tail_filter(**wrong({"head": torch.arange(3), "relation": torch.zeros(3, dtype=torch.int64)}, rng))


def units(rng: random.Random) -> None:
    format_bytes(
        parse_bytes(rng.choice(("8GiB", "", "-1", "1e400", "nan", "8 GiB", "GiB", "0x10", "٣ MB", "8TB8", "1_0")))
    )


def streams(rng: random.Random) -> None:
    key = stream(**wrong({"seed": 3, "step": 4}, rng), purpose=Purpose.SAMPLING)
    assert sorted(permutation(key, 5).tolist()) == list(range(5))


CATEGORIES = {
    "graphs": (graph_by_hand, graph_from_edges, graph_edges),
    "files": (graph_file,),
    "blocks": (block_by_hand, exchange_by_hand),
    "batches": (batch_by_hand, batch_with_a_bad_block),
    "edge-batches": (edge_batch_by_hand, edge_batch_from_pairs, link_split, negatives, epoch_of_pairs),
    "data-sets": (data_set, knowledge_graph),
    "units-and-seeds": (units, streams),
}
