"""`workbench machine`: the table of a known machine, a file, or this machine."""

import pytest

import workbench as wb
from workbench.advisor.machine import LABELS
from workbench.cli import main

OURS = wb.Machine(4e12, 3e9, 2e6, name="our server", sources={"gamma": "data sheet"})


@pytest.fixture
def call(capsys):
    """Status, output and errors of the command."""

    def call(*arguments):
        status = main(["machine", *map(str, arguments)])
        return status, *capsys.readouterr()

    return call


def test_a_known_machine_is_a_table_with_sources(call):
    status, out, err = call("h100")
    name, _, head, *lines = out.splitlines()
    assert (status, err, name) == (0, "", "H100")
    assert head.split("  ")[0] == "quantity" and head.endswith("how it was found")
    assert [line.split("  ")[0] for line in lines] == list(LABELS.values())
    assert lines[0].split("  ")[-1].strip() == wb.Machine.named("H100").sources["gamma"]
    assert "3.35 TB/s" in lines[0] and "assumed" in out


def test_a_machine_is_read_from_a_file_and_saved_to_another(call, tmp_path):
    OURS.save(tmp_path / "ours.yaml")
    status, out, _ = call(tmp_path / "ours.yaml", "--save", tmp_path / "copy.yaml")
    assert status == 0 and out.startswith("our server\n") and "4 TB/s" in out and "data sheet" in out
    assert out.endswith(f"saved in {tmp_path / 'copy.yaml'}\n")
    assert wb.Machine.read(tmp_path / "copy.yaml") == OURS


def test_this_machine_is_measured_unless_another_is_given(call, tmp_path, monkeypatch):
    folders = []
    monkeypatch.setattr(wb.Machine, "here", classmethod(lambda cls, folder=None: folders.append(folder) or OURS))
    assert call()[:2] == call("here")[:2] == call("--folder", tmp_path)[:2]
    assert folders == [None, None, str(tmp_path)]
    status, out, err = call("A100", "--folder", tmp_path)
    assert (status, out) == (1, "") and "but A100 is not measured" in err


@pytest.mark.parametrize(
    ("name", "message"),
    [("A10", "machine 'A10' is not known"), ("nowhere.yaml", "there is no machine file"), ("", "not known")],
)
def test_an_unknown_machine_is_one_line(call, name, message):
    status, out, err = call(name)
    assert (status, out) == (1, "") and message in err and err.count("\n") == 1


def test_no_line_is_wider_than_the_terminal(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, call("RTX 4090")[1].splitlines())) <= 80


def test_help_names_the_machines(call):
    status, out, _ = call("--help")
    assert status == 0
    assert all(name in " ".join(out.split()) for name in wb.advisor.MACHINE_NAMES)
