"""`workbench data`: list, info, get, and one-line errors."""

import subprocess
import sys

import pytest

from tests.datasets.ogb_folder import needs_ogb
from workbench.cli import main


def run(capsys, *arguments):
    """Run `workbench data …`; return status, output and errors."""
    status = main(["data", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_list_shows_the_data_folder_and_the_catalog(write, write_triples, folder, capsys):
    write()
    write_triples("fb15k-237")
    status, out, err = run(capsys, "list")
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines()[3:]}
    assert (status, err) == (0, "") and str(folder) in out
    assert rows["tiny"].startswith("archive your own data set")
    assert rows["fb15k-237"].startswith("archive knowledge graph")
    assert rows["cora"].startswith("no (archive)") and rows["ogbn-products"].startswith("no (OGB)")
    assert rows["synthetic-products"].startswith("stand-in")


def test_info_of_a_node_data_set(write, capsys):
    write()
    status, out, _ = run(capsys, "info", "tiny")
    rows = {line[:20].strip(): line[20:].strip() for line in out.splitlines()[2:]}
    assert status == 0 and "original" not in out
    assert (rows["nodes"], rows["edges"], rows["classes"]) == ("6", "6", "3")
    assert rows["train / val / test"] == "2 / 1 / 2 (public)"
    assert rows["reciprocity"] == "0.800" and rows["largest degree"] == "1"


def test_info_of_a_knowledge_graph(write_triples, capsys):
    write_triples()
    status, out, _ = run(capsys, "info", "facts")
    assert status == 0 and "5 (triples)" in out and "3 / 1 / 1" in out and "2 (relations)" in out


def test_info_shows_a_stand_in_and_its_original(capsys):
    status, out, _ = run(capsys, "info", "synthetic-arxiv", "--scale", "0.005", "--seed", "4")
    nodes = next(line for line in out.splitlines() if line.startswith("nodes"))
    assert status == 0 and nodes.split() == ["nodes", "847", "169,343"]
    assert out.splitlines()[-1].startswith("original: Hu et al.")
    rows = [line.split() for line in out.splitlines() if " ± " in line and line.endswith(("met", "missed"))]
    assert ["nodes", "847", "±", "0", "847", "met"] in rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("info", "nothing"), "workbench: there is neither nothing.npz nor"),
        (("get", "cora"), "workbench: cora can't be downloaded, only"),
        (("info", "tiny", "--scale", "0.1"), "workbench: scale is 0.1, but tiny is not a stand-in"),
    ],
)
def test_errors_are_one_line(write, capsys, arguments, message):
    write()
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (1, "") and err.startswith(message) and err.count("\n") == 1


@needs_ogb
def test_get_offline(folder, capsys, monkeypatch):
    def offline(*arguments, **options):
        raise OSError("no route to host")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    status, _, err = run(capsys, "get", "ogbn-arxiv")
    assert status == 1 and "ogbn-arxiv can't be downloaded" in err and "no route to host" in err


def test_get_reports_the_folder_and_the_archive_that_takes_precedence(folder, write, capsys):
    (folder / "ogbn_arxiv" / "raw").mkdir(parents=True)
    status, out, _ = run(capsys, "get", "ogbn-arxiv")
    assert status == 0 and out == f"ogbn-arxiv is in {folder / 'ogbn_arxiv'}\n"
    write("ogbn-arxiv")
    status, out, _ = run(capsys, "get", "ogbn-arxiv")
    assert status == 0 and "is loaded from" in out and "ogbn-arxiv.npz, which comes first" in out


def test_help_and_usage(capsys):
    for arguments in (["--help"], ["data", "--help"], ["data", "info", "--help"]):
        assert main(arguments) == 0 and "Usage: workbench" in capsys.readouterr().out
    assert main(["data"]) == 2


@pytest.mark.slow  # by default, tests/cli runs the command as a module
def test_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "workbench.cli", "data", "list"], capture_output=True, text=True)
    assert done.returncode == 0 and "synthetic-products" in done.stdout
