"""MLflow's UI, and a server that other machines log to."""

import asyncio
import json
import os
import platform
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import psutil
import pytest

from tests.tracking.points import DATASET, ended, make_point
from workbench.tracking.opening import open_store
from workbench.tracking.record import FAILED, FINISHED, RUNNING
from workbench.tracking.store import StoreError, database_uri
from workbench.tracking.ui import Sweep, _show, experiment_ids, main, ml_view, runs_view, start_page, sweeps_of, ui


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_command() -> None:
    found = ui("sqlite:////data/mlflow.db", 5005)
    assert found.command[:4] == (sys.executable, "-m", "mlflow", "ui")
    line = " ".join(found.command)
    assert "--host 127.0.0.1 --port 5005 --workers 1 --backend-store-uri sqlite:////data/mlflow.db" in line
    assert "--default-artifact-root file:///data/mlruns" in line and "--no-serve-artifacts" in line
    assert found.environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"


def test_the_first_page_shows_the_latest_paper(mlflow_uri: str) -> None:
    from mlflow import MlflowClient

    store = open_store(mlflow_uri)
    for key, paper, started_at in (("c1", "betty", 1000.0), ("c2", "batchgnn", 3000.0), ("c3", "betty", 2000.0)):
        assert store.add(ended(key, {"rows": 1}, sweep=f"{paper}/fig1", started_at=started_at))
    last = MlflowClient(mlflow_uri).get_experiment_by_name("batchgnn")
    assert last is not None
    charts = "runs?workflowType=machine_learning&compareRunsMode=CHART"
    assert start_page(mlflow_uri) == f"#/experiments/{last.experiment_id}/{charts}"


