"""Machine code on disk: a damaged file, a full disk or a concurrent process costs a compilation, but never an error."""

import hashlib
import multiprocessing
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numba
import pytest

from tests.kernels.test_jit import package, run  # noqa: F401  (`package` is a fixture)
from workbench import files
from workbench.kernels.jit import CodeCache

FULL_DISK = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); sys.dont_write_bytecode = True"
)
"""Python itself does not notice that only a part of a module's bytecode was written; the next process fails on it."""


def double(x):
    return x + x


def kernel_in(folder: Path) -> Any:
    """Return the kernel as a new process would create it."""
    kernel: Any = numba.njit(double)
    kernel._cache = CodeCache(double, folder)
    return kernel


def compiles(folder: Path, value: Any = 3) -> bool:
    """Call the kernel, and return whether it had to be compiled."""
    kernel = kernel_in(folder)
    assert kernel(value) == value + value
    return not sum(kernel.stats.cache_hits.values())


def code_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def flip(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Return the only file in a folder of machine code."""
    assert compiles(tmp_path) and not compiles(tmp_path)
    (file,) = code_files(tmp_path)
    return file


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:20],
        lambda content: content[:-1],
        lambda content: os.urandom(len(content)),
        lambda content: bytes(len(content)),
        lambda content: flip(content, 0),
        lambda content: flip(content, len(content) // 2),
        lambda content: flip(content, len(content) - 1),
        lambda content: content + b"x",
    ],
    ids=["emptied", "cut", "truncated", "random", "zeros", "checksum", "middle", "end", "longer"],
)
def test_damaged_file_is_recompiled_and_replaced(tmp_path, stored, damage):
    stored.write_bytes(damage(stored.read_bytes()))
    assert compiles(tmp_path)
    assert code_files(tmp_path) == [stored] and not compiles(tmp_path)


@pytest.mark.parametrize(
    "content", [pickle.dumps(None), pickle.dumps((1, 2)), b"no pickle", b"cno.such.module\nname\n."]
)
def test_invalid_file_with_a_valid_checksum(tmp_path, stored, content):
    stored.write_bytes(hashlib.sha256(content).digest() + content)
    assert compiles(tmp_path) and not compiles(tmp_path)


def test_code_of_another_key_is_never_run(tmp_path, stored):
    assert compiles(tmp_path, 1.5)
    (other,) = set(code_files(tmp_path)) - {stored}
    stored.write_bytes(other.read_bytes())
    assert compiles(tmp_path) and not compiles(tmp_path)


def test_unreadable_file_and_missing_folder(tmp_path, stored):
    stored.unlink()
    stored.mkdir()
    assert compiles(tmp_path)
    stored.rmdir()
    kernel = kernel_in(tmp_path)
    files.remove(stored.parent, inside=tmp_path, named=".*")
    assert kernel(3) == 6 and not compiles(tmp_path)


@pytest.mark.slow
def test_full_disk(package, tmp_path):  # noqa: F811
    """With a limit of 1,000 bytes per file, writing the machine code fails as on a full disk."""
    assert run(package, tmp_path / "cache", FULL_DISK) == (2, 0)
    assert code_files(tmp_path / "cache") == []
    assert run(package, tmp_path / "cache") == (2, 0)
    assert run(package, tmp_path / "cache", FULL_DISK) == (2, 1)


def _compile(folder: Path, barrier: Any, value: Any) -> None:
    kernel = kernel_in(folder)
    barrier.wait(60)
    assert kernel(value) == value + value


def test_processes_compile_different_signatures_concurrently(tmp_path):
    values = (3, 1.5, True, 2j)
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(len(values))
    with warnings.catch_warnings():  # Python warns that threads do not survive the fork
        warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
        processes = [context.Process(target=_compile, args=(tmp_path, barrier, value)) for value in values]
        for process in processes:
            process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * len(values)
    assert len(code_files(tmp_path)) == len(values)
    assert not any(compiles(tmp_path, value) for value in values)
