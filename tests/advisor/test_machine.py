"""Machines: values that are refused, known names, files, and what an argument means."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest

import workbench as wb
from workbench.advisor import machine as machine_module, resolve_machine
from workbench.advisor.known_machines import MACHINE_NAMES, USUAL_HOST
from workbench.advisor.machine import LABELS, SIZES, SPEEDS
from workbench.cooperative import PeCounts, step_seconds
from workbench.core.machine import MACHINES

PE: dict[str, Any] = {"gamma": 4.0, "alpha": 3.0, "beta": 2.0}
OURS = wb.Machine(**PE, flops=5.0, name="ours", disk=7e8, cores=2, is_cpu=True, sources={"disk": "data sheet"})


def test_every_field_that_is_a_number_is_a_speed_or_a_size():
    others = {"name", "is_cpu", "sources"}
    assert {each.name for each in fields(wb.Machine)} - others == {*SPEEDS, *SIZES} == set(LABELS)


def test_what_is_not_given_costs_nothing():
    machine = wb.Machine(4.0, 3.0, 2.0)
    assert {getattr(machine, name) for name in {*SPEEDS} - {*PE}} == {math.inf}
    assert {getattr(machine, name) for name in SIZES} == {None} and not machine.is_cpu


@pytest.mark.parametrize("name", SPEEDS)
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "64e9", True, None])
def test_a_speed_that_is_not_positive_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"^{name} is {value!r}; it must be a positive number of {SPEEDS[name]} per"):
        wb.Machine(**(PE | {name: value}))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"cores": 0}, ValueError, "cores is 0"),
        ({"device_memory_bytes": 1.5}, ValueError, "device_memory_bytes is 1.5; it must be a whole number"),
        ({"is_cpu": "yes"}, TypeError, "is_cpu is a str; pass True or False"),
        ({"name": None}, TypeError, "name is a NoneType"),
        ({"sources": {"discs": "data sheet"}}, ValueError, "source 'discs' is not known.*did you mean 'disk'"),
    ],
)
def test_other_invalid_values_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        wb.Machine(**PE, **given)


def test_sources_are_not_compared():
    assert replace(OURS, sources={}) == OURS and hash(OURS) == hash(replace(OURS, sources={}))
    assert replace(OURS, disk=8e8) != OURS


def test_a_known_machine_says_of_every_number_whether_it_is_assumed():
    for name in MACHINE_NAMES:
        machine = wb.Machine.named(name)
        assert machine.name == name and not machine.is_cpu
        assert all(getattr(machine, each) < math.inf for each in LABELS)
        assumed = {each for each in LABELS if machine.sources[each].startswith("assumed")}
        assert assumed == set(USUAL_HOST)


def test_published_machines_have_the_speeds_of_the_paper():
    counts = PeCounts(owned=(9, 20, 40), needed=(25, 50), halo=(5, 10), edges=(30, 60))
    for name, published in MACHINES.items():
        machine = wb.Machine.named(name)
        one_way = replace(published, alpha=published.alpha / 2, beta=published.beta / 2)  # as batches and rows go
        assert (machine.gamma, machine.alpha, machine.beta) == (one_way.gamma, one_way.alpha, one_way.beta)
        assert all("Table 4" in machine.sources[each] for each in PE)
        modelled = [
            step_seconds(counts, each, row_bytes=8, hidden_bytes=4, work_bytes=6) for each in (machine, one_way)
        ]
        assert modelled[0] == modelled[1]


@pytest.mark.parametrize("name", ["RTX 4090", "rtx4090", "RTX-4090", "rtx_4090"])
def test_names_ignore_case_and_spaces(name):
    assert wb.Machine.named(name).name == "RTX 4090"


def test_an_unknown_name_is_refused():
    with pytest.raises(
        ValueError, match=r"machine 'H10' is not known; choose from A100, .*did you mean 'H100'\?.*yaml"
    ):
        wb.Machine.named("H10")
    with pytest.raises(TypeError, match="name is an int; pass a name"):
        wb.Machine.named(100)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("machine", [OURS, replace(OURS, name=""), wb.Machine.named("H100"), wb.Machine(0.1, 1e300, 3)])
def test_a_saved_machine_is_read_unchanged(machine, tmp_path):
    machine.save(tmp_path / "saved.yaml")
    read = wb.Machine.read(tmp_path / "saved.yaml")
    assert read == machine
    assert {name: read.sources[name] for name in machine.sources} == machine.sources
    assert {read.sources[name] for name in {*LABELS} - {*machine.sources}} <= {"file saved.yaml"}


@pytest.fixture
def read(tmp_path):
    """Reads a machine from a text."""

    def call(text):
        file = tmp_path / "ours.yaml"
        file.write_text(text)
        return wb.Machine.read(file)

    return call


def test_a_file_may_use_units(read):
    machine = read("{gamma: 2 TB/s, alpha: 600e9, beta: 25 GB, flops: 1, disk_reads: 2e4, device_memory_bytes: 80 GiB}")
    assert (machine.gamma, machine.alpha, machine.beta) == (2e12, 6e11, 2.5e10)
    assert (machine.disk_reads, machine.device_memory_bytes) == (20_000, 80 * 2**30)


def test_what_a_file_leaves_out_is_that_of_a_usual_host(read):
    machine = read("{gamma: 4, alpha: 3, beta: 2, flops: .inf, disk: 5}")
    assert (machine.name, machine.disk, machine.flops, machine.device_memory_bytes) == ("ours", 5, math.inf, None)
    assert {name for name in LABELS if machine.sources.get(name) == "file ours.yaml"} == {*PE, "flops", "disk"}
    for name in set(USUAL_HOST) - {"disk"}:
        assert (getattr(machine, name), machine.sources[name]) == USUAL_HOST[name]


def test_what_a_file_leaves_out_is_that_of_its_base(read):
    machine, base = (
        read("{base: h100, name: ours, beta: 25 GB/s, sources: {beta: our own copy}}"),
        wb.Machine.named("H100"),
    )
    assert machine == replace(base, name="ours", beta=25e9)
    assert machine.sources == {**base.sources, "beta": "our own copy"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{base: H100, gama: 3}", r"ours\.yaml: gama: unknown key; allowed: base, .*did you mean 'gamma'\?"),
        ("{base: H10}", r"base: machine 'H10' is not known; .*did you mean 'H100'\?"),
        ("{gamma: 1, flops: 2}", "alpha, beta: missing; give them, or a known machine .* such as base: A100"),
        ("{gamma: 1, alpha: 1, beta: 1}", "flops: missing; give it"),
        ("{base: H100, disk: fast}", "disk: is 'fast'; it must be a positive number of bytes .* 64 GB/s, or .inf for"),
        ("{base: H100, flops: true}", "flops: is True; it must be a positive number of operations per second"),
        ("{base: H100, beta: -1}", "beta: is -1; it must be a positive number"),
        ("{base: H100, beta: .nan}", "beta: is nan; it must be a positive number"),
        ("{base: H100, beta: null}", "beta: is None; it must be a positive number"),
        ("{base: H100, cores: 1.5}", "cores: is 1.5; it must be a whole number of at least 1 of cores, or null"),
        ("{base: H100, host_memory_bytes: .inf}", "host_memory_bytes: is inf; .* of bytes, such as 80 GiB, or null"),
        ("{base: H100, sources: {discs: x}}", "sources: source 'discs' is not known"),
        ("[1", "invalid YAML"),
        ("3", "valid dictionary"),
    ],
)
def test_an_invalid_file_is_refused(read, text, message):
    with pytest.raises(ValueError, match=message):
        read(text)


def test_an_argument_is_a_machine_a_name_a_file_or_this_machine(tmp_path, monkeypatch):
    OURS.save(tmp_path / "ours.yml")
    monkeypatch.setattr(machine_module.Machine, "here", classmethod(lambda cls: replace(OURS, name="measured")))
    assert resolve_machine(OURS) is OURS
    assert resolve_machine("a100") == wb.Machine.named("A100")
    assert resolve_machine(tmp_path / "ours.yml") == resolve_machine(str(tmp_path / "ours.yml")) == OURS
    assert [resolve_machine(each).name for each in (None, "here")] == ["measured"] * 2
    published = MACHINES["V100"]
    assert resolve_machine(published) == wb.Machine(published.gamma, published.alpha, published.beta, published.flops)
    with pytest.raises(TypeError, match=r"machine is an int; pass a wb\.Machine"):
        resolve_machine(4)  # pyright: ignore[reportArgumentType]
    with pytest.raises(FileNotFoundError, match=r"there is no machine file nowhere.yaml; `workbench machine --save"):
        resolve_machine("nowhere.yaml")


def test_a_machine_is_shown_with_units_and_sources():
    rows = {row["field"]: row for row in OURS.rows()}
    assert list(rows) == list(LABELS)
    assert rows["disk"] == {
        "quantity": "disk, long reads",
        "field": "disk",
        "value": "700 MB/s",
        "source": "data sheet",
    }
    assert [rows[name]["value"] for name in ("network", "cores", "host_memory_bytes")] == ["no cost", "2", "not known"]
    assert rows["gamma"]["source"] == "as given"
    shown = "Machine(name='ours', gamma=4, alpha=3, beta=2, flops=5, disk=7e+08, cores=2, is_cpu=True)"
    assert repr(OURS) == shown
