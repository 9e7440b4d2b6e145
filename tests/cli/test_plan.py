"""`workbench plan` on an archive of the test's own."""

import numpy as np
import pytest

import workbench as wb
from workbench.cli import main
from workbench.cli.plan import answer, columns
from workbench.core.randomness import permutation
from workbench.memory import plan as planning

SMALL = ("--dataset", "tiny", "--hidden", "8", "--fanouts", "3,3", "--device", "cpu")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with a set of 60 nodes, half of them for training, and the same without features or labels."""
    monkeypatch.setenv("WORKBENCH_DATA", str(tmp_path))
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    arrays = {
        "edge_index": rng.integers(0, 60, (2, 300), dtype=np.int32),
        "num_nodes": np.int64(60),
        "train_idx": np.arange(30),
        "val_idx": np.arange(30, 40),
        "test_idx": np.arange(40, 60),
    }
    np.savez(tmp_path / "bare.npz", **arrays)
    features = {"x": rng.random((60, 16), dtype=np.float32), "y": np.arange(60) % 4}
    np.savez(tmp_path / "tiny.npz", **arrays, **features)
    return tmp_path


@pytest.fixture
def plan(folder, capsys):
    """Status, output and errors of the command."""

    def call(*arguments):
        status = main(["plan", *map(str, arguments)])
        out, err = capsys.readouterr()
        return status, out, err

    return call


def planned(capacity: int, num_seeds: int | None = None, method: str = "range"):
    """The plan that the command should tell of."""
    data = wb.load_dataset("tiny")
    seeds = data.train_idx if num_seeds is None else data.train_idx[permutation(0, 30)[:num_seeds]]
    batch = wb.NeighborSampler([3, 3]).sample(data.graph, seeds)
    model = wb.build_model("sage-mean", in_dim=16, hidden_dim=8, out_dim=4)
    return batch, planning.plan_micro_batches(model, batch, capacity_bytes=capacity, method=method)


def cells(out: str) -> dict[str, list[str]]:
    """Cells of the table by the name of their row."""
    lines = out.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("---"))
    split = [[cell for cell in line.split("  ") if cell.strip()] for line in lines[begin + 1 :]]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in split if row}


def test_the_answer_and_the_table(plan):
    status, out, _ = plan(*SMALL, "--layers", 2, "--capacity", "25kB", "--method", "range")
    batch, made = planned(25_000)
    assert status == 0 and made.num_parts > 1
    lines = out.splitlines()
    assert lines[0] == answer({"range": made})
    assert f"The batch fits into 24.41 KiB as {made.num_parts} micro-batches (partitioned by range)" in lines[0]
    assert lines[2].startswith(f"batch: 30 training nodes of tiny, fanouts 3,3: {batch.num_inputs} input nodes")
    assert lines[3] == "model: sage-mean, 2 layers, 16 → 8 → 4 channels, adam; priced for cpu"
    rows = cells(out)
    assert rows["micro-batches"] == [str(made.num_parts)]
    assert rows["largest one's peak"] == [wb.format_bytes(made.peak_bytes)]
    largest = max(made.estimates, key=lambda estimate: estimate.peak_bytes)
    assert rows["in"] == [largest.phase]
    for term, nbytes in largest.terms.items():
        assert rows.get(term, ["0 B"]) == [wb.format_bytes(nbytes)]
    assert rows["input nodes, all / batch"] == [f"{made.redundancy.ratio:.3f}"]
    assert rows["numbers tried"] == [" ".join(str(k) for k, _ in made.tried)]
    assert {"seconds", "estimate", "partition", "split"} <= set(rows)


def test_all_methods_beside_each_other(plan):
    status, out, _ = plan(*SMALL, "--capacity", "25kB", "--method", "all")
    assert status == 0
    head = next(line for line in out.splitlines() if line.lstrip().startswith("range")).split()
    assert head == ["range", "random", "metis", "reg", "reg_unweighted"]
    numbers = dict(zip(head, map(int, cells(out)["micro-batches"]), strict=True))
    fewest = min(numbers.values())
    assert f"as {fewest} micro-batches" in out and numbers["range"] == planned(25_000)[1].num_parts
    assert any(f"({name} needs the fewest)" in out for name, number in numbers.items() if number == fewest)


def test_a_batch_that_fits_whole(plan):
    status, out, _ = plan(*SMALL, "--capacity", "1GiB", "--batch-size", 12)
    batch, made = planned(2**30, num_seeds=12)
    assert status == 0
    assert out.splitlines()[0] == (
        f"The batch fits into 1.00 GiB whole: its training step is expected to need {wb.format_bytes(made.peak_bytes)}."
    )
    assert f"batch: 12 training nodes of tiny, fanouts 3,3: {batch.num_inputs} input nodes" in out


def test_a_method_that_fails_is_named_beside_the_others(plan, monkeypatch):
    real = planning.partition_batch

    def without_metis(batch, num_parts, *, method, **options):
        if method == "metis":
            raise ImportError("this partition needs METIS")
        return real(batch, num_parts, method=method, **options)

    monkeypatch.setattr(planning, "partition_batch", without_metis)
    status, out, _ = plan(*SMALL, "--capacity", "25kB", "--method", "all")
    assert status == 0 and out.splitlines()[-1] == "metis: this partition needs METIS"
    assert "metis" not in "".join(columns({"range": planned(25_000)[1]}))
    status, _, err = plan(*SMALL, "--capacity", "25kB", "--method", "metis")
    assert status == 1 and err == "workbench: this partition needs METIS\n"


def test_other_models_and_sets(plan):
    bare = ("--dataset", "bare", "--fanouts", "-1", "--hidden", 8, "--capacity", "1GB")
    status, out, _ = plan(*bare, "--features", "random:6", "--classes", 3, "--model", "gat", "--undirected")
    assert status == 0 and "gat, 1 layers, 6 → 8 → 3 channels" in out
    assert plan(*bare)[2] == (
        "workbench: bare has no features; pass --features random:128, say, or --features degree\n"
    )
    assert "bare has no classes; pass --classes" in plan(*bare, "--features", "degree")[2]
    status, out, _ = plan(
        *SMALL, "--capacity", "30kB", "--optimizer", "sgd", "--dropout", 0.5, "--norm", "layer", "--strategy", "split"
    )
    assert status == 0 and "sgd; priced for cpu" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--layers", 3), "layers is 3, but 2 fanouts are given; give one a layer"),
        (("--fanouts", "3;3"), "fanouts are '3;3'; write whole numbers with commas"),
        (("--capacity", "lots"), "'lots' is not a number of bytes; write 8GiB"),
        (("--capacity", "0"), "capacity_bytes is 0"),
        (("--capacity", "2kB"), "parameters and optimizer state alone take"),
        (("--batch-size", 31), "batch-size is 31, but tiny has 30 training nodes"),
        (("--batch-size", 0), "batch-size is 0"),
        (("--method", "best"), "method 'best' is not known"),
        (("--model", "mlp"), "kind 'mlp' is not known"),
        (("--dataset", "absent"), "absent.npz"),
        (("--heads", 2), "heads is 2, but sage-mean has none"),
    ],
)
def test_what_can_not_be_is_said(plan, arguments, message):
    status, out, err = plan(*SMALL, "--capacity", "25kB", *arguments)
    assert status == 1 and not out and err.startswith("workbench: ") and message in err
