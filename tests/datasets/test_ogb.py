import builtins
import hashlib
import importlib
import io
import json
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
from tests.killed import killed_at_each_operation
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
    with pytest.raises(ConnectionError, match=r"ogbn-products can't be downloaded from https:.*: no route to host"):
        download("ogbn-products")
    assert list(folder.iterdir()) == []


def serve(monkeypatch, name, url):
    meta = ogb.ogb_meta(name) | {"url": url}
    monkeypatch.setattr(download_module, "ogb_meta", lambda name: meta)


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """The archive that the publisher serves."""
    original = write_set(tmp_path / "published", "ogbn-arxiv", "time", LABELS)
    path = tmp_path / "arxiv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in original.rglob("*"):
            archive.write(file, "arxiv" / file.relative_to(original))
    serve(monkeypatch, "ogbn-arxiv", path.as_uri())
    return path


def test_download_unpacks_and_loads(folder, packed):
    target = download("ogbn-arxiv")
    assert target == folder / "ogbn_arxiv" and [p.name for p in folder.iterdir()] == ["ogbn_arxiv"]
    assert load_dataset("ogbn-arxiv").y.tolist() == LABELS
    note = json.loads((target / "download.json").read_text())
    content = packed.read_bytes()
    expected = {"url": packed.as_uri(), "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert note == expected
    packed.unlink()
    assert download("ogbn-arxiv") == target


def test_entries_that_lead_elsewhere_stay_in_the_folder_or_are_left_out(folder, packed, tmp_path):
    with zipfile.ZipFile(packed, "a") as archive:
        for name in ("arxiv/../../../outside", "../outside", "/outside", "outside", "arxiv//etc/outside"):
            archive.writestr(name, "x")
    target = download("ogbn-arxiv")
    assert [p.name for p in folder.iterdir()] == ["ogbn_arxiv"] and not (tmp_path / "outside").exists()
    assert {p.relative_to(target).as_posix() for p in target.rglob("outside")} == {"outside", "etc/outside"}


@pytest.mark.parametrize("cut", [0, 10, 500])
def test_broken_download_leaves_nothing(folder, packed, cut):
    packed.write_bytes(packed.read_bytes()[:-cut] if cut else b"this is an error page")
    with pytest.raises(ConnectionError, match="can't be downloaded from file:"):
        download("ogbn-arxiv")
    assert list(folder.iterdir()) == []


def test_altered_download_leaves_nothing(folder, packed):
    content = bytearray(packed.read_bytes())
    content[content.index(b"\x1f\x8b") + 12] ^= 1
    packed.write_bytes(content)
    with pytest.raises(ConnectionError, match="Bad CRC-32"):
        download("ogbn-arxiv")
    assert list(folder.iterdir()) == []


class Reply(io.BytesIO):
    """An answer over the network."""

    def __init__(self, content, url, size):
        super().__init__(content)
        self.url, self.headers = url, {"Content-Length": str(size)}

    def geturl(self):
        return self.url


@pytest.mark.parametrize(
    ("url", "missing", "message"),
    [
        ("http://elsewhere/arxiv.zip", 0, "redirected to http://elsewhere/arxiv.zip, which is not encrypted"),
        ("https://elsewhere/arxiv.zip", 7, r"the transfer ended after [\d,]+ of [\d,]+ bytes"),
    ],
)
def test_transfers_are_encrypted_and_complete(folder, packed, monkeypatch, url, missing, message):
    content, asked = packed.read_bytes(), []

    def urlopen(url_asked, **options):
        asked.append(url_asked)
        return Reply(content, url, len(content) + missing)

    monkeypatch.undo()
    monkeypatch.setenv("WORKBENCH_DATA", str(folder))
    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    with pytest.raises(ConnectionError, match=message):
        download("ogbn-arxiv")
    assert asked == ["https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"] and list(folder.iterdir()) == []


def test_killed_while_unpacking(folder, packed):
    """Drafts are gigabytes: the next download deletes those of killed ones."""
    moments = 0
    for _ in killed_at_each_operation(lambda: download("ogbn-arxiv"), folder):
        moments += 1
        assert download("ogbn-arxiv") == folder / "ogbn_arxiv"
        assert [p.name for p in folder.iterdir()] == ["ogbn_arxiv"]
        assert load_dataset("ogbn-arxiv").y.tolist() == LABELS
        (folder / "ogbn_arxiv").rename(folder.parent / f"moved {moments}")
    assert moments > 12


def test_names_of_paths_from_ogbs_table_are_checked(monkeypatch):
    monkeypatch.setattr(ogb.csv, "DictReader", lambda text: [{"": "download_name", "ogbn-arxiv": "../arxiv"}])
    with pytest.raises(ValueError, match=r"'\.\./arxiv' is no name of a data set"):
        ogb.ogb_meta("ogbn-arxiv")


def test_binary_header_that_claims_too_much(folder):
    path = write_binary_set(folder) / "raw" / "data.npz"
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries["node_feat.npy"] = entries["node_feat.npy"].replace(b"(6, 3), }      ", b"(6, 3000000), }")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    with pytest.raises(DataError, match=r"data\.npz: node_feat claims 68.66 MiB, but 72 B are there"):
        load_dataset("ogbn-papers100M")


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
