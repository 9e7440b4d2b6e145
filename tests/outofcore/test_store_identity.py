"""A store is known by what it is, not by its path: links, rebuilt, moved and copied stores, readers beside writers."""

import errno
import gc
import json
import os
import pickle
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench as wb
from tests.outofcore.process_ends import (
    ALL,
    BEGIN,
    NODES,
    ORDER,
    WIDTH,
    P,
    build,
    started,
    versions,
    write_version,
)
from workbench import files
from workbench.outofcore.store_files import PartitionFile, block_aligned

X = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def store(tmp_path: Path) -> wb.outofcore.PartitionStore:
    return build(tmp_path / "store")


def train(store: wb.outofcore.PartitionStore, **options: Any) -> None:
    with wb.outofcore.PartitionBuffer(store, capacity=2, **options) as buffer:
        for state in buffer.epoch(ORDER):
            write_version(store, state)


TRAINED = versions(ORDER.num_states - 1)


def paths_of(folder: Path) -> dict[str, Path]:
    """Other paths of a store."""
    (folder.parent / "elsewhere").mkdir()
    link, deep = folder.parent / "elsewhere" / "link", folder.parent / "linked"
    link.symlink_to(folder)
    deep.symlink_to(folder.parent)
    return {
        "symlink": link,
        "symlink of a parent": deep / folder.name,
        "..": folder.parent / "elsewhere" / ".." / folder.name,
        "relative": Path(os.path.relpath(folder)),
        "slashes": Path(f"{folder.parent}/./{folder.name}/"),
    }


def test_one_buffer_at_a_time_writes_whatever_the_path(store: wb.outofcore.PartitionStore) -> None:
    for name, path in paths_of(store.folder).items():
        other = wb.outofcore.PartitionStore.open(path)
        with (
            wb.outofcore.PartitionBuffer(store, capacity=2) as first,
            wb.outofcore.PartitionBuffer(other, capacity=2) as second,
        ):
            write_version(store, next(states := first.epoch(ORDER)))
            with pytest.raises(ValueError, match=r"this process writes to .*store; finish its loop or close\(\) it"):
                next(second.epoch(ORDER))
            with pytest.raises(ValueError, match="this process writes to"):
                build(path, overwrite=True)
            states.close()
        train(other)
        assert torch.equal(store.read(), TRAINED) and not store.damaged(), name
    assert {path.name for path in store.folder.iterdir() if path.name[0] == "."} == set()


@pytest.mark.slow
def test_a_bind_mount_is_the_same_store(store: wb.outofcore.PartitionStore, tmp_path: Path) -> None:
    (bound := tmp_path / "bound").mkdir()
    if subprocess.run(["mount", "--bind", store.folder, bound], capture_output=True, check=False).returncode:
        pytest.skip("this process may not mount")
    try:
        other = wb.outofcore.PartitionStore.open(bound)
        with (
            wb.outofcore.PartitionBuffer(store, capacity=2) as first,
            wb.outofcore.PartitionBuffer(other, capacity=2) as second,
        ):
            next(states := first.epoch(ORDER))
            with pytest.raises(ValueError, match="this process writes to"):
                next(second.epoch(ORDER))
            states.close()
    finally:
        subprocess.run(["umount", "--lazy", bound], check=True)


