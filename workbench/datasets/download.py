"""Downloading a published set: the one place that reaches for the network, and it never asks.

OGB publishes no checksums. So the transfer is by https, its size and the checksums inside the archive are compared, and
the archive's own sha256 is noted in `download.json`, to be compared with that of another download.
"""

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import tempfile
import urllib.request
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

from workbench import files
from workbench.core.errors import CapacityError
from workbench.core.units import format_bytes
from workbench.datasets.folders import check_name, data_folder
from workbench.datasets.known import OGB_SETS, how_to_get
from workbench.datasets.ogb import ogb_folder, ogb_meta

_TIMEOUT_SECONDS = 30.0
_CHUNK = 1 << 20
_BROKEN = (OSError, http.client.HTTPException, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)
_UNPACKED = 4  # at most so many times the download, the download itself included


def download(name: str, *, root: str | os.PathLike[str] | None = None) -> Path:
    """Download an OGB node-property set, unpack it and put it into the data folder, whole or not at all.

    Args:
        name: one of `OGB_SETS`.
        root: data folder; default: WORKBENCH_DATA, else ~/.local/share/workbench.

    Returns:
        The set's folder; one that is there already is left as it is.

    Raises:
        ValueError: a set that can't be downloaded.
        ConnectionError: the network, or the publisher's server, is out of reach.
        CapacityError: more than fits onto the disk.
        FileExistsError: something else is in its place.
        ModuleNotFoundError: OGB's package is not installed.
    """
    folder = data_folder(root)
    if check_name(name) not in OGB_SETS:
        raise ValueError(f"{name} can't be downloaded, only {', '.join(OGB_SETS)} can; of {folder}: {how_to_get(name)}")
    present = ogb_folder(name, folder)
    if present is not None:
        return present
    target = folder / name.replace("-", "_")
    if target.exists():
        raise FileExistsError(f"{target} exists but is no OGB set (it has no folder raw); move it away")
    meta = ogb_meta(name)
    url = meta["url"].replace("http://", "https://", 1)
    files.remove_unfinished(folder)
    with files.new_folder(target) as draft, tempfile.TemporaryFile(dir=folder) as packed:
        try:
            note = _fetch(name, url, folder, packed)
            _unpack(packed, meta["download_name"], draft)
        except _BROKEN as error:
            raise ConnectionError(
                f"{name} can't be downloaded from {url}: {getattr(error, 'reason', error)}; run this where the network "
                f"is, and copy {target.name} from there into the data folder"
            ) from error
        files.write_new_file(draft / "download.json", json.dumps(note))
    return target


def _fetch(name: str, url: str, folder: Path, packed: IO[bytes]) -> dict[str, Any]:
    """Download into an open file in a folder; what was downloaded, for the note."""
    checksum = hashlib.sha256()
    with contextlib.closing(urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS)) as reply:
        if url.startswith("https:") and not reply.geturl().startswith("https:"):
            raise ConnectionError(f"redirected to {reply.geturl()}, which is not encrypted")
        size = int(reply.headers["Content-Length"] or 0)
        _check_disk(name, size, folder)
        while chunk := reply.read(_CHUNK):
            checksum.update(chunk)
            packed.write(chunk)
    if size and packed.tell() != size:
        raise ConnectionError(f"the transfer ended after {packed.tell():,} of {size:,} bytes")
    return {"url": url, "bytes": packed.tell(), "sha256": checksum.hexdigest()}


def _unpack(packed: IO[bytes], top: str, draft: Path) -> None:
    """Unpack what lies below the archive's folder; zipfile compares checksums and keeps every path inside `draft`."""
    with zipfile.ZipFile(packed) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith(f"{top}/") and not entry.is_dir():
                entry.filename = entry.filename.removeprefix(f"{top}/")
                archive.extract(entry, draft)
    if not (draft / "raw").is_dir():
        raise ValueError(f"the archive has no folder {top}/raw")


def _check_disk(name: str, size: int, folder: Path) -> None:
    needed, free = _UNPACKED * size, shutil.disk_usage(folder).free
    if needed > free:
        raise CapacityError(
            f"{name} may need {format_bytes(needed)} of disk, {format_bytes(free)} are free in {folder}; "
            "set WORKBENCH_DATA to a larger disk"
        )
