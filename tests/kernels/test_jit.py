"""Machine code on disk: an edited helper in another file is noticed, an unusable cache folder is no error."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numba.core.config
import pytest

from workbench.kernels import jit

HELPER = "from workbench.kernels.jit import compiled\n\n@compiled\ndef helper(x):\n    return x + {}\n"
KERNEL = """
from workbench.helper import helper
from workbench.kernels.jit import compiled

@compiled
def kernel(x):
    return helper(x)
"""
RUN = "from workbench.kernel import kernel; print(kernel(1), sum(kernel.stats.cache_hits.values()))"


@pytest.fixture
def package(tmp_path) -> Path:
    """A package like ours: this cache, a kernel, and its helper in another file."""
    root = tmp_path / "site" / "workbench"
    (root / "kernels").mkdir(parents=True)
    for empty in (root / "__init__.py", root / "kernels" / "__init__.py"):
        empty.touch()
    (root / "kernels" / "jit.py").write_text(Path(jit.__file__).read_text())
    (root / "kernel.py").write_text(KERNEL)
    (root / "helper.py").write_text(HELPER.format(1))
    return root


def run(package: Path, cache: Path) -> tuple[int, int]:
    """What the kernel returns for 1, in a new process, and how many kernels came from the disk."""
    env = os.environ | {"PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-P", "-c", RUN]
    result, hits = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()
    return int(result), int(hits)


def test_edited_helper_is_compiled_again(package, tmp_path):
    assert run(package, tmp_path / "cache") == (2, 0)
    assert run(package, tmp_path / "cache") == (2, 1)
    (package / "helper.py").write_text(HELPER.format(5))
    assert run(package, tmp_path / "cache") == (6, 0)


def test_unusable_cache_folder_is_no_error(package, tmp_path):
    (tmp_path / "file").touch()
    assert run(package, tmp_path / "file" / "cache") == (2, 0)


def test_digest_covers_files_with_kernels_only(package):
    before = jit._sources_digest(package)
    (package / "records.py").write_text("x = 1\n")
    assert jit._sources_digest(package) == before
    (package / "other.py").write_text(HELPER.format(2))
    assert jit._sources_digest(package) != before


def test_old_caches_are_dropped_unless_they_may_be_in_use(tmp_path):
    for days in (0.1, 0.2, 0.3, 0.4, 2, 3):
        (tmp_path / str(days)).mkdir()
        os.utime(tmp_path / str(days), (0, time.time() - days * 86400))
    jit._prepare(tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {"new", "0.1", "0.2", "0.3", "0.4"}


def test_the_newest_caches_are_kept_however_old(tmp_path):
    for days in (2, 3, 4):
        (tmp_path / str(days)).mkdir()
        os.utime(tmp_path / str(days), (0, time.time() - days * 86400))
    jit._prepare(tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {"new", "2", "3"}


def test_other_users_of_numba_keep_their_setting():
    before = vars(numba.core.config)["CACHE_DIR"]
    kernel = jit.compiled(lambda x: x + 1)
    assert vars(numba.core.config)["CACHE_DIR"] == before
    assert kernel(1) == 2
    assert kernel.targetoptions["nogil"]
