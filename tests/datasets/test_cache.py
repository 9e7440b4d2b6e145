"""The cache: hits, changes of the key, damage, kills and concurrent processes."""

import ast
import json
import multiprocessing
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.killed import killed_at_each_operation
from tests.open_files import few_open_files
from workbench import files as stamp
from workbench.core.dataset import Dataset, LinkSplit
from workbench.core.errors import DataError
from workbench.core.graph import Graph
from workbench.datasets import cache
from workbench.datasets.cache import cached, checksum
from workbench.datasets.load import find_source
from workbench.links.knowledge_graph import KnowledgeGraph


def a_dataset(value=0.0):
    graph = Graph.from_edges([0, 1, 2], [1, 2, 2], num_nodes=4, edge_type=[1, 2, 3], node_type=[0, 0, 1, 1])
    pairs = torch.tensor([[0, 1], [2, 3]])
    return Dataset.build(
        graph,
        torch.full((4, 2), value),
        torch.tensor([0, 1, -1, 1]),
        train_idx=torch.tensor([0]),
        val_idx=torch.tensor([1]),
        test_idx=torch.tensor([], dtype=torch.int64),
        num_classes=3,
        name="set",
        split="seeded:1",
        features="degree",
        link_split=LinkSplit(pairs, pairs, pairs.flip(0), pairs[:, :1], pairs[:, :0]),
    )


def a_knowledge_graph():
    triples = torch.tensor([[0, 0, 1], [1, 1, 0]])
    return KnowledgeGraph.build(
        triples, triples[:1], triples[1:], num_entities=2, num_relations=2, name="k", entity_names=["ä", "b"]
    )


class Builder:
    """A build function that counts its calls."""

    def __init__(self, result=None):
        self.result: Any = result or a_dataset()
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return self.result


def load(builder, files=(), **options):
    return cached("set", "somewhere", files, options, builder)


def folders():
    return [path for path in (cache.cache_folder() / "datasets" / "set").glob("*") if path.is_dir()]


def arrays(record):
    return {name: t for name, t in record._tensors().items() if t is not None}


def test_the_second_load_opens_the_stored_data_set():
    builder = Builder()
    first, second = load(builder), load(builder)
    assert builder.calls == 1
    for loaded in (first, second):
        assert isinstance(loaded, Dataset) and loaded.fingerprint == builder.result.fingerprint
        assert arrays(loaded).keys() == arrays(builder.result).keys()
        for name, tensor in arrays(builder.result).items():
            assert torch.equal(arrays(loaded)[name], tensor) and arrays(loaded)[name].dtype == tensor.dtype
        assert (loaded.name, loaded.split, loaded.features, loaded.num_classes) == ("set", "seeded:1", "degree", 3)
        assert loaded.validate() is loaded


@pytest.mark.parametrize("more", range(12))
def test_too_many_open_data_sets_name_the_limit(more):
    """Wherever the last descriptor is used; the data set is not built again."""
    builder, kept = Builder(), []
    load(builder)
    words = "can't be opened: .* the limit of {} open files.*; raise it with ulimit -n"
    stored = folders()[0] / "stamp.json"
    with few_open_files(stored, 20 + more) as most, pytest.raises(OSError, match=words.format(most)):
        kept.extend(load(builder) for _ in range(100))
    kept.clear()
    assert load(builder).fingerprint == builder.result.fingerprint and builder.calls == 1


def test_knowledge_graphs_are_stored_too():
    builder = Builder(a_knowledge_graph())
    load(builder)
    kg = load(builder)
    assert builder.calls == 1 and isinstance(kg, KnowledgeGraph)
    assert kg.fingerprint == builder.result.fingerprint and torch.equal(kg.train, builder.result.train)
    assert kg.entity_names == ["ä", "b"] and kg.relation_names is None


def test_every_combination_of_options_has_a_folder():
    builder = Builder()
    for seed in (0, 1, 0, 1):
        load(builder, seed=seed)
    assert builder.calls == 2 and len(folders()) == 2


