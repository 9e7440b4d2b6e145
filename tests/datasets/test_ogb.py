"""OGB's raw form: equal to OGB's own reader, and validated."""

import importlib
import sys
import threading
import zipfile

import numpy as np
import pytest
import torch

from tests.datasets.ogb_folder import EDGES, FEATURES, LABELS, SPLIT, needs_ogb, write_binary_set, write_csv, write_set
from workbench.core.errors import CapacityError, DataError
from workbench.datasets import ogb
from workbench.datasets.load import load_dataset

pytestmark = [needs_ogb, pytest.mark.usefixtures("no_network")]


@pytest.fixture
def arxiv(folder):
    written = write_set(folder, "ogbn-arxiv", "time", LABELS)
    write_csv(written / "raw" / "node_year.csv.gz", [2010] * 6)
    return written


def edge_pairs(graph):
    dst = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees())
    return sorted(zip(graph.indices.tolist(), dst.tolist(), strict=True))


def test_first_and_cached_load(arxiv, capfd):
    first = load_dataset("ogbn-arxiv")
    second = load_dataset("ogbn-arxiv")
    for ds in (first, second):
        assert edge_pairs(ds.graph) == sorted(zip(*EDGES.tolist(), strict=True))
        assert torch.equal(ds.x, torch.from_numpy(FEATURES)) and ds.y.tolist() == LABELS
        assert [ids.tolist() for ids in (ds.train_idx, ds.val_idx, ds.test_idx)] == list(SPLIT.values())
        assert (ds.num_classes, ds.name, ds.split, ds.features) == (40, "ogbn-arxiv", "public", "given")
    assert capfd.readouterr() == ("", "")
    assert list((arxiv / "processed").iterdir()) == []


def test_cached_load_does_not_read_again(arxiv, monkeypatch):
    first = load_dataset("ogbn-arxiv")
    monkeypatch.setattr(ogb, "_read_raw", None)
    assert load_dataset("ogbn-arxiv").fingerprint == first.fingerprint
    write_csv(arxiv / "raw" / "node-label.csv.gz", [7] * 6)
    monkeypatch.undo()
    monkeypatch.setenv("WORKBENCH_DATA", str(arxiv.parent))
    assert load_dataset("ogbn-arxiv", root=arxiv.parent).y.tolist() == [7] * 6


def test_equals_the_data_set_of_ogbs_class(arxiv, monkeypatch):
    with ogb._quiet():
        own = importlib.import_module("ogb.nodeproppred.dataset").NodePropPredDataset("ogbn-arxiv", str(arxiv.parent))
        graph, labels = own[0]
        split = own.get_idx_split()
    raw = ogb.read_ogb("ogbn-arxiv", arxiv)
    assert np.array_equal(graph["edge_index"], torch.stack((raw.src, raw.dst)).numpy())
    assert isinstance(raw.x, torch.Tensor) and np.array_equal(graph["node_feat"], raw.x.numpy())
    assert raw.y is not None and np.array_equal(labels[:, 0], raw.y.numpy())
    for theirs, ours in zip(split.values(), raw.splits[0], strict=True):
        assert np.array_equal(theirs, ours.numpy())
    # it stores a pickle, which torch >= 2.6 does not load again; that is not tested
    assert (arxiv / "processed" / "data_processed").is_file()
    assert load_dataset("ogbn-arxiv").y.tolist() == LABELS


def test_inverse_edges_are_added_where_ogb_adds_them(folder):
    write_set(folder, "ogbn-products", "sales_ranking", LABELS)
    both = sorted({*zip(*EDGES.tolist(), strict=True), *zip(*EDGES[::-1].tolist(), strict=True)})
    assert edge_pairs(load_dataset("ogbn-products").graph) == both
    stored = load_dataset("ogbn-products", undirected=False).graph
    assert edge_pairs(stored) == sorted(zip(*EDGES.tolist(), strict=True))


def test_several_labels_and_no_features(folder):
    labels = np.random.default_rng(0).integers(0, 2, (6, 112))
    write_set(folder, "ogbn-proteins", "species", labels, features=None)
    ds = load_dataset("ogbn-proteins")
    assert torch.equal(ds.y, torch.from_numpy(labels).float()) and ds.num_classes == 112
    assert ds.x.shape == (6, 0) and ds.features == "none"


