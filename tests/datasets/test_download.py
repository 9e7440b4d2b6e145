"""Downloads of OGB data sets: complete or nothing, encrypted, confined to the data folder."""

import hashlib
import io
import json
import urllib.error
import urllib.request
import zipfile

import pytest

from tests.datasets.ogb_folder import LABELS, needs_ogb, write_set
from tests.killed import killed_at_each_operation
from workbench.core.errors import CapacityError
from workbench.datasets import download as download_module, ogb
from workbench.datasets.download import download
from workbench.datasets.load import load_dataset

pytestmark = [needs_ogb, pytest.mark.usefixtures("no_network")]


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
