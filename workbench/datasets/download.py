"""Downloading a published set: the one place that reaches for the network, and it never asks."""

import contextlib
import os
import shutil
import tempfile
import urllib.request
import zipfile
from pathlib import Path

from workbench.core.errors import CapacityError
from workbench.core.units import format_bytes
from workbench.datasets.folders import check_name, data_folder
from workbench.datasets.known import OGB_SETS, how_to_get
from workbench.datasets.ogb import import_ogb, ogb_folder, ogb_meta

_TIMEOUT_SECONDS = 30.0
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
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}.") as work:
        _fetch(name, meta["url"], Path(work))
        (Path(work) / meta["download_name"]).rename(target)
    return target


def _fetch(name: str, url: str, work: Path) -> None:
    """Download and unpack into an empty folder."""
    tools = import_ogb("ogb.utils.url")
    try:
        with contextlib.closing(urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS)) as reply:
            _check_disk(name, int(reply.headers["Content-Length"] or 0), work)
        tools.extract_zip(tools.download_url(url, str(work), log=False), str(work), log=False)
    except (OSError, RuntimeError, zipfile.BadZipFile) as error:  # ogb: RuntimeError when a transfer breaks off
        raise ConnectionError(
            f"{name} can't be downloaded from {url}: {getattr(error, 'reason', error)}; run this where the network is, "
            f"and copy {name.replace('-', '_')} from there into the data folder"
        ) from error


def _check_disk(name: str, size: int, folder: Path) -> None:
    needed, free = _UNPACKED * size, shutil.disk_usage(folder).free
    if needed > free:
        raise CapacityError(
            f"{name} may need {format_bytes(needed)} of disk, {format_bytes(free)} are free in {folder}; "
            "set WORKBENCH_DATA to a larger disk"
        )
