import builtins
import importlib
import socket
import sys
import threading
import urllib.error
import urllib.request
import zipfile

import numpy as np
import pytest
import torch

from tests.datasets.ogb_folder import EDGES, FEATURES, SPLIT, needs_ogb, write_binary_set, write_csv, write_set
from workbench.core.errors import CapacityError, DataError
from workbench.datasets import download as download_module
from workbench.datasets import ogb
from workbench.datasets.download import download
from workbench.datasets.load import load_dataset

pytestmark = needs_ogb
LABELS = [0, 1, 2, 39, 4, 5]


@pytest.fixture(autouse=True)
def no_network_and_no_questions(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("reached for the network, or asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(builtins, "input", refuse)


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


def test_equals_ogbs_own_data_set(arxiv, monkeypatch):
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
    # what it leaves behind is what torch >= 2.6 does not load again; here it is not looked at
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
        ("RELEASE_v1.txt", None, r"ogbn_arxiv lacks RELEASE_v1.txt; delete it and get it again: workbench data get"),
        ("raw/edge.csv.gz", None, "lacks raw/edge.csv.gz"),
        ("split/time/valid.csv.gz", None, "lacks split/time/valid.csv.gz"),
        ("raw/edge.csv.gz", [[0, 6]] * 5, r"the edges hold 6; ids must lie in \[0, 6\)"),
        ("raw/edge.csv.gz", [[0, -1]] * 5, "the edges hold -1"),
        ("raw/num-node-list.csv.gz", [0], "an empty graph"),
        ("raw/node-feat.csv.gz", [[np.nan, 0.0]] * 6, "x holds nan"),
        ("raw/node-feat.csv.gz", [[1.0, 0.5]] * 5, r"x has shape \(5, 2\)"),
        ("raw/node-label.csv.gz", [40] * 6, r"y holds 40; classes lie in \[0, 40\)"),
        ("raw/node-label.csv.gz", [1] * 5, r"y has shape \(5,\)"),
        ("raw/node-label.csv.gz", [0.5] * 6, "labels are not whole numbers but float64"),
        ("split/time/test.csv.gz", [5.5], "ids of the split are not whole numbers but float64"),
        ("split/time/test.csv.gz", [6], "test_idx holds 6"),
        ("split/time/test.csv.gz", [0], "the split holds 0 more than once"),
    ],
)
def test_bad_folders_are_refused(arxiv, file, values, message):
    if values is None:
        (arxiv / file).unlink()
    else:
        write_csv(arxiv / file, values)
    with pytest.raises(DataError, match=message) as error:
        load_dataset("ogbn-arxiv")
    assert str(arxiv) in str(error.value)


def test_truncated_file_is_named(arxiv):
    path = arxiv / "raw" / "node-feat.csv.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"node-feat\.csv\.gz: .*get it again: workbench data get ogbn-arxiv"):
        load_dataset("ogbn-arxiv")


def test_more_than_memory_is_refused(arxiv, monkeypatch):
    monkeypatch.setattr(ogb, "available_bytes", lambda: 10)
    with pytest.raises(CapacityError, match=r"ogbn-arxiv needs about .* 10 B are free"):
        load_dataset("ogbn-arxiv")


def test_missing_package_is_named(arxiv, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'gnn-workbench\[ogb\]'"):
        load_dataset("ogbn-arxiv")


def test_import_starts_no_thread(arxiv, monkeypatch):
    before = threading.active_count()
    for module in [name for name in sys.modules if name.partition(".")[0] in ("ogb", "outdated")]:
        monkeypatch.delitem(sys.modules, module)
    load_dataset("ogbn-arxiv")
    assert "ogb" in sys.modules and threading.active_count() == before and "outdated" not in sys.modules


def test_set_that_is_missing_names_the_command(folder):
    with pytest.raises(FileNotFoundError, match="get it: workbench data get ogbn-products"):
        load_dataset("ogbn-products")
    with pytest.raises(FileNotFoundError, match=r"cora\.npz .*put cora.npz there"):
        load_dataset("cora")


def offline(url, *args, **kwargs):
    raise urllib.error.URLError("no route to host")


def test_offline_download_says_so(folder, monkeypatch):
    monkeypatch.setattr(urllib.request, "urlopen", offline)
    with pytest.raises(ConnectionError, match=r"ogbn-products can't be downloaded from http.*: no route to host; run"):
        download("ogbn-products")
    assert list(folder.iterdir()) == []


def serve(monkeypatch, name, url):
    meta = ogb.ogb_meta(name) | {"url": url}
    monkeypatch.setattr(download_module, "ogb_meta", lambda name: meta)


def test_download_unpacks_and_loads(folder, tmp_path, monkeypatch, capfd):
    original = write_set(tmp_path / "published", "ogbn-arxiv", "time", LABELS)
    packed = tmp_path / "arxiv.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in original.rglob("*"):
            archive.write(path, "arxiv" / path.relative_to(original))
    serve(monkeypatch, "ogbn-arxiv", packed.as_uri())
    target = download("ogbn-arxiv")
    assert target == folder / "ogbn_arxiv" and [p.name for p in folder.iterdir()] == ["ogbn_arxiv"]
    assert load_dataset("ogbn-arxiv").y.tolist() == LABELS
    packed.unlink()
    assert download("ogbn-arxiv") == target


def test_broken_download_leaves_nothing(folder, tmp_path, monkeypatch):
    packed = tmp_path / "arxiv.zip"
    packed.write_bytes(b"this is an error page")
    serve(monkeypatch, "ogbn-arxiv", packed.as_uri())
    with pytest.raises(ConnectionError, match="can't be downloaded from file:"):
        download("ogbn-arxiv")
    assert list(folder.iterdir()) == []


def test_download_refuses_what_is_in_the_way_unknown_or_too_large(folder, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="cora can't be downloaded, only ogbn-arxiv"):
        download("cora")
    packed = tmp_path / "arxiv.zip"
    packed.write_bytes(bytes(1000))
    serve(monkeypatch, "ogbn-arxiv", packed.as_uri())
    monkeypatch.setattr(download_module, "_UNPACKED", 10**15)
    with pytest.raises(CapacityError, match=r"ogbn-arxiv may need .* of disk"):
        download("ogbn-arxiv")
    (folder / "ogbn_arxiv").mkdir()
    with pytest.raises(FileExistsError, match="is no OGB set"):
        download("ogbn-arxiv")
