"""Points without a data set, and points on knowledge graphs: sizes, keys and resume, as for node data sets."""

import numpy as np
import pytest

from workbench.core.yaml_file import ConfigError
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.point_dataset import describe_dataset

TRIPLES = np.array([[0, 0, 1], [1, 1, 2], [3, 0, 2]])
LAW = ("config.dataset.load().graph.num_nodes", "0")
TRIPLE_COUNT = ("config.dataset.load().graph.num_nodes", "len(config.dataset.load().valid)")


def write_triples(folder, valid=TRIPLES[:1]):
    five, two = np.int64(5), np.int64(2)
    parts = {"train": TRIPLES, "valid": valid, "test": TRIPLES[:0], "num_entities": five, "num_relations": two}
    np.savez(folder / "family.npz", **parts)  # pyright: ignore[reportArgumentType]
    describe_dataset.cache_clear()


@pytest.fixture
def without_data(toys):
    """Figure 1 as a law that reads no data set."""
    code, spec = (toys / "fig1.py").read_text(), (toys / "fig1.yaml").read_text()
    (toys / "fig1.py").write_text(code.replace(*LAW).replace("DataPointConfig", "PointConfig"))
    (toys / "fig1.yaml").write_text(spec.replace("    fixed: {dataset: tiny}\n", ""))
    return load_experiment("toys/fig1")


@pytest.fixture
def on_triples(toys, tmp_path):
    """Figure 1 on a knowledge graph."""
    code, spec = (toys / "fig1.py").read_text(), (toys / "fig1.yaml").read_text()
    (toys / "fig1.py").write_text(code.replace(*TRIPLE_COUNT))
    (toys / "fig1.yaml").write_text(spec.replace("dataset: tiny", "dataset: family"))
    write_triples(tmp_path / "data")
    return load_experiment("toys/fig1")


def test_a_point_without_a_data_set_runs_and_resumes(without_data, store, calls):
    table = without_data.run(store=store)
    assert table.square.tolist() == [1, 4, 9] and "dataset" not in table
    assert [run.point.dataset for run in store.runs()] == [None] * 3
    again = without_data.run(store=store, overrides={"number": [1, 2, 3, 4]})
    assert again.square.tolist() == [1, 4, 9, 16] and calls() == ["1 0", "2 0", "3 0", "4 0"]


def test_its_key_follows_configuration_and_code(without_data, toys):
    before = {task.point.key for task in without_data.tasks()}
    assert len(before) == 3 and before.isdisjoint(t.point.key for t in without_data.tasks(overrides={"offset": 1}))
    (toys / "fig1.py").write_text((toys / "fig1.py").read_text().replace("**2 +", "**3 +"))
    assert before.isdisjoint(task.point.key for task in load_experiment("toys/fig1").tasks())


def test_it_refuses_a_data_set_before_any_work(without_data, store, calls):
    with pytest.raises(ConfigError, match=r"dataset: unknown key; allowed: .*number"):
        without_data.run(store=store, overrides={"dataset": "tiny"})
    assert calls() == []


def test_a_data_point_without_a_data_set_is_refused(toys):
    (toys / "fig1.yaml").write_text((toys / "fig1.yaml").read_text().replace("    fixed: {dataset: tiny}\n", ""))
    with pytest.raises(ConfigError, match="dataset: is missing"):
        load_experiment("toys/fig1").tasks()


def test_a_point_on_a_knowledge_graph_runs_and_resumes(on_triples, store, calls):
    table = on_triples.run(store=store)
    assert table.nodes.tolist() == [1, 1, 1] and set(table.dataset) == {"family"}
    on_triples.run(store=store)
    assert len(calls()) == 3
    info = store.runs()[0].point.dataset
    assert info is not None and (info.name, info.source, info.num_nodes, info.num_edges) == ("family", "archive", 5, 3)


def test_its_triples_are_in_its_key(on_triples, tmp_path):
    before = {task.point.key for task in on_triples.tasks()}
    write_triples(tmp_path / "data", valid=TRIPLES[:2])
    assert before.isdisjoint(task.point.key for task in on_triples.tasks())


def test_its_name_is_resolved_and_graph_options_are_refused(on_triples, store, calls):
    with pytest.raises(
        ConfigError,
        match=r"there is neither absent\.npz nor an OGB folder.*--set dataset=NAME with one that `workbench data list`",
    ):
        on_triples.run(store=store, overrides={"dataset": "absent"})
    with pytest.raises(ValueError, match="family is a knowledge graph and accepts no graph options"):
        on_triples.run(store=store, overrides={"dataset.undirected": True})
    assert calls() == []
