"""`open_owned_graph`: the part of a divided graph that this rank owns, from its own folder."""

import os

from workbench.distributed.group import Group, get_rank, get_world_size
from workbench.partition.graph.split_graph import open_part, stored_num_parts
from workbench.sampling.owned_graph import OwnedGraph


def open_owned_graph(folder: str | os.PathLike[str], group: Group = None, *, verify: bool = False) -> OwnedGraph:
    """Memory-map this rank's part of a graph that `workbench.split_graph` divided; no other part is opened.

    Args:
        folder: the folder given to `split_graph`; a rank needs its own part in it, and the owners.
        group: the ranks; None for all.
        verify: read everything and compare checksums.

    Returns:
        The in-edges of this rank's nodes, and the owner of every node.

    Raises:
        ValueError: the graph was divided into another number of parts than there are ranks.
        FileNotFoundError: the folder or the part is missing.
        CorruptFileError: a file is truncated, modified or not a valid graph.

    Source: BatchGNN, section 3, "Streaming partitioner".
    """
    rank, size = get_rank(group), get_world_size(group)
    part = open_part(folder, rank, verify=verify)
    if (parts := stored_num_parts(folder)) != size:
        raise ValueError(
            f"{os.fspath(folder)} contains {parts} parts, but there are {size} ranks; start as many ranks as "
            f"parts, or divide the graph again with workbench.split_graph(…, num_parts={size})"
        )
    return OwnedGraph(part.graph, part.owner, rank, size)