@pytest.mark.parametrize("content", [None, b"", b"no database"])
def test_without_runs_the_first_page_lists_experiments(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "mlflow.db"
    if content is not None:
        file.write_bytes(content)
    assert start_page(database_uri(file)) == "#/experiments?workflowType=machine_learning"
    assert file.exists() == (content is not None)


def test_links_lead_to_the_charts() -> None:
    link = "#/experiments/7/runs?workflowType=machine_learning&compareRunsMode=CHART"
    assert ml_view(5000, "7") == f"http://127.0.0.1:5000/{link}"
    assert ml_view("https://host/mlflow/", "7") == f"https://host/mlflow/{link}"


def test_every_figure_has_a_link_to_its_runs(mlflow_uri: str, tmp_path: Path) -> None:
    store = open_store(mlflow_uri)
    for key, sweep in (("c1", "betty/fig11"), ("c2", "betty/fig2"), ("c3", "batchgnn/fig3")):
        store.add(ended(key, {"rows": 1}, sweep=sweep))
    store.log_summary("betty/fig12", "betty/fig11", "smoke", "5", {})
    found = sweeps_of(mlflow_uri)
    assert list(found) == ["betty/fig11", "betty/fig2", "batchgnn/fig3"]
    assert found["betty/fig2"].experiment_id == found["betty/fig11"].experiment_id
    assert runs_view(5000, found["betty/fig2"]).startswith(
        f"{ml_view(5000, found['betty/fig2'].experiment_id)}&searchFilter=tags.sweep%20%3D%20%22betty%2F"
    )
    assert sweeps_of(f"sqlite:///{tmp_path}/none.db") == {} == sweeps_of("http://127.0.0.1:1")


def test_a_link_shows_the_finished_runs_of_the_newest_code_and_size(mlflow_uri: str) -> None:
    """Runs of earlier code, of other sizes, failed and interrupted ones would stand in the same charts."""
    store = open_store(mlflow_uri)
    runs = {
        key: replace(ended(key, {"rows": 1}), started_at=started)
        for key, started in {"c1": 1e9, "c2": 2e9, "c3": 3e9, "c4": 4e9, "c5": 5e9}.items()
    }
    codes = {"c1": ("old", "smoke"), "c2": ("new", "real"), "c3": ("new", "smoke"), "c4": ("new", "smoke")}
    for key, (code, size) in codes.items():
        point = replace(runs[key].point, size=size, tags={"code": code})
        store.add(replace(runs[key], point=point))
    failed = replace(runs["c5"].point, tags={"code": "newer"})
    store.add(replace(runs["c5"], point=failed, status=FAILED, rows=(), error="no memory"))
    mlflow = pytest.importorskip("mlflow")
    sweep = sweeps_of(mlflow_uri)["betty/fig11"]
    wanted = unquote(runs_view(5000, sweep).partition("&searchFilter=")[2])
    found = mlflow.MlflowClient(mlflow_uri).search_runs([sweep.experiment_id], wanted)
    assert {run.data.tags["key"] for run in found} == {"c3", "c4"}


def test_a_figure_that_was_logged_has_a_saved_view_of_its_charts(mlflow_uri: str) -> None:
    """MLflow would show the last ten points; the view shows all, in their order."""
    store, mlflow = open_store(mlflow_uri), pytest.importorskip("mlflow")
    run = ended("c1", {"rows": 1})
    store.add(replace(run, point=replace(run.point, tags={"code": "c0de"})))
    assert "searchFilter" in runs_view(5000, sweeps_of(mlflow_uri)["betty/fig11"])
    store.log_summary("betty/fig11", "betty/fig11", "smoke", "5", {}, {"code": "c0de"})
    sweep = sweeps_of(mlflow_uri)["betty/fig11"]
    assert runs_view(5000, sweep).endswith("&viewStateShareKey=fig11-smoke")
    tags = mlflow.MlflowClient(mlflow_uri).get_experiment(sweep.experiment_id).tags
    state = json.loads(tags["mlflow.sharedViewState.fig11-smoke"])
    assert state["runsHiddenMode"] == "SHOWALL"
    (found,) = mlflow.MlflowClient(mlflow_uri).search_runs([sweep.experiment_id], state["searchFilter"])
    assert found.data.tags["key"] == "c1"
    newer = replace(run.point, key="c2", tags={"code": "newer"})
    store.add(replace(run, point=newer, run_id="of-c2", started_at=5e9))
    assert "searchFilter" in runs_view(5000, sweeps_of(mlflow_uri)["betty/fig11"]), "the view is of older code"


def test_links_are_printed_whole_and_without_passwords(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("workbench.tracking.ui.experiment_ids", lambda url: {"betty": "3"})
    sweep = Sweep("betty/fig11", "3", view="fig11-smoke")
    _show("http://me:secret@host", in_browser=False, sweeps={"betty/fig11": sweep})
    printed = capsys.readouterr().out
    assert "&viewStateShareKey=fig11-smoke\n" in printed and "secret" not in printed and "host/#/exp" in printed


def test_a_file_store_has_no_ui(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--store", str(tmp_path / "runs.jsonl")]) == 1
    assert "workbench import" in capsys.readouterr().err


FAKE = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        found = [{"name": name, "experiment_id": id} for name, id in [("freshgnn", "2"), ("betty", "1")]]
        self.wfile.write(json.dumps({"experiments": found if "experiments/search" in self.path else None}).encode())

print("noise of the server", os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"], flush=True)
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answer).serve_forever()
"""

SERVE = """
import dataclasses, sys
from workbench.tracking import ui as server
real = server.ui
def fake(store, port):
    found = real(store, port)
    return dataclasses.replace(found, command=(sys.executable, "-c", sys.argv[3], *found.command[4:]))
server.ui = fake
sys.exit(server.main(["--store", sys.argv[1], "--port", sys.argv[2]]))
"""


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_ui_is_served_until_it_is_interrupted(tmp_path: Path, real: bool) -> None:
    port, uri = free_port(), f"sqlite:///{tmp_path}/mlflow.db"
    if real:
        open_store(uri).add(ended())
    module = ["-m", "workbench.tracking.ui", "--store", uri, "--port", str(port)]
    command = [sys.executable, *(module if real else ["-c", SERVE, uri, str(port), FAKE])]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, cwd=tmp_path) as server:
        try:
            assert server.stdout is not None
            expected = {"Default": "0", "betty": "1"} if real else {"betty": "1", "freshgnn": "2"}
            wanted = [[name, ml_view(port, number)] for name, number in sorted(expected.items(), reverse=real)]
            for name, sweep in sweeps_of(uri).items():  # below its paper
                wanted.insert(1, [name.partition("/")[2], runs_view(port, sweep)])
            assert [server.stdout.readline().split() for _ in wanted] == wanted and len(wanted) == 2 + real
            assert experiment_ids(port) == expected
        finally:
            server.send_signal(signal.SIGINT)
        noise = server.communicate()[1]
    assert real or "noise of the server false" in noise
    assert server.returncode == 0
    assert not answers(port)


def test_a_port_in_use_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--store", f"sqlite:///{tmp_path}/mlflow.db", "--port", str(port)]) == 1
    assert f"port {port} is in use; choose another --port" in capsys.readouterr().err


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def server_port(mlflow_uri: str, tmp_path: Path) -> Iterator[int]:
    """Start a real server that stores artifacts itself."""
    port = free_port()
    options = ["--port", str(port), "--workers", "1", "--artifacts-destination", str(tmp_path / "served")]
    command = [sys.executable, "-m", "mlflow", "server", *options, "--backend-store-uri", mlflow_uri]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with subprocess.Popen(command, stdout=-3, stderr=-3, cwd=tmp_path, env=environment) as server:
        try:
            while not answers(port):
                assert server.poll() is None
                time.sleep(0.1)
            yield port
        finally:
            server.terminate()
    assert not answers(port)


@pytest.mark.slow
def test_a_real_server(server_port: int, mlflow_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write and read as from another machine, next to runs logged directly to the server's database."""
    local = open_store(mlflow_uri)
    local.add(ended("0a", {"x": 1}))
    log_from_afar(server_port, monkeypatch, tmp_path)
    assert {run.point.key for run in local.runs("betty/fig11")} == {"0a"}
    with pytest.raises(StoreError, match=r"a server stores the files of 'far'; set MLFLOW_TRACKING_URI to that server"):
        local.runs("far/fig1")
    assert list((tmp_path / "served").rglob("note.txt"))


def log_from_afar(port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    store = open_store()
    store.check()
    assert store.location == f"http://127.0.0.1:{port}"
    assert [run.point.key for run in store.runs("betty/fig11")] == ["0a"]
    point = make_point("0f", sweep="far/fig1")
    rows = [{"epoch": 0, "loss": 2.0, "best": None}, {"epoch": 1, "loss": 1.0, "best": True}]
    with store.lock("0f") as mine:
        assert mine
        run_id = store.start(point)
        assert [run.rows for run in store.runs(statuses=(RUNNING,))] == [()]
        store.finish(run_id, rows, {"deep/note.txt": "ä"})
    (run,) = open_store().runs("far/fig1")
    assert (run.point, run.rows, run.status) == (point, tuple(rows), FINISHED) and run.point.dataset == DATASET
    assert store.add(ended("ad", sweep="far/fig1")) and not store.add(ended("ad", sweep="far/fig1"))
    assert store.close_orphans() == 0


@pytest.mark.parametrize(("asked", "opened"), [([], []), (["--open"], ["http://127.0.0.1:1/#/experiments/7/runs?"])])
def test_the_charts_of_the_first_paper_are_opened_on_request(monkeypatch, capsys, asked, opened) -> None:
    links: list[str] = []
    monkeypatch.setattr("workbench.tracking.ui.webbrowser.open", links.append)
    monkeypatch.setattr("workbench.tracking.ui.experiment_ids", lambda _: {"Default": "0", "betty": "7", "marius": "8"})
    assert main(["--store", "http://127.0.0.1:1", *asked]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["betty", "marius", "Default"]
    assert [link.split("workflowType")[0] for link in links] == opened
    assert all("workflowType=machine_learning" in link for link in links)


def test_a_password_is_sent_and_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    found = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"experiments": [{"name": "betty", "experiment_id": "7"}]}')

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert main(["--store", f"http://me:secret@127.0.0.1:{server.server_port}"]) == 0
        thread.join()
    assert found == ["Basic bWU6c2VjcmV0"] and "http://me:***@127.0.0.1" in capsys.readouterr().out
    assert main(["--store", "http://me:secret@127.0.0.1:1"]) == 1 and "secret" not in capsys.readouterr().err


def test_jupyterlab_asks_nothing_when_it_opens() -> None:
    """`news_url = None` only stops fetching: the question is asked by a plugin whose setting says "ask"."""
    pytest.importorskip("traitlets")
    file = Path(__file__).parents[2] / "notebooks" / "jupyter_config.py"
    settings = runpy.run_path(str(file))["c"].ServerApp.tornado_settings
    disabled = settings["page_config_hook"](None, {"disabledExtensions": ["x"]})["disabledExtensions"]
    assert disabled == ["x", "@jupyterlab/apputils-extension:announcements"]


def test_jupyterlab_opens_and_saves_notebooks_of_another_python_unchanged(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    config = runpy.run_path(str(Path(__file__).parents[2] / "notebooks" / "jupyter_config.py"))["c"]
    root = Path(__file__).parents[2] / "notebooks"
    text = (root / "00_start_here.ipynb").read_text(encoding="utf-8")
    (file := tmp_path / "one.ipynb").write_text(re.sub(r'("version": )"3[.0-9]+"', r'\1"3.11.0"', text))
    before = nbformat.read(file, 4)
    manager = config.ServerApp.contents_manager_class(root_dir=str(tmp_path), parent=None)
    for _ in range(2):
        opened = asyncio.run(manager.get("one.ipynb"))
        assert opened["content"]["metadata"]["language_info"]["version"] == platform.python_version() != "3.11.0"
        asyncio.run(manager.save(opened, "one.ipynb"))
        assert nbformat.read(file, 4) == before
    fresh = {"type": "notebook", "content": nbformat.v4.new_notebook(), "format": "json"}
    asyncio.run(manager.save(fresh, "new.ipynb"))
    assert (tmp_path / "new.ipynb").exists() and asyncio.run(manager.get("", content=True))["type"] == "directory"


SERVER = """
from workbench.tracking import ui
ui._serve(ui.Ui(("sh", "-c", "sleep 604 & wait"), {}, "http://127.0.0.1:1"), False, "")
"""


@pytest.mark.slow
def test_the_server_ends_with_a_process_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER]) as process:
        me, end = psutil.Process(process.pid), time.monotonic() + 60
        while len(family := me.children(recursive=True)) < 3 or "604" not in family[-1].cmdline():
            assert time.monotonic() < end
            time.sleep(0.02)
        process.kill()
    end = time.monotonic() + 5
    while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family):
        assert time.monotonic() < end
        time.sleep(0.02)
