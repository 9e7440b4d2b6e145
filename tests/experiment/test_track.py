"""`track`: a block of one's own code becomes a run, whether it ends, fails or is interrupted."""

from pathlib import Path

import pytest
import torch

import workbench as wb
from workbench.tracking.file_store import FileStore
from workbench.tracking.record import FAILED, FINISHED, KILLED


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(str(tmp_path / "runs.jsonl"))


def test_rows_and_configuration_are_kept(store: FileStore) -> None:
    with wb.track("mine/mlp", {"width": 64, "hops": (5, 10)}, store=store, label="wide") as run:
        run.log(epoch=1, loss=torch.tensor(0.5))
        run.log(epoch=2, loss=0.25)
    (kept,) = store.runs("mine/mlp")
    assert kept.rows == ({"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25})
    assert kept.point.config == {"width": 64, "hops": [5, 10]} and kept.point.label == "wide"
    assert {"commit", "device", "threads"} <= set(kept.point.tags)


def test_the_newest_run_of_a_configuration_is_compared(store: FileStore) -> None:
    for width, loss in ((8, 3.0), (8, 2.0), (16, 1.0)):
        with wb.track("mine/mlp", {"width": width}, store=store) as run:
            run.log(loss=loss)
    table = wb.compare(store, sweep="mine/mlp")
    assert dict(zip(table.width, table.loss, strict=True)) == {8: 2.0, 16: 1.0}
    assert len(store.runs("mine/mlp")) == 3


@pytest.mark.parametrize(("error", "status"), [(RuntimeError("no\nrows"), FAILED), (KeyboardInterrupt(), KILLED)])
def test_what_ends_a_block_ends_its_run(store: FileStore, error: BaseException, status: str) -> None:
    with pytest.raises(type(error)), wb.track("mine/mlp", store=store):
        raise error
    (kept,) = store.runs("mine/mlp", statuses=(FINISHED, FAILED, KILLED))
    assert kept.status == status and type(error).__name__ in str(kept.error) and "\n" not in str(kept.error)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"sweep": "mine"}, "sweep"),
        ({"sweep": "mine/../mlp"}, "sweep"),
        ({"size": "huge"}, "size"),
        ({"config": {"model": torch.nn.Linear(1, 1)}}, "config is not JSON"),
        ({"config": {"rate": float("nan")}}, "config is not JSON"),
    ],
)
def test_bad_arguments_leave_no_run(store: FileStore, arguments: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told), wb.track(**{"sweep": "mine/mlp", "store": store, **arguments}):  # pyright: ignore[reportArgumentType]
        pytest.fail("the block ran")
    assert not store.runs()


def test_a_row_is_plain_values(store: FileStore) -> None:
    with pytest.raises(ValueError, match="not a list"), wb.track("mine/mlp", store=store) as run:
        run.log(losses=[1.0])