HOLD = f"""{BEGIN}
buffer = wb.outofcore.PartitionBuffer(store, capacity=2)
epoch = buffer.epoch(ORDER)
write_version(store, next(epoch))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_another_process_is_named_and_released_by_its_end(store: wb.outofcore.PartitionStore, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store.folder)
    process = started(HOLD, tmp_path / "link")
    with pytest.raises(ValueError, match=rf"another process \({process.pid} on .*\) writes to .*store"):
        next(wb.outofcore.PartitionBuffer(store, capacity=2).epoch(ORDER))
    with pytest.raises(ValueError, match=rf"another process \({process.pid} on .*\) writes to .*store"):
        build(store.folder, overwrite=True)
    assert torch.equal(store.read(), torch.zeros(NODES, WIDTH))  # reads need no lock
    process.kill()
    process.communicate()
    train(store)
    assert torch.equal(store.read(), TRAINED)


def test_a_forked_child_neither_keeps_nor_releases_the_lock(store: wb.outofcore.PartitionStore) -> None:
    with wb.outofcore.PartitionBuffer(store, capacity=2) as buffer:
        states = buffer.epoch(ORDER)
        write_version(store, next(states))
        source, answer = os.pipe()
        wait, go = os.pipe()
        if not (child := os.fork()):
            try:
                states.close()
                os.write(answer, b"1")
                os.close(go)
                os.read(wait, 1)
            finally:
                os._exit(0)
        assert os.read(source, 1) == b"1"  # the child has closed its copy
        assert not store.read().any()  # and written nothing
        with pytest.raises(ValueError, match="writes to"):
            next(wb.outofcore.PartitionBuffer(store, capacity=2).epoch(ORDER))
    assert torch.equal(store.read(), versions(0))
    train(store)  # although the child lives
    os.write(go, b"1")
    os.waitpid(child, 0)
    for descriptor in (source, answer, wait, go):
        os.close(descriptor)


USES: dict[str, Callable[[wb.outofcore.PartitionStore], object]] = {
    "read": lambda store: store.read(),
    "state": lambda store: store.read(state=True),
    "damaged": lambda store: store.damaged(),
    "buffer": lambda store: wb.outofcore.PartitionBuffer(store, capacity=2),
    "epoch_io": lambda store: wb.outofcore.epoch_io(store, ORDER),
    "unpickled": lambda store: pickle.loads(pickle.dumps(store)).read(),
}


@pytest.mark.parametrize("way", ["overwrite", "deleted first", "moved first", "copied over"])
def test_handles_from_before_a_rebuild_are_refused(
    store: wb.outofcore.PartitionStore, tmp_path: Path, way: str
) -> None:
    folder = store.folder
    buffer, features = wb.outofcore.PartitionBuffer(store, capacity=2), wb.outofcore.PartitionBuffer(store, capacity=2)
    if way == "deleted first":
        shutil.rmtree(folder)
    elif way == "moved first":
        folder.rename(tmp_path / "moved")
    if way == "copied over":
        shutil.copytree(build(tmp_path / "new", seed=5).folder, folder, dirs_exist_ok=True)
    else:
        build(folder, seed=5, overwrite=way == "overwrite")
    fresh = wb.outofcore.PartitionStore.open(folder)
    assert way == "copied over" or not torch.equal(fresh.node_ids, store.node_ids)  # mapped from its files
    for name, use in USES.items():
        with pytest.raises(ValueError, match="was rebuilt since this handle was opened; open it again"):
            pytest.fail(f"{name}: {use(store)}")
    if way == "moved first":  # its folder is still there, by another path
        for state in buffer.epoch(ORDER):
            write_version(store, state)
        assert torch.equal(wb.outofcore.PartitionStore.open(tmp_path / "moved").read(), TRAINED)
    else:
        with pytest.raises(ValueError, match="was rebuilt since this handle was opened; open it again"):
            next(buffer.epoch(ORDER))
    assert not fresh.read().any() and not fresh.damaged()
    train(fresh)
    assert torch.equal(fresh.read(), TRAINED)
    features.close()


@pytest.mark.parametrize("way", ["deleted", "deleted and rebuilt", "moved", "moved and rebuilt"])
@pytest.mark.parametrize("prefetch", [True, False])
def test_an_epoch_never_writes_to_another_store(
    store: wb.outofcore.PartitionStore, tmp_path: Path, way: str, prefetch: bool
) -> None:
    """Deleting and moving folders needs no lock of the library's."""
    buffer = wb.outofcore.PartitionBuffer(store, capacity=2, prefetch=prefetch)
    states = buffer.epoch(ORDER)
    write_version(store, next(states))
    write_version(store, next(states))
    if "moved" in way:
        store.folder.rename(tmp_path / "moved")
    else:
        while store.folder.exists():  # partitions are being written to it
            shutil.rmtree(store.folder, ignore_errors=True)
    if "rebuilt" in way:
        build(store.folder, seed=5)
    if "moved" in way:
        for state in states:
            write_version(store, state)
        buffer.close()
        assert torch.equal(wb.outofcore.PartitionStore.open(tmp_path / "moved").read(), TRAINED)
    else:
        with pytest.raises((OSError, ValueError), match=r"is not written|was rebuilt|is missing"):
            list(states)
    if "rebuilt" in way:
        fresh = wb.outofcore.PartitionStore.open(store.folder)
        assert not fresh.read().any() and not fresh.damaged()


