"""Folders of graphs."""

import hashlib
import json
from pathlib import Path

import torch

from tests.strategies import random_graph
from workbench.core.array_store import HEADER
from workbench.core.graph import Graph


def example() -> Graph:
    return random_graph(9, 30, edge_weight=torch.bfloat16, num_edge_types=3, num_node_types=2)


def assert_same(left: Graph, right: Graph) -> None:
    for name, tensor in left._tensors().items():
        other = getattr(right, name)
        assert (tensor is None) == (other is None), name
        assert tensor is None or (tensor.dtype == other.dtype and torch.equal(tensor, other)), name


def saved_in(folder: Path) -> Path:
    example().save(folder / "below" / "graph")
    return folder / "below" / "graph"


def rewrite_header(folder, change, *, sign=True):
    """Change the header and, with `sign`, its checksum accordingly."""
    header = json.loads((folder / HEADER).read_text())
    change(header)
    if sign:
        rest = {key: value for key, value in header.items() if key != "sha256"}
        header["sha256"] = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    (folder / HEADER).write_text(json.dumps(header))
