"""Downloads published data sets, without prompting; no other module accesses the network.

OGB publishes no checksums. Therefore the transfer uses https, its size and the checksums inside the archive are
verified, and the archive's sha256 is recorded in `download.json`, for comparison with other downloads.
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
from workbench.core.suggestions import did_you_mean
from workbench.core.units import format_bytes
from workbench.datasets.catalog import OGB_SETS, check_name, how_to_get, known_sets
from workbench.datasets.ogb import ogb_folder, ogb_meta
from workbench.paths import data_folder

_TIMEOUT_SECONDS = 30.0
_CHUNK = 1 << 20
_BROKEN = (OSError, http.client.HTTPException, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)
_DISK_FACTOR = 4  # upper bound of the disk space needed, relative to the download, including it


def download(name: str, *, root: str | os.PathLike[str] | None = None) -> Path:
    """Download an OGB node-property data set and unpack it into the data folder, atomically.

    Args:
        root: data folder; None: WORKBENCH_DATA, or ~/.local/share/workbench if that is not set.

    Returns:
        The data set's folder; an existing one is not changed.

    Raises:
        ValueError: a data set that can't be downloaded.
        ConnectionError: the network or the server is unreachable, or the transfer failed.
        CapacityError: the disk is too small.
        FileExistsError: the target exists but is not an OGB data set.
        ModuleNotFoundError: OGB's package is not installed.
    """
    folder = data_folder(root)
    if check_name(name) not in OGB_SETS:
        raise ValueError(_not_published(name, folder))
    present = ogb_folder(name, folder)
    if present is not None:
        return present
    target = folder / name.replace("-", "_")
    if target.exists():
        raise FileExistsError(f"{target} exists but is not an OGB data set (it has no folder raw); move it away")
    meta = ogb_meta(name)
    url = meta["url"].replace("http://", "https://", 1)
    files.remove_unfinished(folder)
    with files.new_folder(target) as draft, tempfile.TemporaryFile(dir=folder) as packed:
        try:
            note = _fetch(name, url, folder, packed)
            _unpack(packed, meta["download_name"], draft)
        except _BROKEN as error:
            raise ConnectionError(
                f"{name} can't be downloaded from {url}: {getattr(error, 'reason', error)}; run this on a machine "
                f"with network access, and copy {target.name} from there into the data folder"
            ) from error
        files.write_new_file(draft / "download.json", json.dumps(note))
    return target


def _not_published(name: str, folder: Path) -> str:
    """Why a name can't be downloaded, and what to do instead."""
    if name not in known_sets() and (meant := did_you_mean(name, OGB_SETS)):
        return f"data set {name!r} is not known; {meant}"
    return f"{name} can't be downloaded, only {', '.join(OGB_SETS)} can; of {folder}: {how_to_get(name)}"


def _fetch(name: str, url: str, folder: Path, packed: IO[bytes]) -> dict[str, Any]:
    """Download into an open file; return URL, size and sha256 for `download.json`."""
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
    """Unpack the archive's top folder; zipfile verifies checksums and confines all paths to `draft`."""
    with zipfile.ZipFile(packed) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith(f"{top}/") and not entry.is_dir():
                entry.filename = entry.filename.removeprefix(f"{top}/")
                archive.extract(entry, draft)
    if not (draft / "raw").is_dir():
        raise ValueError(f"the archive has no folder {top}/raw")


def _check_disk(name: str, size: int, folder: Path) -> None:
    required, free = _DISK_FACTOR * size, shutil.disk_usage(folder).free
    if required > free:
        raise CapacityError(
            f"{name} may require {format_bytes(required)} of disk, but {format_bytes(free)} are free in {folder}; "
            "set WORKBENCH_DATA to a larger disk"
        )