def test_a_changed_source_replaces_the_folder(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"one")
    builder = Builder()
    load(builder, (source,))
    load(builder, (source,))
    assert builder.calls == 1
    source.write_bytes(b"two")
    load(builder, (source,))
    assert builder.calls == 2 and len(folders()) == 1
    os.utime(source, ns=(1, 1))
    load(builder, (source,))
    assert builder.calls == 2


def test_changed_code_replaces_the_folder(tmp_path):
    builder = Builder()
    for text in ("one", "two", "two"):
        code = tmp_path / f"{text}.py"
        code.write_text(text)
        cached("set", "somewhere", (), {}, builder, code=(code,))
    assert builder.calls == 2 and len(folders()) == 1


PACKAGE = Path(cache.__file__).parent.parent

WITHOUT_EFFECT = {  # modules that check, store, parallelise or format, but compute no value of a data set
    "core": {"array_store", "block", "conversions", "errors", "shared_storage", "suggestions", "units"},
    "kernels": {"buffers", "jit", "lane_instructions", "threads"},
}


def imported_by(file: Path) -> set[Path]:
    """The modules of core and kernels that a file imports, at any place in it."""
    nodes = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    found = {PACKAGE.parent / f"{str(node.module).replace('.', '/')}.py" for node in nodes}
    return {path for path in found if path.is_file() and path.stem not in WITHOUT_EFFECT.get(path.parent.name, ())}


@pytest.mark.parametrize("name", ["tiny", "synthetic-arxiv"])
def test_all_code_that_computes_a_data_set_is_part_of_its_key(write, name):
    """Of an archive without features or split, too: both are random numbers then, and edges are merged by kernels."""
    code = set(find_source(name, write().parent).code)
    assert {file for module in code for file in imported_by(module) if file.parent.name in ("core", "kernels")} <= code


@pytest.mark.parametrize("file", ["x.bin", "graph__indices.bin", "meta.bin", "header.json"])
@pytest.mark.parametrize("damage", ["alter", "truncate", "delete"])
def test_damage_is_detected_and_repaired(file, damage):
    builder = Builder()
    load(builder)
    path = folders()[0] / file
    content = path.read_bytes()
    if damage == "alter":
        path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        os.utime(path)
    elif damage == "truncate":
        path.write_bytes(content[:-1])
    else:
        path.unlink()
    repaired = load(builder)
    assert builder.calls == 2 and isinstance(repaired, Dataset)
    assert torch.equal(repaired.x, builder.result.x) and path.read_bytes() == content


def test_touched_files_are_verified_and_trusted_again():
    builder = Builder()
    load(builder)
    folder = folders()[0]
    for file in ("x.bin", "y.bin"):
        os.utime(folder / file, ns=(5, 5))
    (folder / "stamp.json").write_text("no json")
    assert load(builder) is not None and builder.calls == 1
    stat = (folder / "x.bin").stat()
    assert json.loads((folder / "stamp.json").read_text())["x.bin"] == [32, 5, stat.st_ctime_ns, stat.st_ino]


def test_writing_to_a_loaded_data_set_does_not_change_the_cache():
    builder = Builder()
    loaded = load(builder)
    assert isinstance(loaded, Dataset)
    loaded.x.fill_(7)
    again = load(builder)
    assert isinstance(again, Dataset) and float(again.x.sum()) == 0 and builder.calls == 1


