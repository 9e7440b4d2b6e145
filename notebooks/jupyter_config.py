"""JupyterLab on the notebooks, with MLflow's UI beside it: a tile of the launcher, or /mlflow/ of the same address."""

import warnings
from pathlib import Path
from typing import Any

from traitlets.config import get_config

from workbench.tracking.store import tracking_uri
from workbench.tracking.ui import start_page, ui

c = get_config()
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.root_dir = str(Path(__file__).parent)
c.LabApp.default_url = "/lab/tree/00_start_here.ipynb"
c.ContentsManager.hide_globs = ["__pycache__", "conftest.py", "jupyter_config.py", "nbconvert_config.py"]
c.ServerApp.allow_root = True  # in containers; it listens on loopback and asks for a token
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
c.LabApp.news_url = None  # fetches nothing, but JupyterLab asks about news all the same, as its setting says "ask"


def _ask_nothing(_handler: Any, page_config: dict[str, Any]) -> dict[str, Any]:
    """Disables the plugin that asks, without a file in the user's settings."""
    page_config.setdefault("disabledExtensions", []).append("@jupyterlab/apputils-extension:announcements")
    return page_config


def _keep_metadata_short(model: dict[str, Any], **_: Any) -> None:
    """Saves a notebook without the version of Python and the like, which would change the file on every machine."""
    info = model["content"]["metadata"].get("language_info", {}) if model["type"] == "notebook" else {}
    for key in {*info} - {"name"}:
        del info[key]


warnings.filterwarnings("ignore", "Overriding existing pre_save_hook")  # Jupyter reads this file twice
c.FileContentsManager.pre_save_hook = _keep_metadata_short
c.ServerApp.tornado_settings = {"page_config_hook": _ask_nothing}

_uri = tracking_uri()
if not _uri.endswith(".jsonl") and not _uri.startswith("http"):
    _ui = ui(_uri, 0)
    c.ServerProxy.servers = {
        "mlflow": {
            "command": [part if part != "0" else "{port}" for part in _ui.command],
            "environment": dict(_ui.environment),
            "absolute_url": False,
            "timeout": 60,
            # The UI's own start page is for language models.
            "launcher_entry": {"title": "MLflow", "enabled": True, "path_info": f"mlflow/{start_page(_uri)}"},
            "new_browser_tab": True,
        }
    }
