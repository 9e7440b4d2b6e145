"""`check_exact` of every layer of DGL and PyG on five real graphs with four samplers, held to measured deviations.

`python -m tests.training.foreign.test_real_graphs [LAYER …]` prints what is found.
"""

import sys
from collections import Counter
from functools import cache
from typing import Any

import pytest
import torch

import workbench as wb
from tests.training.foreign.cases import NUM_TYPES
from tests.training.foreign.detection import NUM_SEEDS, as_merged, detect
from tests.training.foreign.test_foreign_layers import MODULES, assert_right, runs
from workbench.core.graph import Graph

GRAPHS = ("cora", "amazon-computers", "coauthor-cs", "tolokers", "ogbn-arxiv")
SAMPLERS: dict[str, Any] = {
    "neighbor": wb.NeighborSampler([10, 5], edge_ids=True),
    "labor": wb.LaborSampler([8, 8], edge_ids=True),
    "dense": wb.DenseSampler([6, 6], edge_ids=True),
    "full": wb.FullNeighborSampler(2, edge_ids=True),
}
MAX_INPUTS = 1500


@cache
def graph_of(name: str) -> tuple[Graph, torch.Tensor]:
    """A real graph with edge weights and types and an in-edge of every node, and seeds that are close to each other."""
    try:
        graph = wb.load_dataset(name).graph
    except (FileNotFoundError, ValueError) as error:
        pytest.skip(f"{name} is not here: {error}")
    nodes = torch.arange(graph.num_nodes)
    loops = nodes[graph.in_degrees() == 0]  # which most of DGL's layers refuse to be without
    generator = torch.Generator().manual_seed(0)
    src = torch.cat([graph.indices.long(), loops])
    dst = torch.cat([torch.repeat_interleave(nodes, graph.in_degrees()), loops])
    full = Graph.from_edges(
        src,
        dst,
        num_nodes=graph.num_nodes,
        edge_weight=0.1 + torch.rand(len(src), generator=generator, dtype=torch.float64),
        edge_type=torch.randint(NUM_TYPES, (len(src),), generator=generator),
    )
    first = wb.NeighborSampler([4, 3]).sample(full, torch.arange(5)).node_ids
    return full, first[:NUM_SEEDS]


@cache
def batch(graph: str, sampler: str, *, merged: bool) -> wb.MiniBatch:
    data, seeds = graph_of(graph)
    mb = SAMPLERS[sampler].sample(data, seeds)
    while mb.num_inputs > MAX_INPUTS and len(seeds) > 8:
        seeds = seeds[: len(seeds) // 2]
        mb = SAMPLERS[sampler].sample(data, seeds)
    return as_merged(mb) if merged else mb


@pytest.mark.slow
@pytest.mark.parametrize(("library", "name", "case"), runs())
@pytest.mark.filterwarnings("ignore")
def test_exact_is_said_only_where_parts_are_and_a_warning_given_only_where_they_are_not(
    library: str, name: str, case: Any
) -> None:
    pytest.importorskip(MODULES[library])
    for graph in GRAPHS:
        for sampler in SAMPLERS:
            for merged in (False, True) if library == "pyg" else (case.merged,):
                assert_right(detect(library, case, batch(graph, sampler, merged=merged), merged=merged))


def _print(chosen: list[str]) -> None:
    counts: Counter[str] = Counter()
    for parameters in runs():
        library, name, case = parameters.values
        if chosen and name not in chosen:
            continue
        for graph in GRAPHS:
            for sampler in SAMPLERS:
                merged = library == "pyg" or case.merged
                found = detect(library, case, batch(graph, sampler, merged=merged), merged=merged)
                said = {True: "exact", False: "warned", None: "undecided"}[found.result.exact]
                so = "does not deviate" if found.is_exact else "deviates"
                counts[f"{said}, {so}"] += 1
                if said == "undecided" or (said == "exact") != found.is_exact:
                    print(library, name, case.options, graph, sampler, f"{found.deviation:.2g}", found.result, flush=True)
        print(library, name, case.options, dict(counts), flush=True)


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    _print(sys.argv[1:])