def test_an_unwritable_cache_is_bypassed(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file" / "below"))
    builder = Builder()
    for calls in (1, 2):
        with pytest.warns(
            UserWarning, match=r"can't be written .* so set is read again each time; set WORKBENCH_CACHE"
        ):
            assert load(builder) is builder.result
        assert builder.calls == calls


@pytest.mark.slow
def test_killed_while_storing(tmp_path):
    """After a kill at any moment the next load succeeds, and no drafts or outdated folders remain."""
    source, root, moments = tmp_path / "source", cache.cache_folder(), 0
    builder, expected = Builder(a_knowledge_graph()), a_knowledge_graph().fingerprint
    source.write_bytes(b"first")
    os.utime(source, ns=(1, 1))
    load(builder, (source,))
    source.write_bytes(b"second")
    for _ in killed_at_each_operation(lambda: load(builder, (source,)), root):
        moments += 1
        loaded = load(builder, (source,))
        assert isinstance(loaded, KnowledgeGraph) and loaded.fingerprint == expected
        assert len(folders()) == 1 and not list(root.rglob(".*")), moments
        source.write_bytes(b"contents %d" % moments)
    assert moments > 20


def test_folders_of_other_names_are_not_removed():
    load(Builder())
    (stored,) = folders()
    prefix = stored.name.partition("-")[0]
    others = [stored.with_name(name) for name in (f"{prefix}-mine", f"{prefix}-", "thesis", f"{prefix}-{'g' * 16}")]
    for other in others:
        other.mkdir()
    stored.rename(stored.with_name(f"{prefix}-{'0' * 16}"))
    load(Builder())
    assert set(folders()) == {stored, *others}


def test_an_error_while_building_stores_nothing(monkeypatch):
    def fail():
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        load(fail)
    assert folders() == []
    assert isinstance(load(Builder()), Dataset)


def _load_and_note(notes: Path, barrier) -> None:
    def build():
        (notes / str(os.getpid())).touch()
        return a_dataset(1.0)

    barrier.wait(60)
    loaded = load(build)
    assert isinstance(loaded, Dataset) and float(loaded.x.sum()) == 8


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_concurrent_processes_build_once(tmp_path, method):
    notes = tmp_path / "notes"
    notes.mkdir()
    context = multiprocessing.get_context(method)
    barrier = context.Barrier(2)
    processes = [context.Process(target=_load_and_note, args=(notes, barrier)) for _ in range(2)]
    with warnings.catch_warnings():  # Python warns that the kernels' threads do not survive the fork
        warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
        for process in processes:
            process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(list(notes.iterdir())) == 1


def replace_in_place(file, old_time):
    file.write_bytes(b"two")
    os.utime(file, ns=(old_time, old_time))


def replace_by_another(file, old_time):
    other = file.with_name("other")
    replace_in_place(other, old_time)
    other.replace(file)


@pytest.mark.parametrize("replace", [replace_in_place, replace_by_another])
def test_a_source_of_the_same_size_and_time_is_another(tmp_path, monkeypatch, replace):
    """As `cp -p`, `rsync -t` and `tar` leave it; the cached checksum is that of the first file."""
    monkeypatch.setattr(stamp, "_SETTLED_SECONDS", -1.0)
    source = tmp_path / "source"
    source.write_bytes(b"one")
    os.utime(source, ns=(10**18, 10**18))
    first: Any = load(Builder(a_dataset(1.0)), (source,))
    assert first.x.sum() == 8
    before = source.stat()
    replace(source, 10**18)
    assert (source.stat().st_size, source.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    second: Any = load(Builder(a_dataset(2.0)), (source,))
    assert second.x.sum() == 16


def test_stored_arrays_of_the_same_size_and_time_are_verified():
    builder = Builder()
    load(builder)
    path = folders()[0] / "x.bin"
    before = path.stat()
    path.write_bytes(b"\1" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    loaded: Any = load(builder)
    assert torch.equal(loaded.x, builder.result.x) and builder.calls == 2


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"one")

    def build():
        source.write_bytes(b"two")
        return a_dataset()

    with pytest.raises(DataError, match="files of set changed while they were read"):
        load(build, (source,))
    assert folders() == []


def test_a_checksum_is_cached_unless_the_file_was_just_modified(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    notes = cache.cache_folder() / "checksums"
    assert checksum(file) == expected and not notes.exists()
    os.utime(file, ns=(10**18, 10**18))
    assert checksum(file) == expected and not notes.exists(), "its attributes were modified just now"
    monkeypatch.setattr(stamp, "_SETTLED_SECONDS", -1.0)
    assert checksum(file) == expected and len(list(notes.iterdir())) == 1
    note = next(notes.iterdir())
    note.write_text(note.read_text().replace(expected, "cached"))
    assert checksum(file) == "cached"
    file.write_bytes(b"abcd")
    assert checksum(file) != "cached"
