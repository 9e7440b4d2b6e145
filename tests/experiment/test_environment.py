"""Tags of a run's environment."""

import subprocess
from pathlib import Path

import pytest

from workbench.experiment.environment import check_recordable, environment_tags


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for file in ("code.py", "experiments/results/betty/fig2/real-cpu.csv"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("before")
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    environment_tags.cache_clear()
    return tmp_path


def test_an_unchanged_checkout_is_clean(checkout):
    assert environment_tags(checkout)["dirty"] == "false"


def test_recorded_tables_do_not_make_it_dirty(checkout):
    (checkout / "experiments/results/betty/fig2/real-cpu.csv").write_text("recorded anew")
    (checkout / "experiments/results/betty/fig3").mkdir()
    (checkout / "experiments/results/betty/fig3/real-cpu.csv").write_text("recorded")
    assert environment_tags(checkout)["dirty"] == "false"


@pytest.mark.parametrize("file", ["code.py", "new.py"])
def test_changed_and_new_code_does(checkout, file):
    (checkout / file).write_text("after")
    assert environment_tags(checkout)["dirty"] == "true"


def test_outside_a_checkout_nothing_is_known(tmp_path):
    environment_tags.cache_clear()
    tags = environment_tags(tmp_path)
    assert (tags["commit"], tags["dirty"]) == ("unknown", "unknown")


def test_how_threads_wait_is_a_tag(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    environment_tags.cache_clear()
    assert environment_tags(tmp_path)["openmp"] == "default"
    check_recordable()
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setenv("GOMP_SPINCOUNT", "0")
    environment_tags.cache_clear()
    assert environment_tags(tmp_path)["openmp"] == "OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0"
    with pytest.raises(ValueError, match="comparable; unset OMP_WAIT_POLICY, GOMP_SPINCOUNT"):
        check_recordable()
    environment_tags.cache_clear()
