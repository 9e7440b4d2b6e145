"""OGB's raw form: equal to OGB's own reader, and validated."""

import hashlib
import importlib
import io
import json
import sys
import threading
import urllib.error
import urllib.request
import zipfile

import numpy as np
import pytest
import torch

from tests.datasets.ogb_folder import EDGES, FEATURES, LABELS, SPLIT, needs_ogb, write_binary_set, write_csv, write_set
from tests.killed import killed_at_each_operation
from workbench.core.errors import CapacityError, DataError
from workbench.datasets import ogb, ogb as download_module
from workbench.datasets.load import load_dataset
from workbench.datasets.ogb import download

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


def offline(url, *args, **kwargs):
    raise urllib.error.URLError("no route to host")


def test_downloading_without_network(folder, monkeypatch):
    monkeypatch.setattr(urllib.request, "urlopen", offline)
    with pytest.raises(ConnectionError, match=r"ogbn-products can't be downloaded from https:.*: no route to host"):
        download("ogbn-products")
    assert list(folder.iterdir()) == []


def serve(monkeypatch, name, url):
    meta = ogb.ogb_meta(name) | {"url": url}
    monkeypatch.setattr(download_module, "ogb_meta", lambda name: meta)


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """Write the archive that the publisher serves."""
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


def test_entries_can_not_escape_the_folder(folder, packed, tmp_path):
    with zipfile.ZipFile(packed, "a") as archive:
        for name in ("arxiv/../../../outside", "../outside", "/outside", "outside", "arxiv//etc/outside"):
            archive.writestr(name, "x")
    target = download("ogbn-arxiv")
    assert [p.name for p in folder.iterdir()] == ["ogbn_arxiv"] and not (tmp_path / "outside").exists()
    assert {p.relative_to(target).as_posix() for p in target.rglob("outside")} == {"outside", "etc/outside"}


@pytest.mark.parametrize("cut", [0, 10, 500])
def test_a_broken_download_leaves_nothing(folder, packed, cut):
    packed.write_bytes(packed.read_bytes()[:-cut] if cut else b"this is an error page")
    with pytest.raises(ConnectionError, match="can't be downloaded from file:"):
        download("ogbn-arxiv")
    assert list(folder.iterdir()) == []


def test_a_corrupt_download_leaves_nothing(folder, packed):
    content = bytearray(packed.read_bytes())
    content[content.index(b"\x1f\x8b") + 12] ^= 1
    packed.write_bytes(content)
    with pytest.raises(ConnectionError, match="Bad CRC-32"):
        download("ogbn-arxiv")
    assert list(folder.iterdir()) == []


class Reply(io.BytesIO):
    """A reply over the network."""

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
def test_unencrypted_and_incomplete_transfers_are_refused(folder, packed, monkeypatch, url, missing, message):
    content, requested = packed.read_bytes(), []

    def urlopen(requested_url, **options):
        requested.append(requested_url)
        return Reply(content, url, len(content) + missing)

    monkeypatch.undo()
    monkeypatch.setenv("WORKBENCH_DATA", str(folder))
    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    with pytest.raises(ConnectionError, match=message):
        download("ogbn-arxiv")
    assert requested == ["https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"] and list(folder.iterdir()) == []


@pytest.mark.slow
def test_killed_while_unpacking(folder, packed):
    """The next download deletes the drafts of killed ones, which may have gigabytes."""
    moments = 0
    for _ in killed_at_each_operation(lambda: download("ogbn-arxiv"), folder):
        moments += 1
        assert download("ogbn-arxiv") == folder / "ogbn_arxiv"
        assert [p.name for p in folder.iterdir()] == ["ogbn_arxiv"]
        assert load_dataset("ogbn-arxiv").y.tolist() == LABELS
        (folder / "ogbn_arxiv").rename(folder.parent / f"moved {moments}")
    assert moments > 12


def test_downloads_that_are_unknown_too_large_or_blocked_are_refused(folder, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="cora can't be downloaded, only ogbn-arxiv"):
        download("cora")
    packed = tmp_path / "arxiv.zip"
    packed.write_bytes(bytes(1000))
    serve(monkeypatch, "ogbn-arxiv", packed.as_uri())
    monkeypatch.setattr(download_module, "_DISK_FACTOR", 10**15)
    with pytest.raises(CapacityError, match=r"ogbn-arxiv may require .* of disk"):
        download("ogbn-arxiv")
    (folder / "ogbn_arxiv").mkdir()
    with pytest.raises(FileExistsError, match="is not an OGB data set"):
        download("ogbn-arxiv")