def test_binary_layout(folder):
    write_binary_set(folder)
    ds = load_dataset("ogbn-papers100M")
    assert ds.y.tolist() == [0, -1, 171, 2, -1, 1] and ds.num_classes == 172
    assert torch.equal(ds.x, torch.from_numpy(FEATURES))
    assert edge_pairs(ds.graph) == sorted(zip(*EDGES.tolist(), strict=True))


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("RELEASE_v1.txt", None, r"ogbn_arxiv has no RELEASE_v1.txt; delete it and get it again: workbench data get"),
        ("raw/edge.csv.gz", None, "has no raw/edge.csv.gz"),
        ("split/time/valid.csv.gz", None, "has no split/time/valid.csv.gz"),
        ("raw/edge.csv.gz", [[0, 6]] * 5, r"edge.csv.gz: edge\[0, 1\] is 6; it must be in \[0, 6\)"),
        ("raw/edge.csv.gz", [[0, -1]] * 5, r"edge\[0, 1\] is -1"),
        ("raw/num-node-list.csv.gz", [0], "the graph is empty, with 0 nodes"),
        ("raw/node-feat.csv.gz", [[np.nan, 0.0]] * 6, r"node-feat\[0, 0\] is nan; it must be finite"),
        ("raw/node-feat.csv.gz", [[1.0, 0.5]] * 5, r"node-feat has shape \[5, 2\]; it must be \[6, any\]"),
        ("raw/node-label.csv.gz", [40] * 6, r"node-label\[0, 0\] is 40; it must be in \[-1, 40\)"),
        ("raw/node-label.csv.gz", [1] * 5, r"node-label has shape \[5, 1\]; it must be \[6\]"),
        ("raw/node-label.csv.gz", [0.5] * 6, r"node-label\[0, 0\] is 0.5; classes are whole numbers"),
        ("split/time/test.csv.gz", [5.5], "test has dtype float64; it must contain integers"),
        ("split/time/test.csv.gz", [6], r"test.csv.gz: test\[0\] is 6; it must be in \[0, 6\)"),
        ("split/time/test.csv.gz", [0], "train.csv.gz and test.csv.gz both contain node 0"),
    ],
)
def test_invalid_folders_are_refused(arxiv, file, values, message):
    if values is None:
        (arxiv / file).unlink()
    else:
        write_csv(arxiv / file, values)
    with pytest.raises(DataError, match=message) as error:
        load_dataset("ogbn-arxiv")
    assert str(arxiv) in str(error.value)


def test_a_truncated_file_is_named(arxiv):
    path = arxiv / "raw" / "node-feat.csv.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"node-feat\.csv\.gz: .*get it again: workbench data get ogbn-arxiv"):
        load_dataset("ogbn-arxiv")


def test_exceeding_memory_is_refused(arxiv, monkeypatch):
    monkeypatch.setattr(ogb, "available_bytes", lambda: 10)
    with pytest.raises(CapacityError, match=r"ogbn-arxiv requires about .* 10 B are free"):
        load_dataset("ogbn-arxiv")


def test_a_missing_package_is_named(arxiv, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'gnn-workbench\[ogb\]'"):
        load_dataset("ogbn-arxiv")


def test_import_starts_no_thread(arxiv, monkeypatch):
    before = threading.active_count()
    for module in [name for name in sys.modules if name.partition(".")[0] in ("ogb", "outdated")]:
        monkeypatch.delitem(sys.modules, module)
    load_dataset("ogbn-arxiv")
    assert "ogb" in sys.modules and threading.active_count() == before and "outdated" not in sys.modules


def test_a_missing_data_set_names_the_command(folder):
    with pytest.raises(FileNotFoundError, match="get it: workbench data get ogbn-products"):
        load_dataset("ogbn-products")
    with pytest.raises(FileNotFoundError, match=r"cora\.npz .*put cora.npz there"):
        load_dataset("cora")


def test_path_components_from_ogbs_table_are_validated(monkeypatch):
    monkeypatch.setattr(ogb.csv, "DictReader", lambda text: [{"": "download_name", "ogbn-arxiv": "../arxiv"}])
    with pytest.raises(ValueError, match=r"'\.\./arxiv' is not a valid data set name"):
        ogb.ogb_meta("ogbn-arxiv")


def test_a_binary_header_with_too_large_a_size(folder):
    path = write_binary_set(folder) / "raw" / "data.npz"
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries["node_feat.npy"] = entries["node_feat.npy"].replace(b"(6, 3), }      ", b"(6, 3000000), }")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    with pytest.raises(DataError, match=r"data\.npz: node_feat should have 68.66 MiB, but has 72 B in the file"):
        load_dataset("ogbn-papers100M")
