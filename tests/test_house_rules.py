"""Rules for every file of the library and the experiments; each exception is listed with its reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Names of functions that delete, replace, lock or write files, by the object they are called on.
ANYWHERE = {"write_text", "write_bytes", "unlink", "rmdir", "removedirs", "rmtree", "tofile", "truncate"}
ANYWHERE |= {"symlink_to", "hardlink_to", "extract", "extractall", "chmod", "utime", "flock", "lockf", "copytree"}
ANYWHERE |= {"mkstemp", "mkdtemp", "memfd_create", "TemporaryFile", "NamedTemporaryFile", "TemporaryDirectory"}
ANYWHERE |= {"SpooledTemporaryFile", "savez", "savez_compressed", "savetxt", "to_parquet", "to_pickle", "write_html"}
ANYWHERE |= {"write_image", "write_json", "copyfile", "copyfileobj", "copy2"}
OF_MODULES = {"os": {"remove", "rename", "replace", "renames", "link", "symlink", "ftruncate"}}
OF_MODULES |= {"shutil": {"move", "copy"}, "np": {"save", "memmap"}, "torch": {"save"}, "json": {"dump"}}
OF_MODULES |= {"pickle": {"dump"}}

ALLOWED = {
    ("workbench/cli/tracking_commands.py", "compare", "to_csv"): "--csv names the file, which may be /dev/stdout",
    ("workbench/meter/limit.py", "_reset_peak", "write_text"): "/proc/self/clear_refs is not a file on disk",
    ("workbench/datasets/ogb.py", "download", "TemporaryFile"): "the file has no name",
    ("workbench/datasets/ogb.py", "_unpack", "extract"): "into a draft; zipfile keeps all paths inside it",
    ("workbench/distributed/rank_pool.py", "_start", "TemporaryFile"): "the file has no name; ranks share its memory",
    ("workbench/distributed/rank_pool.py", "_start", "truncate"): "the file has no name; ranks share its memory",
    ("workbench/distributed/rank_process.py", "__init__", "TemporaryFile"): "the file has no name; a rank's stacks",
    ("workbench/kernels/jit.py", "_prepare", "utime"): "the folder's age is the time of its last use",
    ("workbench/partition/isolated/__init__.py", "_anonymous_file", "memfd_create"): "the file has no name",
    ("workbench/partition/isolated/__init__.py", "_anonymous_file", "open"): "the file has no name",
    ("workbench/partition/isolated/__init__.py", "_anonymous_file", "TemporaryFile"): "the file has no name",
    ("workbench/partition/graph/split_graph.py", "_file_backed", "TemporaryFile"): "the file has no name",
    ("workbench/partition/graph/split_graph.py", "_file_backed", "truncate"): "the file has no name",
    ("workbench/partition/isolated/worker.py", "_attach", "open"): "/proc/self/oom_score_adj is not a file on disk",
    ("workbench/cli/command_group.py", "_discard_output", "open"): "/dev/null",
    ("workbench/keeper.py", "_close_all_but", "open"): "/dev/null",
    ("workbench/tracking/mlflow_store.py", "_log_artifacts", "TemporaryDirectory"): "MLflow uploads folders",
    ("workbench/tracking/preflight.py", "check_writable", "open"): "appends nothing, only checks permission",
    ("workbench/tracking/preflight.py", "create_database", "TemporaryDirectory"): "SQLite writes siblings of its file",
    ("workbench/tracking/file_store.py", "_append", "open"): "lines are appended, and an incomplete one is removed",
    ("workbench/tracking/file_store.py", "_append", "truncate"): "to the end of the last complete line",
    ("workbench/tracking/file_store.py", "check", "open"): "appends nothing, only checks permission",
    ("workbench/tracking/mlflow_store.py", "_text", "TemporaryDirectory"): "MLflow downloads into folders",
    (
        "workbench/tracking/file_store.py",
        "_temporary",
        "mkdtemp",
    ): "the last resort for a computed row",
    ("workbench/outofcore/build_store.py", "_allocate", "open"): "a file of a draft, which nothing reads yet",
    ("workbench/outofcore/build_store.py", "write_edges", "memmap"): "a file of a draft, which nothing reads yet",
    ("workbench/outofcore/build_store.py", "write_rows", "open"): "a file of a draft, which nothing reads yet",
    ("workbench/outofcore/store_layout.py", "open_to_write", "open"): "a free slot; the table is replaced atomically",
    ("workbench/outofcore/tuning.py", "measured", "TemporaryDirectory"): "a file that a disk is measured with",
    (
        "experiments/beyond/advisor.py",
        "temporary_files",
        "TemporaryDirectory",
    ): "stores that programs write",
    ("experiments/beyond/advisor.py", "run", "TemporaryDirectory"): "a folder on the disk that is measured",
    ("experiments/beyond/from_disk.py", "run", "TemporaryDirectory"): "features that one point reads",
    ("experiments/beyond/limited_training.py", "save", "save"): "in the folder of one point, before anything reads it",
    ("experiments/beyond/memory_group.py", "__enter__", "write_text"): "settings of the system, which are no files",
    ("experiments/beyond/memory_group.py", "__enter__", "rmdir"): "a setting of the system",
    ("experiments/beyond/memory_group.py", "__exit__", "rmdir"): "a setting of the system",
    ("experiments/beyond/memory_group.py", "join", "write_text"): "settings of the system, which are no files",
    ("experiments/beyond/program.py", "on_rank", "TemporaryDirectory"): "features that one rank reads",
    ("experiments/beyond/reading_systems.py", "_prepare", "memmap"): "opened to be read",
    ("experiments/beyond/under_limit.py", "run", "TemporaryDirectory"): "files that one point trains from",
    ("experiments/gpu_check/__main__.py", "_run", "TemporaryFile"): "the file has no name",
    ("experiments/performance/caches.py", "run", "NamedTemporaryFile"): "libcachesim reads traces from files",
    ("experiments/batchgnn/distdgl.py", "epochs_of", "TemporaryDirectory"): "partitions that DGL writes for one run",
    ("experiments/batchgnn/distdgl.py", "epochs_of", "write_text"): "in that folder, before anything reads it",
    ("experiments/batchgnn/distdgl.py", "start", "open"): "what its processes print, in that folder",
    ("experiments/batchgnn/distdgl.py", "train", "open"): "the rows of one trainer, in that folder",
    ("experiments/mariusgnn/link_at_scale.py", "run", "TemporaryDirectory"): "a store that one point reads",
    ("experiments/mariusgnn/link_at_scale.py", "warm_up", "TemporaryDirectory"): "a store of two steps",
    ("experiments/mariusgnn/link_effect.py", "run", "TemporaryDirectory"): "a store that one point reads",
    ("experiments/mariusgnn/link_prediction.py", "run", "TemporaryDirectory"): "a store that one point reads",
    ("experiments/mariusgnn/node_classification.py", "run", "TemporaryDirectory"): "a store that one point reads",
    ("experiments/performance/out_of_core.py", "run", "TemporaryDirectory"): "a store that one point reads",
    ("experiments/performance/disk_rows.py", "run", "TemporaryDirectory"): "features that one point reads",
    ("experiments/performance/read_ahead.py", "run", "TemporaryDirectory"): "features that one point reads",
    ("experiments/performance/growth.py", "run", "TemporaryDirectory"): "a store that one point builds",
}


def may_write(mode: ast.expr) -> bool:
    """Return whether a mode or flags of `open` allow writing, or are unknown."""
    if isinstance(mode, ast.Constant):
        return bool(set(str(mode.value)) & set("wax+"))
    flags = {node.attr for node in ast.walk(mode) if isinstance(node, ast.Attribute)}
    return not flags or not flags <= {"O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_CLOEXEC", "O_DIRECT"}


def opens_to_write(call: ast.Call, owner: str) -> bool:
    """Return whether a call of a function named `open` can change a file."""
    modes = [keyword.value for keyword in call.keywords if keyword.arg in ("mode", "flags")]
    if isinstance(call.func, ast.Name) or owner in ("os", "io", "gzip", "bz2", "lzma", "codecs"):
        modes += call.args[1:2]
    else:  # a method of a path; the argument of `Graph.open` and the like is not a mode
        modes += [argument for argument in call.args[:1] if isinstance(argument, ast.Constant)]
    return any(map(may_write, modes))


def changes_files(call: ast.Call) -> str:
    """Return the name of the called function if it deletes, replaces, locks or writes files, otherwise \"\"."""
    owner = ""
    if isinstance(call.func, ast.Attribute):
        name, owner = call.func.attr, getattr(call.func.value, "id", "")
    else:
        name = getattr(call.func, "id", "")
    alone = isinstance(call.func, ast.Attribute) and len(call.args) == 1 and not call.keywords  # a method of paths
    found = name in ANYWHERE or name in OF_MODULES.get(owner, ())
    found |= name == "to_csv" and bool(call.args)
    found |= name in ("rename", "replace") and alone
    found |= name in ("open", "fdopen") and opens_to_write(call, owner)
    return name if found else ""


