"""Folders that variables and arguments name."""

from pathlib import Path

import pytest

from workbench import paths


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("WORKBENCH_DATA", "WORKBENCH_CACHE", "NUMBA_CACHE_DIR", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("variable", "function", "below"),
    [
        ("WORKBENCH_DATA", paths.data_folder, ""),
        ("WORKBENCH_CACHE", paths.cache_folder, ""),
        ("WORKBENCH_EXPERIMENTS", paths.experiments_folder, ""),
        ("NUMBA_CACHE_DIR", paths.kernel_cache_folder, "workbench-kernels"),
        ("XDG_DATA_HOME", paths.data_folder, "workbench"),
        ("XDG_CACHE_HOME", paths.cache_folder, "workbench"),
        ("XDG_CACHE_HOME", paths.kernel_cache_folder, "workbench/kernels"),
    ],
)
def test_a_tilde_is_the_home_folder(monkeypatch, home, variable, function, below):
    """A shell does not expand it inside quotes, and a notebook's `%env` never does."""
    monkeypatch.setenv(variable, "~/some where")
    assert function() == home / "some where" / below


def test_a_tilde_of_an_argument_is_the_home_folder(home):
    assert paths.data_folder("~/data") == paths.data_folder(Path("~/data")) == home / "data"
    assert paths.data_folder("data") == Path.cwd() / "data"


def test_without_settings_folders_are_below_the_home_folder(home):
    assert paths.data_folder() == home / ".local/share/workbench"
    assert paths.cache_folder() == home / ".cache/workbench"
    assert paths.kernel_cache_folder() == home / ".cache/workbench/kernels"
