"""The catalog of published data sets: a description and the source of each."""

import re
from typing import NamedTuple

from workbench.core.suggestions import did_you_mean

_FORMAT = "its arrays are listed in docs/data.md"


class Known(NamedTuple):
    """A published data set.

    Args:
        what: a short description.
        source: "archive" (a file `NAME.npz` that the user puts into the data folder), "OGB" (`workbench data get`
            downloads it) or "stand-in" (generated when it is loaded).
    """

    what: str
    source: str


_ARCHIVES = {
    "cora": "citation network, bag of words (Planetoid)",
    "citeseer": "citation network, bag of words (Planetoid)",
    "pubmed-nofeat": "citation network without features (Planetoid)",
    "ogbn-arxiv": "citation network of arXiv (OGB); the archive has ranked classes as features",
    "amazon-computers": "co-purchase graph, bag of words (Shchur et al.)",
    "coauthor-cs": "co-authorship graph, keyword counts (Shchur et al.)",
    "tolokers": "crowd workers who shared a task (Platonov et al.)",
    "cnr-2000": "web crawl, topology (LAW)",
    "uk-2007-05-100k": "web crawl, topology (LAW)",
    "dblp-2010": "co-authorship graph, topology (LAW)",
    "soc-epinions1": "trust network, topology (SNAP)",
    "ppi-saint-topology": "protein interactions, topology and split (GraphSAINT)",
    "ogbl-ddi": "drug interactions, link prediction (OGB)",
    "fb15k-237": "knowledge graph, Freebase",
    "codex-m": "knowledge graph, Wikidata",
}

OGB_SETS = {
    "ogbn-arxiv": "citation network of arXiv",
    "ogbn-products": "co-purchase graph of Amazon",
    "ogbn-proteins": "protein associations, 112 labels per node, no node features",
    "ogbn-papers100M": "citation network, 111 million papers",
}


def known_sets() -> dict[str, Known]:
    """List all data sets of the catalog by name."""
    from workbench.standin.catalog import STANDINS

    stand_ins = {name: Known(f"like {name.removeprefix('synthetic-')}, generated", "stand-in") for name in STANDINS}
    archives = {name: Known(what, "archive") for name, what in _ARCHIVES.items()}
    ogb = {name: Known(what, "OGB") for name, what in OGB_SETS.items()}
    return archives | ogb | stand_ins


def how_to_get(name: str) -> str:
    """Explain how to get a data set that is not in the data folder."""
    known = known_sets()
    if name not in known:
        meant = did_you_mean(name, known)
        told = "`workbench data list` shows the known ones"
        return f"{f'{meant} ' if meant else ''}{told}; to use your own, put {name}.npz there ({_FORMAT})"
    if known[name].source == "OGB":
        return f"get it: workbench data get {name}"
    return f"put {name}.npz there ({_FORMAT})"


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(name: str) -> str:
    """Validate the name of a data set.

    Returns:
        `name`.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid data set name: use up to 100 letters, digits, '.', '-' and '_', "
            "starting with a letter or a digit; pass folders as root="
        )
    return name