def call_sites(source: str, function: str = "") -> Iterator[tuple[str, str]]:
    """Yield every call that changes files: the enclosing function and the name of the called one."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = node.name
        if isinstance(node, ast.Call) and (name := changes_files(node)):
            yield function, name
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function)

    return walk(ast.parse(source), function)


def test_only_workbench_files_deletes_replaces_locks_and_writes_files():
    sites = {
        (file.relative_to(ROOT).as_posix(), *site)
        for package in ("workbench", "experiments")
        for file in (ROOT / package).rglob("*.py")
        for site in call_sites(file.read_text(encoding="utf-8"))
        if (package, site[1]) != ("experiments", "rename")  # of a table's column
    }
    elsewhere = {site for site in sites if site[0] != "workbench/files.py"}
    assert elsewhere == set(ALLOWED), "go through workbench/files.py, or add a reason to ALLOWED"
    assert {name for file, _, name in sites - elsewhere} >= {"unlink", "rmtree", "replace", "flock"}


@pytest.mark.parametrize(
    "code",
    [
        "os.remove(x)",
        "path.unlink()",
        "shutil.rmtree(x, ignore_errors=True)",
        "rmtree(x)",
        "path.rename(target)",
        "os.replace(a, b)",
        "path.replace(target)",
        "open(x, 'w')",
        "open(x, mode='ab')",
        "open(x, mode)",
        "path.open('r+b')",
        "gzip.open(x, 'wt')",
        "os.open(x, os.O_RDWR | os.O_CREAT)",
        "os.open(x, flags)",
        "path.write_text(x)",
        "file.truncate(0)",
        "array.tofile(x)",
        "np.save(x, y)",
        "table.to_csv(x, index=False)",
        "json.dump(x, file)",
        "fcntl.flock(x, y)",
    ],
)
def test_walker_finds(code):
    assert len(list(call_sites(f"def f():\n    return {code}"))) == 1
    assert [function for function, _ in call_sites(f"def f():\n    return {code}")] == ["f"]


@pytest.mark.parametrize(
    "code",
    [
        "open(x)",
        "path.open()",
        "path.open('rb')",
        "os.open(x, os.O_RDONLY)",
        "Graph.open(folder)",
        "names.remove(x)",
        "text.replace(a, b)",
        "replace(record, x=1)",
        "table.rename(columns=names)",
        "table.to_csv(index=False)",
        "json.dumps(x)",
    ],
)
def test_walker_ignores(code):
    assert list(call_sites(code)) == []
