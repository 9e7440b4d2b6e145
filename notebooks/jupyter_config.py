"""JupyterLab on the notebooks, with MLflow's UI beside it: a tile of the launcher, or /mlflow/ of the same address."""

import platform
from pathlib import Path
from typing import Any

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
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


class Notebooks(AsyncLargeFileManager):
    """Opens and saves notebooks without a change of Python's version, in which the kernels of two machines differ."""

    async def get(self, path: str, content: bool = True, **how: Any) -> dict[str, Any]:
        """As the kernel will report it: JupyterLab would have a change to save as soon as the kernel starts."""
        model = await super().get(path, content, **how)
        if model["type"] == "notebook" and content and (info := model["content"]["metadata"].get("language_info")):
            info["version"] = platform.python_version()
        return model

    async def save(self, model: dict[str, Any], path: str = "") -> dict[str, Any]:
        """As the file has it."""
        if model.get("type") == "notebook" and "content" in model and await self.file_exists(path):
            stored = (await super().get(path))["content"]["metadata"]
            model["content"]["metadata"] |= {key: stored[key] for key in ("language_info",) if key in stored}
        return await super().save(model, path)


c.ServerApp.contents_manager_class = Notebooks
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
