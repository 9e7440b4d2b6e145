"""Machine code on disk: edits of helpers in other files are noticed, and an unusable cache folder is not an error."""

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
    """Create a package with this cache, a kernel, and a helper in another file."""
    root = tmp_path / "site" / "workbench"
    (root / "kernels").mkdir(parents=True)
    for empty in (root / "__init__.py", root / "kernels" / "__init__.py"):
        empty.touch()
    library = Path(str(jit.__file__)).parent.parent
    for file in ("files.py", "paths.py", "kernels/jit.py"):
        (root / file).write_text((library / file).read_text())
    (root / "kernel.py").write_text(KERNEL)
    (root / "helper.py").write_text(HELPER.format(1))
    return root


def run(package: Path, cache: Path, first: str = "") -> tuple[int, int]:
    """Return the kernel's result for 1 in a new process, and the number of kernels loaded from disk."""
    env = os.environ | {"PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-P", "-c", f"{first}\n{RUN}"]
    result, hits = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()
    return int(result), int(hits)


def age(path: Path, days: float) -> None:
    os.utime(path, (0, time.time() - days * 86400))


def cache_of(home: Path, number: int, days: float) -> Path:
    """Create a folder of machine code as left by another version of the sources."""
    folder = home / f"{number:016x}"
    (folder / "kernels_0").mkdir(parents=True)
    (folder / "kernels_0" / "f-1.nbi").touch()
    age(folder, days)
    return folder


@pytest.mark.slow
def test_edited_helper_is_recompiled(package, tmp_path):
    assert run(package, tmp_path / "cache") == (2, 0)
    assert run(package, tmp_path / "cache") == (2, 1)
    (package / "helper.py").write_text(HELPER.format(5))
    assert run(package, tmp_path / "cache") == (6, 0)


@pytest.mark.slow
def test_unusable_cache_folder_is_not_an_error(package, tmp_path):
    (tmp_path / "file").touch()
    assert run(package, tmp_path / "file" / "cache") == (2, 0)


def test_digest_covers_files_with_kernels_only(package):
    before = jit._sources_digest(package)
    (package / "records.py").write_text("x = 1  # in the compiled form\n")
    assert jit._sources_digest(package) == before
    (package / "other.py").write_text(HELPER.format(2))
    assert jit._sources_digest(package) != before


def test_old_caches_are_deleted_unless_recently_used(tmp_path):
    caches = [cache_of(tmp_path, number, days) for number, days in enumerate((0.1, 0.2, 0.3, 0.4, 2, 3))]
    jit._prepare(tmp_path / "new")
    assert [path.exists() for path in caches] == [True] * 4 + [False] * 2


def test_the_newest_caches_are_kept(tmp_path):
    caches = [cache_of(tmp_path, number, days) for number, days in enumerate((2, 3, 4, 5))]
    jit._prepare(tmp_path / f"{9:016x}")
    assert [path.exists() for path in caches] == [True, True, False, False]


def test_other_folders_are_never_deleted(tmp_path):
    for number in range(4):
        cache_of(tmp_path, number, 0)
    others = [
        tmp_path / name
        for name in (".git", "data", "tests", "datasets", f"{10:015x}", f"{11:016x}", "ABCDEF0123456789")
    ]
    for other in others:
        (other / "x").mkdir(parents=True)
        (other / "x" / "precious.txt").touch()
        (other / "x" / "f.nbi").touch()
        age(other, 30)
    (tmp_path / f"{12:016x}").touch()
    (tmp_path / f"{13:016x}").symlink_to(cache_of(tmp_path.parent / "elsewhere", 13, 30))
    jit._prepare(tmp_path / f"{9:016x}")
    assert all((other / "x" / "precious.txt").exists() for other in others)
    assert (tmp_path / f"{12:016x}").exists() and (tmp_path / f"{13:016x}" / "kernels_0" / "f-1.nbi").exists()


@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
def test_other_contents_of_the_cache_folder_are_kept(tmp_path, monkeypatch, variable):
    """Earlier versions shared the folder with converted data sets, or with a checkout in NUMBA_CACHE_DIR."""
    home = tmp_path / "cache home"
    below = home / ".cache" if variable == "HOME" else home
    precious = [below / "workbench" / name / "file" for name in (".git", "data", "tests", "datasets", "checksums")]
    for file in precious:
        file.parent.mkdir(parents=True)
        file.touch()
        age(file.parent, 30)
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(home))
    for edit in range(5):
        monkeypatch.setattr(jit, "_sources_digest", lambda edit=edit: f"{edit:016x}")
        jit._prepare(jit.cache_folder())
        age(jit.cache_folder(), 10 - edit)
    assert all(file.exists() for file in precious)
    folder = home / "workbench-kernels" if variable == "NUMBA_CACHE_DIR" else below / "workbench" / "kernels"
    assert len(list(folder.iterdir())) == 3


def test_drafts_of_killed_processes_are_deleted(tmp_path):
    folder = cache_of(tmp_path, 1, 0)
    (folder / "kernels_0" / f".f-1.nbi.{0:032x}.new").touch()
    jit._prepare(folder)
    assert [path.name for path in (folder / "kernels_0").iterdir()] == ["f-1.nbi"]


def test_other_users_of_numba_keep_their_setting():
    before = vars(numba.core.config)["CACHE_DIR"]
    kernel = jit.compiled(lambda x: x + 1)
    assert vars(numba.core.config)["CACHE_DIR"] == before
    assert kernel(1) == 2
    assert kernel.targetoptions["nogil"]