@pytest.mark.parametrize("prefetch", [True, False])
def test_an_epoch_that_is_garbage_is_written(store: wb.outofcore.PartitionStore, prefetch: bool) -> None:
    """A traceback or a closure may hold the epoch in a cycle with all that it writes to."""
    buffer = wb.outofcore.PartitionBuffer(store, capacity=2, prefetch=prefetch)
    states = buffer.epoch(ORDER)
    write_version(store, next(states))
    write_version(store, next(states))
    cycle: list[object] = [buffer, states]
    cycle.append(cycle)
    del buffer, states, cycle
    gc.collect()
    assert torch.equal(store.read(), versions(1))
    train(store)
    assert torch.equal(store.read(), TRAINED)


def test_an_epoch_of_features_sees_one_store(tmp_path: Path) -> None:
    """Readers do not keep a store from being replaced; what they see is of the store that they opened."""
    store, seen = build(tmp_path / "store", rows=X), 0

    def read() -> None:
        nonlocal seen
        with wb.outofcore.PartitionBuffer(store, capacity=2) as buffer:
            for state in buffer.epoch(ORDER):
                if state.number == 1:
                    build(store.folder, rows=-X, seed=5, overwrite=True)
                ids = ALL[torch.isin(ALL // store.partition_rows, state.partitions)]
                assert torch.equal(state.rows.read(ids), X[store.node_ids[ids]])
                seen += 1

    with pytest.raises(ValueError, match="was rebuilt since this handle was opened"):
        read()
    assert seen >= 2
    fresh = wb.outofcore.PartitionStore.open(store.folder)
    assert torch.equal(fresh.read(), -X[fresh.node_ids])


def test_copies_are_stores_of_their_own(store: wb.outofcore.PartitionStore, tmp_path: Path) -> None:
    copy = wb.outofcore.PartitionStore.open(shutil.copytree(store.folder, tmp_path / "copy"))
    with (
        wb.outofcore.PartitionBuffer(store, capacity=2) as first,
        wb.outofcore.PartitionBuffer(copy, capacity=2) as second,
    ):
        write_version(store, next(states := first.epoch(ORDER)))
        for state in second.epoch(ORDER):
            write_version(copy, state)
        states.close()
    assert torch.equal(store.read(), versions(0)) and torch.equal(copy.read(), TRAINED)


def test_copies_that_share_their_files_are_only_read(store: wb.outofcore.PartitionStore, tmp_path: Path) -> None:
    """Each has a table of its own, so that one would write where the other's rows are."""
    train(store)
    copy = wb.outofcore.PartitionStore.open(shutil.copytree(store.folder, tmp_path / "copy", copy_function=os.link))
    for one in (store, copy):
        with pytest.raises(ValueError, match=r"rows.bin has 2 hard links.*copy the folder with cp -r"):
            train(one)
        assert torch.equal(one.read(), TRAINED)
    shutil.rmtree(copy.folder)
    train(store)


def test_two_processes_that_write_without_locks_are_told(
    store: wb.outofcore.PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a network file system that accepts locks, and does not keep others out."""
    monkeypatch.setattr("workbench.files.lock_descriptor", lambda descriptor, wait: True)
    first, second = (wb.outofcore.PartitionBuffer(store, capacity=2, prefetch=False).epoch(ORDER) for _ in range(2))
    write_version(store, next(first))
    train(store)
    with pytest.raises(RuntimeError, match=r"partition \d of .* is not written: another process has written"):
        first.close()
    second.close()
    assert torch.equal(store.read(), TRAINED) and not store.damaged()


@pytest.mark.parametrize("verify", [True, False])
def test_a_read_that_races_with_writes_is_read_again(
    store: wb.outofcore.PartitionStore, monkeypatch: pytest.MonkeyPatch, verify: bool
) -> None:
    """Between the table and the record, all slots are written to: the record is of one moment nevertheless."""
    train(store)
    reader = PartitionFile(store.open_folder(), store.layout, direct=False, verify=verify)
    real, left = reader._file.read, [2]

    def read(buffer: memoryview, offset: int) -> int:
        if left[0]:
            left[0] -= 1
            for _ in range(2):
                train(store)
        return real(buffer, offset)

    monkeypatch.setattr(reader._file, "read", read)
    memory = block_aligned(store.partition_bytes)
    for partition in range(P):
        reader.read(partition, memory)
        rows = memory[: store.layout.record_bytes].view(torch.float32).view(2, NODES // P, WIDTH)
        expected = TRAINED[partition * NODES // P :][: NODES // P]
        assert torch.equal(rows[0], expected) and torch.equal(rows[1], -expected)
        left[0] = 2 * (partition == 2)


def test_a_thread_reads_while_another_trains(store: wb.outofcore.PartitionStore) -> None:
    train(store)
    stop, errors, reads = threading.Event(), [], 0

    def writer() -> None:
        try:
            while not stop.is_set():
                train(store)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=writer)
    thread.start()
    end = time.monotonic() + 1.0
    while time.monotonic() < end and thread.is_alive():
        rows = store.read()
        for partition in range(P):
            own = rows[partition * NODES // P : (partition + 1) * NODES // P]
            assert len(own.unique()) == 1  # of one moment
        assert not store.damaged()
        reads += 1
    stop.set()
    thread.join()
    assert not errors and reads


def test_a_damaged_record_of_trained_rows_is_still_found(store: wb.outofcore.PartitionStore) -> None:
    train(store)
    table = json.loads((store.folder / "table.json").read_text())
    content = bytearray((store.folder / "rows.bin").read_bytes())
    content[table["slots"][3] * store.partition_bytes + 5] ^= 1
    (store.folder / "rows.bin").write_bytes(content)
    assert store.damaged() == [3]
    with pytest.raises(ValueError, match=r"partition 3 .* is damaged.*restore it.*trained rows are lost then"):
        store.read()


def as_version_2(folder: Path) -> None:
    """Write header and table of a store as the version without build ids did."""
    header = json.loads((folder / "store.json").read_text())
    for name in ("build_id", "digest"):
        del header[name]
    header["version"] = 2
    header["digest"] = files.digest({k: v for k, v in header.items() if k not in ("kind", "version")})
    (folder / "store.json").write_text(json.dumps(header))
    table = json.loads((folder / "table.json").read_text())
    old = {"slots": table["slots"], "checksums": table["checksums"]}
    old["digest"] = files.digest(list(old.values()))
    (folder / "table.json").write_text(json.dumps(old))


def test_stores_without_a_build_id_are_read_and_trained(store: wb.outofcore.PartitionStore) -> None:
    train(store)
    as_version_2(store.folder)
    with pytest.raises(ValueError, match="was rebuilt"):
        store.read()
    old = wb.outofcore.PartitionStore.open(store.folder)
    assert torch.equal(old.read(), TRAINED) and torch.equal(old.read(state=True), -TRAINED)
    with wb.outofcore.PartitionBuffer(old, capacity=2) as buffer:
        states = buffer.epoch(ORDER)
        write_version(old, next(states))
        with pytest.raises(ValueError, match="writes to"):
            next(wb.outofcore.PartitionBuffer(old, capacity=2).epoch(ORDER))
    again = wb.outofcore.PartitionStore.open(store.folder)
    assert torch.equal(again.read()[: NODES // P], versions(0)[: NODES // P]) and not again.damaged()
    build(store.folder, overwrite=True)
    with pytest.raises(ValueError, match="was rebuilt"):
        old.read()


def test_stores_of_unknown_versions_are_refused_by_name(store: wb.outofcore.PartitionStore) -> None:
    header = json.loads((store.folder / "store.json").read_text())
    (store.folder / "store.json").write_text(json.dumps({**header, "version": 9}))
    with pytest.raises(ValueError, match="version 9; open it with the release that wrote it"):
        wb.outofcore.PartitionStore.open(store.folder)


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
def test_reading_needs_no_permission_to_write(
    store: wb.outofcore.PartitionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    features = build(tmp_path / "features", rows=X)
    train(store)
    real = os.open

    def read_only(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(error, os.strerror(error), str(path))
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr(os, "access", lambda path, mode, **_: not mode & os.W_OK)
    learnt = wb.outofcore.PartitionStore.open(store.folder)
    assert torch.equal(learnt.read(), TRAINED) and not learnt.damaged()
    with wb.outofcore.PartitionBuffer(learnt, capacity=2) as buffer:
        for state in buffer.epoch(ORDER):
            ids = ALL[torch.isin(ALL // learnt.partition_rows, state.partitions)]
            assert torch.equal(state.rows.read(ids), TRAINED[ids])
            with pytest.raises(ValueError, match="the store is not writable, so its rows are only read"):
                state.rows.write(ids[:1], torch.ones(1, WIDTH))
    opened = wb.outofcore.PartitionStore.open(features.folder)
    assert torch.equal(opened.read(), X[opened.node_ids])
    assert len(list(wb.outofcore.PartitionBuffer(opened, capacity=2).epoch(ORDER))) == ORDER.num_states


def test_a_file_system_without_locks_is_named(
    store: wb.outofcore.PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(OSError, match="when locking the store; make its folder writable, or copy it to another disk"):
        next(wb.outofcore.PartitionBuffer(store, capacity=2).epoch(ORDER))


def test_what_another_process_builds_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """Two calls pass the first check; the second to complete finds the store of the first."""
    for overwrite in (False, True):
        folder, calls = tmp_path / f"store{overwrite}", []

        def built_by_another(_: int, folder: Path = folder, calls: list[int] = calls) -> None:
            if not calls:
                calls.append(1)
                build(folder, rows=X)

        with pytest.raises(FileExistsError, match="was created by another process in the meantime"):
            build(folder, progress=built_by_another, overwrite=overwrite)
        assert not wb.outofcore.PartitionStore.open(folder).learnt and not list(tmp_path.glob(".*"))


def test_a_link_is_built_where_it_leads(store: wb.outofcore.PartitionStore, tmp_path: Path) -> None:
    (link := tmp_path / "link").symlink_to(store.folder)
    built = build(link, rows=X, overwrite=True)
    assert link.is_symlink() and built.folder == store.folder
    assert not wb.outofcore.PartitionStore.open(store.folder).learnt


BUILD = f"""{BEGIN}
print("ready", flush=True)
sys.stdin.read(1)
results = []
for seed in range(int(sys.argv[2])):
    try:
        fresh = build(sys.argv[1], seed=seed, overwrite=True)
    except (ValueError, FileExistsError) as error:
        results.append(str(error))
        continue
print("\\n".join(results), flush=True)
"""


@pytest.mark.slow
def test_two_processes_build_at_once_while_one_opens(store: wb.outofcore.PartitionStore) -> None:
    both = [started(BUILD, store.folder, 40) for _ in range(2)]
    for process in both:
        assert process.stdin is not None
        process.stdin.write("x")
        process.stdin.flush()
    opened = 0
    while any(process.poll() is None for process in both):
        found = wb.outofcore.PartitionStore.open(store.folder)
        assert sorted(found.node_ids.tolist()) == list(range(NODES))
        opened += 1
    for process in both:
        out, error = process.communicate()
        assert process.returncode == 0, error
        lines = out.strip().split("\n")
        assert all(not line or "replaces" in line or "replaced by another process" in line for line in lines), lines
    assert opened > 1 and not list(store.folder.parent.glob(".store*"))
    assert not wb.outofcore.PartitionStore.open(store.folder).damaged()
