"""A folder of rows on disk, read directly and through the page cache."""

from pathlib import Path

import pytest

from tests.features.disk import KILOBYTES
from workbench.features.disk_rows import DiskRows
from workbench.features.memory_rows import MappedRows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("disk") / "rows"
    MappedRows.create(path, KILOBYTES)
    return path


@pytest.fixture(params=[True, False], ids=["direct", "buffered"], scope="module")
def direct(request: pytest.FixtureRequest, folder: Path) -> bool:
    if request.param and not DiskRows(folder).direct:
        pytest.skip("the file system of temporary folders does not support O_DIRECT")
    return request.param
