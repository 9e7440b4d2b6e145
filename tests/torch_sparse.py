"""The samplers of torch-sparse, compiled from its source package: PyG's loaders need them or pyg-lib.

Neither has a wheel for this torch. The samplers alone compile in 3 minutes on two cores, and are kept in build/.
"""

import shutil
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.files import locked, new_folder

ROOT = Path(__file__).parent.parent
SAMPLERS = ["neighbor_sample.cpp", "cpu/neighbor_sample_cpu.cpp", "hgt_sample.cpp", "cpu/hgt_sample_cpu.cpp"]


def use_samplers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyG's loaders draw with torch-sparse for the duration of a test."""
    pytest.importorskip("torch_geometric.sampler")
    _load_samplers()
    monkeypatch.setattr("torch_geometric.typing.WITH_TORCH_SPARSE", True)
    monkeypatch.setattr("torch_geometric.sampler.hgt_sampler.WITH_TORCH_SPARSE", True)


@cache
def _load_samplers() -> None:
    """Register `torch.ops.torch_sparse.neighbor_sample`, its variants and `hgt_sample`; compile them the first time."""
    if shutil.which("c++") is None or shutil.which("ninja") is None:
        pytest.skip("torch-sparse is compiled from its source: needs c++ and ninja")
    folder = ROOT / "build" / f"torch-sparse-{torch.__version__}"
    folder.parent.mkdir(exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if not folder.exists():
            with new_folder(folder) as draft:
                _compile(draft)
    torch.ops.load_library(folder / "torch_sparse_samplers.so")


def _compile(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
    pip += ["--no-binary", ":all:", "--constraint", str(ROOT / "constraints.txt"), "--dest", str(folder)]
    subprocess.run([*pip, "torch-sparse"], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        filtered: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not before Python 3.11.4
        sources.extractall(folder, **filtered)
    (root,) = folder.glob("torch_sparse-*/")
    compile_ = """if True:
        import sys
        from torch.utils.cpp_extension import load

        folder, root, *files = sys.argv[1:]
        include = [f"{root}/csrc", f"{root}/third_party/parallel-hashmap"]
        load("torch_sparse_samplers", files, None, ["-O2"], extra_include_paths=include, build_directory=folder,
             is_python_module=False)
    """
    files = [str(root / "csrc" / name) for name in SAMPLERS]
    subprocess.run([sys.executable, "-c", compile_, str(folder), str(root), *files], check=True)
