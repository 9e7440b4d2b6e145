"""`load_dataset`: published archives, options, cache and errors."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.core.errors import CapacityError, DataError
from workbench.datasets.catalog import known_sets
from workbench.datasets.load import loading_call
from workbench.datasets.raw import random_features

PUBLISHED = Path(os.environ.get("WORKBENCH_DATA", "")).absolute()
"""Folder of published archives; those present are tested, all other tests write their own."""

# name: nodes, edges stored, unique undirected edges without loops, features, classes, split
NODE_SETS = {
    "cora": (2708, 10556, 5278, 1433, 7, (140, 500, 1000)),
    "citeseer": (3327, 9104, 4552, 3703, 6, (120, 500, 1000)),
    "pubmed-nofeat": (19717, 88648, 44324, 0, 3, (60, 500, 1000)),
    "ogbn-arxiv": (169343, 1166243, 1157799, 40, 40, (90941, 29799, 48603)),
    "amazon-computers": (13752, 287209, 245861, 767, 10, None),
    "coauthor-cs": (18333, 163788, 81894, 6805, 15, None),
    "tolokers": (11758, 519000, 519000, 10, 2, (5879, 2939, 2940)),
    "cnr-2000": (325557, 3216152, 2738969, 0, 0, None),
    "uk-2007-05-100k": (100000, 3050615, 2779575, 0, 0, None),
    "dblp-2010": (326186, 1615400, 807700, 0, 0, None),
    "soc-epinions1": (75879, 508837, 405740, 0, 0, None),
    "ppi-saint-topology": (14755, 450540, 222109, 0, 0, (9716, 1825, 3214)),
    "ogbl-ddi": (4267, 1067911, 1067911, 0, 0, None),
}
# name: entities, relations, triples
KNOWLEDGE = {
    "fb15k-237": (14541, 237, (272115, 17535, 20466)),
    "codex-m": (17050, 51, (185584, 10310, 10311)),
}
ONCE = {"tolokers", "ogbl-ddi"}


def present(names):
    return [name for name in names if (PUBLISHED / f"{name}.npz").is_file()]


def parts(ds):
    return tuple(len(ids) for ids in (ds.train_idx, ds.val_idx, ds.test_idx))


@pytest.mark.parametrize("name", present(NODE_SETS))
def test_published_node_sets(name):
    nodes, stored, undirected, width, classes, split = NODE_SETS[name]
    # dense features of these two data sets would be 0.5 GB to write and read
    features = "degree" if width > 1500 else "given"
    ds = wb.load_dataset(name, root=PUBLISHED, features=features)
    assert ds.graph.num_nodes == nodes and ds.num_classes == classes
    assert ds.graph.num_edges == (2 * stored if name in ONCE else stored)
    assert features == "degree" or ds.num_features == width
    assert (parts(ds) == split) if split else (sum(parts(ds)) == (nodes if not classes else int((ds.y >= 0).sum())))
    assert ds.split == ("public:0" if name == "tolokers" else "public" if split else "seeded:0")
    assert bool((ds.y == -1).all()) == (classes == 0)
    both = wb.load_dataset(name, root=PUBLISHED, features="degree", undirected=True, self_loops=False).graph
    assert both.num_edges == 2 * undirected


@pytest.mark.parametrize("name", present(KNOWLEDGE))
def test_published_knowledge_graphs(name):
    entities, relations, triples = KNOWLEDGE[name]
    for _ in range(2):
        kg = wb.load_dataset(name, root=PUBLISHED)
        assert isinstance(kg, wb.links.KnowledgeGraph) and (kg.num_entities, kg.num_relations) == (entities, relations)
        assert (len(kg.train), len(kg.valid), len(kg.test)) == triples
        assert kg.entity_names is not None and len(kg.entity_names) == entities
    assert kg.graph(inverse=True).num_edges == 2 * triples[0]
    head, relation, tail = kg.test[:500].T
    rows, known = kg.tail_filter(head, relation)
    assert set(zip(range(500), tail.tolist(), strict=True)) <= set(zip(rows.tolist(), known.tolist(), strict=True))


@pytest.mark.parametrize("name", present(["ogbl-ddi"]))
def test_published_link_split(name):
    links = wb.load_dataset(name, root=PUBLISHED).link_split
    assert [pairs.shape[1] for pairs in links.tensors().values()] == [1067911, 133489, 101882, 133489, 95599]


@pytest.mark.parametrize("name", present(["ogbn-arxiv"]))
def test_ranked_classes_have_the_published_accuracy(name):
    ds = wb.load_dataset(name, root=PUBLISHED)
    assert ds.features == "ranked-classes"
    best = ds.x.argmax(1)
    for ids, accuracy in ((ds.train_idx, 0.728), (ds.val_idx, 0.743), (ds.test_idx, 0.744)):
        assert float((best[ids] == ds.y[ids]).float().mean()) == pytest.approx(accuracy, abs=6e-4)


def test_the_cached_data_set_is_equal(write):
    write()
    first, second = wb.load_dataset("tiny"), wb.load_dataset("tiny")
    assert first.fingerprint == second.fingerprint and torch.equal(first.x, second.x)
    assert (first.name, first.split, first.features, first.num_classes) == ("tiny", "public", "given", 3)
    assert first.graph.indices.tolist() == [1, 0, 3, 2, 4, 4] and first.graph.indptr.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_a_changed_archive_is_read_again(write):
    write()
    before = wb.load_dataset("tiny")
    write(x=np.ones((6, 2), np.float32))
    after = wb.load_dataset("tiny")
    assert after.fingerprint != before.fingerprint and float(after.x.sum()) == 12
    assert float(before.x.sum()) == 66  # an open data set does not change


def test_a_damaged_archive_is_refused_although_it_is_cached(write):
    path = write()
    wb.load_dataset("tiny")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="not a complete zip archive"):
        wb.load_dataset("tiny")


def test_options_change_what_is_loaded(write):
    write()
    assert wb.load_dataset("tiny", undirected=True).graph.num_edges == 7
    assert wb.load_dataset("tiny", self_loops=True).graph.num_edges == 11
    assert wb.load_dataset("tiny", self_loops=False).graph.num_edges == 5
    assert wb.load_dataset("tiny", features="degree").features == "degree"
    ds = wb.load_dataset("tiny", features="random:8", seed=3)
    assert torch.equal(ds.x, random_features(6, 8, seed=3)) and ds.features == "random:8"
    assert wb.load_dataset("tiny").graph.num_edges == 6


def test_data_sets_without_labels_features_or_split(write):
    write("bare", x=None, y=None, train_idx=None, val_idx=None, test_idx=None)
    ds = wb.load_dataset("bare", seed=2)
    assert ds.x.shape == (6, 0) and ds.y.tolist() == [-1] * 6 and ds.num_classes == 0
    assert (ds.features, ds.split) == ("none", "seeded:2") and sum(parts(ds)) == 6


def test_a_data_set_that_stores_each_edge_once(write):
    write("tolokers", edge_index=np.array([[0, 1], [1, 2]]))
    assert wb.load_dataset("tolokers").graph.num_edges == 4
    assert wb.load_dataset("tolokers", undirected=False).graph.num_edges == 2


def test_knowledge_graphs_accept_no_graph_options(write_triples):
    write_triples()
    assert wb.load_dataset("facts").known_tails(0, 0).tolist() == [1, 2, 3]
    refused: list[dict[str, Any]] = [{"undirected": True}, {"features": "degree"}, {"self_loops": False}, {"split": 1}]
    for options in refused:
        with pytest.raises(ValueError, match="facts is a knowledge graph and accepts no graph options"):
            wb.load_dataset("facts", **options)


def test_the_data_folder_is_an_option(write, tmp_path, monkeypatch):
    path = write()
    monkeypatch.setenv("WORKBENCH_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "elsewhere"))):
        wb.load_dataset("tiny")
    assert wb.load_dataset("tiny", root=path.parent).num_classes == 3


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("nothing", {}, FileNotFoundError, r"neither nothing\.npz nor an OGB.*`workbench data list` shows"),
        ("ogbn-arxvi", {}, FileNotFoundError, r"did you mean 'ogbn-arxiv'\?"),
        ("cora", {}, FileNotFoundError, r"put cora\.npz there \(its arrays are listed in docs/data\.md\)"),
        ("ogbn-products", {}, FileNotFoundError, "workbench data get ogbn-products"),
        ("../tiny", {}, ValueError, "is not a valid data set name"),
        ("x" * 300, {}, ValueError, "is not a valid data set name: use up to 100 letters"),
        ("tiny\n", {}, ValueError, "is not a valid data set name"),
        ("tiny", {"scale": 0.5}, ValueError, "scale is 0.5, but tiny is not a stand-in"),
        ("tiny", {"features": "one-hot"}, ValueError, "features 'one-hot' is not known"),
        ("tiny", {"split": 1}, ValueError, "split is 1; this data set has 1 public splits"),
        ("synthetic-nothing", {}, ValueError, "synthetic-nothing"),
        ("synthetic-arxiv", {"scale": 2.0}, ValueError, "scale is 2.0"),
    ],
)
def test_refused(write, name, options, error, message):
    write()
    with pytest.raises(error, match=message):
        wb.load_dataset(name, **options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_idx": np.array([0, 0])}, "train_idx contains 0 more than once"),
        ({"val_idx": np.array([0])}, "train_idx and val_idx both contain node 0"),
        ({"class_names": np.array(["a", "b"])}, r"y\[5\] is 2; it must be in \[-1, 2\)"),
    ],
)
def test_inconsistent_arrays_are_refused_with_the_file(write, change, message):
    path = write(**change)
    with pytest.raises(DataError, match=message) as error:
        wb.load_dataset("tiny")
    assert str(path) in str(error.value)


def test_stand_ins_are_generated_once(monkeypatch):
    small: dict[str, Any] = {"scale": 0.005, "seed": 1}
    ds = wb.load_dataset("synthetic-arxiv", **small)
    monkeypatch.setattr("workbench.standin.build.build_standin", None)
    assert wb.load_dataset("synthetic-arxiv", **small).fingerprint == ds.fingerprint


def test_stand_ins_accept_options():
    small: dict[str, Any] = {"scale": 0.005, "seed": 1}
    ds = wb.load_dataset("synthetic-arxiv", **small)
    both = wb.load_dataset("synthetic-arxiv", **small, undirected=True, features="random:4")
    assert both.graph.num_edges > 1.9 * ds.graph.num_edges and both.x.shape == (ds.graph.num_nodes, 4)
    assert torch.equal(both.y, ds.y) and both.split == ds.split and torch.equal(both.val_idx, ds.val_idx)


def test_numbers_of_numpy_are_those_of_python(write):
    write()
    arguments: dict[str, Any] = {"name": "synthetic-flickr", "scale": 0.001, "seed": 3}
    plain = wb.load_dataset(**arguments)
    data = wb.load_dataset(**arguments | {"scale": np.float64(0.001), "seed": np.int64(3)})
    assert data.fingerprint == plain.fingerprint and data.split == plain.split == "seeded:3"
    assert loading_call(data) == loading_call(plain) == "wb.load_dataset('synthetic-flickr', scale=0.001, seed=3)"
    options: dict[str, Any] = {"split": np.int64(0), "seed": np.int32(5)}
    tiny = wb.load_dataset("tiny", **options)
    assert tiny.fingerprint == wb.load_dataset("tiny").fingerprint


def test_a_stand_in_that_exceeds_memory_is_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr("workbench.standin.build.available_bytes", lambda: 1000)
    with pytest.raises(CapacityError, match=r"requires .* of memory, but 1000 B are free"):
        wb.load_dataset("synthetic-products")


def test_every_published_archive_is_in_the_catalog():
    known = known_sets()
    assert {*NODE_SETS, *KNOWLEDGE} <= known.keys()
