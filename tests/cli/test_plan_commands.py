"""`workbench plan` on an archive of the test's own."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.cli import main, options as option_values, plans as plan_batch
from workbench.cli.plans import answer, comparison
from workbench.core.randomness import permutation
from workbench.core.units import format_bytes
from workbench.experiment.figure_spec import SIZES
from workbench.experiment.parallel import EXECUTORS
from workbench.memory import plan as planning
from workbench.memory.plan import STRATEGIES
from workbench.memory.training_setup import LSTMS, OPTIMIZERS, Backend
from workbench.nn.model import MODEL_KINDS, TYPED_MODEL_KINDS
from workbench.partition.batch import PARTITION_METHODS
from workbench.partition.batch.partitioner import PreparedPartition

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
    return batch, planning.plan_micro_batches(model, batch, memory=capacity, method=method)


def cells(out: str) -> dict[str, list[str]]:
    """Cells of the table by the name of their row."""
    lines = out.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("  "))
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
    assert lines[3] == "model: sage-mean, 2 layers, 16 → 8 → 4 channels, adam; estimated for " + str(Backend("cpu"))
    rows = cells(out)
    assert rows["micro-batches"] == [str(made.num_parts)]
    assert rows["largest peak"] == [wb.format_bytes(made.peak_bytes)]
    largest = max(made.estimates, key=lambda estimate: estimate.peak_bytes)
    assert rows["peak phase"] == [largest.phase]
    for term, nbytes in largest.terms.items():
        assert rows.get(term, ["0 B"]) == [wb.format_bytes(nbytes)]
    assert rows["input nodes, sum / batch"] == [f"{made.redundancy.ratio:.3f}"]
    assert rows["part counts tried"] == [" ".join(str(k) for k, _ in made.tried)]
    assert {"planning seconds", "estimate", "partition", "split"} <= set(rows)


def test_all_partitioners_are_compared(plan):
    pytest.importorskip("pymetis")
    status, out, _ = plan(*SMALL, "--capacity", "25kB", "--method", "all")
    assert status == 0
    lines = out.splitlines()
    head = lines[next(i for i, line in enumerate(lines) if line.startswith("micro-batches")) - 1].split()
    assert set(head) == set(option_values.FAST_PARTITIONERS)
    numbers = dict(zip(head, map(int, cells(out)["micro-batches"]), strict=True))
    assert list(numbers.values()) == sorted(numbers.values()), "the best first"
    fewest = min(numbers.values())
    assert f"as {fewest} micro-batches" in out and numbers["range"] == planned(25_000)[1].num_parts
    made = {name: planned(25_000, method=name)[1] for name in head}
    assert out.splitlines()[0] == answer(made)


def test_the_comparison_fits_a_narrow_terminal(plan, monkeypatch):
    plans = {name: planned(25_000, method=name)[1] for name in ("range", "random")}
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = comparison(plans)
    monkeypatch.setenv("COLUMNS", str(max(map(len, whole)) - 1))
    lines = comparison(plans)
    best = min(plans.values(), key=lambda made: (made.num_parts, made.peak_bytes)).method_name
    (other,) = {"range", "random"} - {best}
    assert lines[0].split() == [best] and lines[-1] == f"Not shown, beyond this terminal's width: {other}"
    assert set(whole[0].split()) == {"range", "random"} and "Not shown" not in whole[-1]


def test_a_whole_batch_that_fits(plan):
    status, out, _ = plan(*SMALL, "--capacity", "1GiB", "--batch-size", 12)
    batch, made = planned(2**30, num_seeds=12)
    assert status == 0
    assert out.splitlines()[0] == (
        f"The whole batch fits into 1.00 GiB: its training step needs an estimated {wb.format_bytes(made.peak_bytes)}."
    )
    assert f"batch: 12 training nodes of tiny, fanouts 3,3: {batch.num_inputs} input nodes" in out


def test_a_partitioner_that_fails_is_named_below_the_others(plan, monkeypatch):
    pytest.importorskip("mtkahypar")
    real = PreparedPartition.cut

    def without_metis(prepared, num_parts):
        if prepared.method == "metis":
            raise ImportError("this partition needs METIS")
        return real(prepared, num_parts)

    monkeypatch.setattr(PreparedPartition, "cut", without_metis)
    status, out, _ = plan(*SMALL, "--capacity", "25kB", "--method", "all")
    assert status == 0 and out.splitlines()[-1] == "metis: this partition needs METIS"
    assert "metis" not in "".join(comparison({"range": planned(25_000)[1]}))
    status, _, err = plan(*SMALL, "--capacity", "25kB", "--method", "metis")
    assert status == 1 and err == "workbench: this partition needs METIS\n"


def test_other_models_and_sets(plan):
    bare = ("--dataset", "bare", "--fanouts", "-1", "--hidden", 8, "--capacity", "1GB")
    status, out, _ = plan(*bare, "--features", "random:6", "--classes", 3, "--model", "gat", "--undirected")
    assert status == 0 and "gat, 1 layers, 6 → 8 → 3 channels" in out
    assert plan(*bare)[2] == (
        "workbench: bare has no features; pass --features degree, or random:WIDTH such as random:128\n"
    )
    assert "bare has no classes; pass --classes" in plan(*bare, "--features", "degree")[2]
    status, out, _ = plan(
        *SMALL, "--capacity", "30kB", "--optimizer", "sgd", "--dropout", 0.5, "--norm", "layer", "--strategy", "split"
    )
    assert status == 0 and "sgd; estimated for cpu" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--layers", 3), "layers is 3, but 2 fanouts are given; give one per layer"),
        (("--fanouts", "99999999999999999999,5"), "fanouts are [99999999999999999999, 5]; pass one per layer"),
        (("--fanouts", "3,0"), "fanouts are [3, 0]; pass one per layer"),
        (("--fanouts", "3;3"), "fanouts are '3;3'; write integers with commas"),
        (("--capacity", "lots"), "'lots' is not a number of bytes; write 8GiB"),
        (("--capacity", "0"), "memory is 0"),
        (("--capacity", "2kB"), "parameters and optimizer state alone need"),
        (("--batch-size", 31), "batch-size is 31, but tiny has 30 training nodes"),
        (("--batch-size", 0), "batch-size is 0"),
        (("--lstm", "cudnn"), "lstm is 'cudnn'"),
        (("--dataset", "absent"), "absent.npz"),
        (("--heads", 2), "heads is 2, but sage-mean has no heads"),
        (("--bases", 2), "bases is 2, but sage-mean has no bases"),
        (("--model", "rgcn"), "rgcn needs edge types, which this graph does not have; use a typed graph (fb15k-237"),
    ],
)
def test_invalid_options_are_one_line(plan, arguments, message):
    status, out, err = plan(*SMALL, "--capacity", "25kB", *arguments)
    assert status == 1 and not out and err.startswith("workbench: ") and message in err


@pytest.mark.parametrize(
    ("option", "value", "offered"),
    [
        (
            "--method",
            "cluster",
            "'auto', 'fast', 'range', 'random', 'metis', 'reg', 'reg_unweighted', 'reg_normalized', 'star'",
        ),
        ("--strategy", "odd", "'even', 'split'"),
        ("--optimizer", "lion", "'adam', 'adamw', 'sgd'"),
        ("--model", "mlp", "'gat'"),
        ("--lstm", "own", "'onednn', 'native', 'cudnn'"),
    ],
)
def test_unknown_values_are_usage_errors_that_name_the_known_ones(plan, option, value, offered):
    status, out, err = plan(*SMALL, "--capacity", "25kB", option, value)
    assert (status, out) == (2, "") and f"{value!r} is not one of" in err and offered in err


def test_the_values_offered_are_those_of_the_library():
    assert {*option_values.PARTITIONERS} == {*PARTITION_METHODS} - {"cluster"}  # which needs a partition of its own
    assert (*MODEL_KINDS, *TYPED_MODEL_KINDS) == option_values.MODELS and option_values.LSTMS == LSTMS
    assert (tuple(OPTIMIZERS), tuple(STRATEGIES)) == (option_values.OPTIMIZERS, option_values.STRATEGIES)
    assert option_values.SIZES == SIZES and option_values.EXECUTORS == EXECUTORS


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--margin", -1, "margin is -1.0"),
        ("--capacity", 0, "memory is 0"),
        ("--lstm", "cudnn", "requires device='cuda'"),
        ("--fanouts", "a", "fan"),
    ],
)
def test_invalid_options_are_refused_before_the_data_set_is_loaded(plan, monkeypatch, option, value, message):
    monkeypatch.setattr(plan_batch, "_load", lambda _: pytest.fail("loaded"))
    status, _, err = plan(*SMALL, "--capacity", "25kB", option, value)
    assert status == 1 and message in err


def test_fanouts_may_start_with_minus_one(plan):
    status, out, _ = plan(*SMALL, "--capacity", "1GiB", "--fanouts", "-1,3")
    assert status == 0 and "fanouts -1,3:" in out
    assert plan(*SMALL, "--capacity", "1GiB", "--fanouts", "3,-1")[0] == 0
    assert "fanouts -1,-1:" in plan(*SMALL, "--capacity", "1GiB", "--fanouts", "-1,-1")[1]


def test_the_method_behind_auto_is_named(plan):
    _, out, _ = plan(*SMALL, "--capacity", "25kB")
    name = planned(25_000, method="auto")[1].method_name
    assert name.startswith("auto (") and f"(partitioned by {name})" in out.splitlines()[0]
    assert name in next(line for line in out.splitlines() if line.startswith(" "))


def test_the_lstm_priced_is_chosen_and_named(plan):
    lstm = ("--model", "sage-lstm", "--capacity", "1GiB")
    lines = {name: plan(*SMALL, *lstm, "--lstm", name)[1].splitlines() for name in ("native", "onednn")}
    assert all(lines[name][3].endswith(f"estimated for cpu ({name} lstm)") for name in lines)
    assert lines["native"][0] != lines["onednn"][0]
    assert plan(*SMALL, *lstm, "--device", "cuda", "--lstm", "native")[1].splitlines()[3].endswith("cuda (native lstm)")


def test_the_encoder_of_a_knowledge_graph(plan, folder):
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        name: rng.integers(0, 5, (n, 3)) for name, n in (("train", 40), ("valid", 5), ("test", 5))
    }
    np.savez(folder / "facts.npz", **arrays, num_entities=np.int64(12), num_relations=np.int64(5))
    asked = ("--model", "rgcn", "--hidden", 8, "--fanouts", "3,3", "--device", "cpu", "--capacity", "1GB")
    status, out, _ = plan("--dataset", "facts", *asked, "--bases", 2, "--batch-size", 4)
    graph = wb.load_dataset("facts").graph(inverse=True)
    batch = wb.NeighborSampler([3, 3]).sample(graph, permutation(0, 12)[:4])
    model = wb.build_model("rgcn", in_dim=8, hidden_dim=8, out_dim=8, num_relations=10, num_bases=2)
    assert status == 0 and f"batch: 4 entities of facts, fanouts 3,3: {batch.num_inputs} input nodes" in out
    assert out.splitlines()[0].endswith(f"{format_bytes(wb.estimate_memory(model, batch).peak_bytes)}.")
    assert "rgcn, 2 layers, 8 → 8 → 3 channels" in plan("--dataset", "facts", *asked, "--classes", 3)[1]


def test_a_mistyped_method_is_asked_about(capsys):
    assert main(["plan", "--dataset", "cora", "--fanouts", "5", "--capacity", "1GiB", "--method", "REGG"]) == 2
    assert "Did you mean 'reg'?" in capsys.readouterr().err


def told_plan(method: str, num_parts: int, peak_bytes: int) -> Any:
    """The attributes of a `Plan` that the sentence uses."""
    return SimpleNamespace(
        method_name=method,
        num_parts=num_parts,
        peak_bytes=peak_bytes,
        memory_bytes=2**20,
        redundancy=wb.partition.Redundancy(13, 10, 1.3, 4),
    )


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (
            [("range", 4, 9), ("reg", 3, 10)],
            "3 micro-batches (reg needs the fewest): the largest needs an estimated 10 B",
        ),
        ([("range", 4, 9), ("reg", 4, 8)], "(the same for all methods; reg has the smallest peak): the largest"),
        ([("range", 4, 9), ("reg", 4, 9)], "(the same for all methods; shown is range)"),
        (
            [("range", 5, 9), ("reg", 4, 9), ("metis", 4, 7)],
            "(2 methods need the fewest; metis has the smallest peak)",
        ),
    ],
)
def test_the_sentence_names_the_best_partitioner_and_why(made, why):
    assert why in answer({name: told_plan(name, *numbers) for name, *numbers in made})


ASKED = ["buffer", "--nodes", "1000000", "--row", "400", "--edges", "10000000", "--memory"]


def tuned(memory: str, **options: Any) -> wb.outofcore.BufferPlan:
    return wb.outofcore.plan_buffer(
        10**6, 400, num_edges=10**7, edge_bytes=16, memory=memory, disk_read_bytes=62_500, **options
    )


def test_the_answer_is_the_plans(capsys: Any) -> None:
    assert main([*ASKED, "200MiB", "--working", "50MiB", "--learnt", "--method", "balanced"]) == 0
    out = capsys.readouterr().out
    expected = tuned("200MiB", working_bytes="50MiB", learnt=True, method="balanced")
    assert f"{expected.capacity} of {expected.num_partitions} partitions fit into 200MiB" in out
    moved = [wb.format_bytes(size) for size in (expected.read_bytes, expected.write_bytes)]
    assert f"in {expected.num_logical} logical groups: an epoch reads {moved[0]} and writes {moved[1]}." in out
    seconds = (expected.read_bytes + expected.write_bytes) / 1e9 + expected.num_operations / 16_000
    assert f"{seconds:,.1f} s at 953.67 MiB/s and 16,000 operations/s" in out
    assert f"{wb.outofcore.partition_bias(expected.order()):.3f} with {expected.order().num_states} states" in out


def test_without_prefetching_more_fits(capsys: Any) -> None:
    assert main([*ASKED, "200MiB", "--no-prefetch"]) == 0
    without, ahead = tuned("200MiB", prefetch=False), tuned("200MiB")
    assert without.num_logical < ahead.num_logical
    assert f"{without.capacity} of {without.num_partitions} partitions fit" in capsys.readouterr().out


def test_all_in_memory(capsys: Any) -> None:
    assert main([*ASKED, "8GiB"]) == 0
    assert capsys.readouterr().out.startswith("Everything fits into 8GiB: all rows and edges need ")


@pytest.mark.parametrize(("memory", "why"), [("1kB", "raise memory to "), ("much", "is not a number of bytes")])
def test_errors_are_one_line(capsys: Any, memory: str, why: str) -> None:
    assert main([*ASKED, memory]) == 1
    err = capsys.readouterr().err
    assert why in err and err.count("\n") == 1
