"""Keys change with everything that decides the rows, and with nothing else."""

import os

import numpy as np
import pytest

from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.point_dataset import describe_dataset


def key_of(size="smoke", **overrides):
    describe_dataset.cache_clear()
    return keys(size, **overrides)


def keys(size="smoke", **overrides):
    return [task.point.key for task in load_experiment("toys/fig1").tasks(size=size, overrides=overrides)]


def test_keys_are_the_same_again_and_for_a_view(toys):
    first = key_of()
    assert len(set(first)) == 3 and key_of() == first
    assert [task.point.key for task in load_experiment("toys/fig2").tasks()] == first


def test_a_data_set_that_was_replaced_is_another_key(toys):
    """In one process, as the cells of a notebook: with equal size and time, as `cp -p` leaves it."""
    file = toys.parent.parent / "data" / "tiny.npz"
    assert file.is_file()
    first, before = keys(), file.stat()
    assert keys() == first
    arrays = dict(np.load(file))
    np.savez(file, **arrays | {"y": 1 - arrays["y"]})
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert len({*keys(), *first}) == 2 * len(first)


def test_another_value_is_another_key(toys):
    assert not set(key_of()) & set(key_of(offset=1))
    assert set(key_of(number=[2, 4])) & set(key_of()), "the point that both grids have is the same point"


def test_code_that_makes_the_rows_counts(toys):
    before = key_of()
    (toys / "fig1.py").write_text((toys / "fig1.py").read_text().replace("**2 +", "**3 +"))
    assert not set(before) & set(key_of())


@pytest.mark.parametrize(
    ("half", "old", "new"),
    [
        ("fig1.yaml", "title: Squares", "title: Cubes"),
        ("fig1.yaml", "claim: The square grows", "claim: It falls"),
        ("fig1.py", "it grows", "it rises"),
        ("fig1.py", "x=table.number", "x=table.square"),
    ],
)
def test_presentation_does_not_count(toys, half, old, new):
    before, text = key_of(), (toys / half).read_text()
    assert old in text
    (toys / half).write_text(text.replace(old, new))
    assert key_of() == before


def test_the_other_figures_code_does_not_count(toys):
    before = key_of()
    (toys / "fig2.py").write_text((toys / "fig2.py").read_text() + "\n# a comment\n")
    assert key_of() == before


def test_contents_of_the_data_set_count(toys, tmp_path):
    import numpy as np

    before = key_of()
    edges = np.array([[0, 1], [1, 2]], np.int32)
    np.savez(tmp_path / "data" / "tiny.npz", edge_index=edges, num_nodes=np.int64(4), y=np.array([0, 1, 0, 1]))
    assert not set(before) & set(key_of())
