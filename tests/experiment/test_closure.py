"""A point's key covers every definition that `run` reaches, however late and wherever it stands, and nothing else."""

import ast
import json
import re
import shutil
import subprocess
import symtable
import sys
from pathlib import Path

import pytest

from tests.all_figures import SWEEPS
from workbench.experiment import closure as module
from workbench.experiment.closure import closure
from workbench.experiment.figure_loader import load_experiment

FIGURE = '''
"""A figure."""

from typing import TYPE_CHECKING

import workbench as wb
from experiments.toys.shared import measure
from workbench.core.units import format_bytes
from workbench.experiment.config import PointConfig

if TYPE_CHECKING:
    from workbench.nn.gat import GATLayer

LIMIT = 3
UNUSED = 4


class Config(PointConfig):
    number: int


def run(config):
    """Rows."""
    yield {"value": helper(config) + measure(config)}


def helper(config):
    from workbench.kernels.hash import hash_index

    return wb.redundancy, LIMIT, hash_index


def draw(table, reported):
    from workbench.plots.lines import lines

    return lines(table), format_bytes(UNUSED), wb.compare
'''
SHARED = """
import workbench as wb
import workbench.sampling.loader as stream

CALLS = []


def measure(config):
    return stream.prefetch, CALLS


def unrelated():
    return wb.load_dataset
"""


@pytest.fixture
def figure(tmp_path: Path) -> Path:
    folder = tmp_path / "experiments" / "toys"
    folder.mkdir(parents=True)
    (folder / "shared.py").write_text(SHARED)
    (folder / "fig1.py").write_text(FIGURE)
    return folder / "fig1.py"


def found_in(figure: Path, library: Path | None = None) -> set[str]:
    return set(closure(figure, ("run", "Config"), library=library).definitions)


def digest(figure: Path, library: Path | None = None) -> str:
    return closure(figure, ("run", "Config"), library=library).digest


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_what_run_reaches_is_found(figure: Path) -> None:
    found = found_in(figure)
    own = {name for name in found if name.startswith("experiments.")}
    assert own == {
        *(f"experiments.toys.fig1.{name}" for name in ("run", "Config", "helper", "LIMIT")),
        *(f"experiments.toys.shared.{name}" for name in ("measure", "CALLS")),
    }
    reached = {"kernels.hash.hash_index", "partition.redundancy.redundancy", "sampling.loader.prefetch"}
    assert reached | {"experiment.config.PointConfig"} <= {name.removeprefix("workbench.") for name in found}


def test_what_it_does_not_reach_is_not(figure: Path) -> None:
    found = found_in(figure)
    packages = {name.split(".")[1] for name in found if name.startswith("workbench.")}
    assert not packages & {"plots", "tracking", "report", "widgets", "cli"}
    assert "workbench.core.units.format_bytes" not in closure(figure, ["LIMIT"]).definitions
    assert "workbench.nn.gat.GATLayer" not in closure(figure, ["helper"]).definitions
    assert "workbench.kernels.hash.hash_index" in found and "workbench.kernels.hash.fold" not in found


@pytest.mark.parametrize(
    ("file", "old", "new", "counts"),
    [
        ("fig1.py", "return wb.redundancy, LIMIT", "return wb.redundancy, -LIMIT", True),
        ("fig1.py", "LIMIT = 3", "LIMIT = 5", True),
        ("fig1.py", "number: int", "number: float", True),
        ("fig1.py", "wb.redundancy", "wb.train_step", True),
        ("fig1.py", "wb.redundancy", "redundancy", True),
        ("fig1.py", "import workbench as wb", "import workbench as wb  # it\nimport workbench", False),
        ("fig1.py", "UNUSED = 4", "UNUSED = 5", False),
        ("fig1.py", "return lines(table)", "return 2", False),
        ("fig1.py", '"""Rows."""', '"""Other rows."""', False),
        ("fig1.py", "LIMIT = 3", "LIMIT = 3  # a comment", False),
        ("fig1.py", "UNUSED = 4", "UNUSED = 4\nprint()", True),
        ("fig1.py", "UNUSED = 4", "UNUSED = 4\nif UNUSED:\n    LIMIT = 3", True),
        ("shared.py", "CALLS = []", "CALLS = [1]", True),
        ("shared.py", "CALLS = []", "CALLS = []\nCALLS[:] = [1]", True),
        ("shared.py", "stream.prefetch", "stream.Thread", True),
        ("shared.py", "as stream", "as reading", True),
        ("shared.py", "return wb.load_dataset", "return 3", False),
    ],
)
def test_edits_that_count(figure: Path, file: str, old: str, new: str, counts: bool) -> None:
    before = digest(figure)
    edit(figure.with_name(file), old, new)
    assert (digest(figure) != before) == counts


@pytest.mark.parametrize(
    ("statement", "expression"),
    [
        ("import workbench as library", "library.redundancy"),
        ("import workbench.partition.redundancy", "workbench.partition.redundancy.redundancy"),
        ("from workbench.partition import redundancy", "redundancy.redundancy"),
        ("from workbench.partition.redundancy import redundancy as own", "own"),
        ("import workbench as library\nown = library.redundancy", "own"),
    ],
)
def test_one_function_by_any_path_is_one_function(figure: Path, statement: str, expression: str) -> None:
    before = digest(figure)
    edit(figure, "import workbench as wb", f"import workbench as wb\n{statement}")
    edit(figure, "wb.redundancy", expression)
    assert digest(figure) == before


RELU = "from torch import relu as act"
PRIVATE = "_a, _b = 1, 2\n_a = 3\n\ndef act(x):\n    return {}"
TELLING = "def told() -> {}:\n    return {}\n\ndef act(x):\n    raise OSError(told())"
PAIRS = {
    "another function of another library": (RELU, "from torch import tanh as act", True),
    "another path to the same": (
        "from torch import relu as act",
        "import torch as t\nfrom torch import relu as act",
        False,
    ),
    "a fallback": (
        "from os import sep as act",
        "try:\n    from os import sep as act\nexcept OSError:\n    act = 1",
        True,
    ),
    "annotations": ("def act(x: int) -> int:\n    y: int = x", "def act(x):\n    y = x", False),
    "declarations": ("act: int\nact = 3", "act: float\nact = 3", False),
    "fields": ("class act:\n    x: int = 3", "class act:\n    x: float = 3", True),
    "a private name": ("def _a(x):\n    pass\n\nact = _a", "def _b(x):\n    pass\n\nact = _b", False),
    "which private name": (PRIVATE.format("_a"), PRIVATE.format("_b"), True),
    "a public name": ("def act():\n    pass", "def other():\n    pass\n\nact = other", True),
    "the text of an error": ("def act(x):\n    raise OSError('a')", "def act(x):\n    raise OSError(f'b {x}')", False),
    "a function of texts": (TELLING.format("str", 1), TELLING.format("str", 2), False),
    "a function of values": (TELLING.format("int", 1), TELLING.format("int", 2), True),
    "another value of an error": ("def act(x):\n    raise OSError(x)", "def act(x):\n    raise OSError(-x)", True),
    "the text of an assertion": ("def act(x):\n    assert x, 'a'", "def act(x):\n    assert x, 'b'", False),
}


@pytest.mark.parametrize("case", PAIRS)
def test_definitions_count_by_their_meaning(figure: Path, case: str) -> None:
    *codes, counts = PAIRS[case]
    digests = set()
    for code in codes:
        figure.write_text(f"{code}\n\ndef run(config):\n    return act\n")
        digests.add(closure(figure, ["run"]).digest)
    assert (len(digests) == 2) == counts


@pytest.mark.parametrize(
    ("code", "counts"),
    [
        ("def act(L):\n    return L", False),
        ("def act(x):\n    return [L for L in x]", False),
        ("def act(x):\n    return [L for L in L]", True),
        ("def act(x):\n    def inner():\n        L = x\n    return L", True),
        ("def act(x):\n    L = x\n    def inner():\n        return L", False),
        ("def act(x):\n    global L\n    L += x", True),
        ("class act:\n    L = 3\n    x = [L]", False),
        ("class act:\n    L = 3\n    def f():\n        return L", True),
        ("def act(x, *, L=L):\n    return L", True),
        ("act = lambda L: L", False),
    ],
)
def test_a_constant_counts_where_it_is_not_hidden_by_a_local_name(figure: Path, code: str, counts: bool) -> None:
    figure.write_text(f"L = 1\n{code}\ndef run(config):\n    return act\n")
    assert ("experiments.toys.fig1.L" in closure(figure, ["run"]).definitions) == counts


def test_which_of_two_functions_of_one_name_is_called_counts(figure: Path) -> None:
    figure.with_name("one.py").write_text("def value():\n    return 1\n")
    figure.with_name("two.py").write_text("def value():\n    return 2\n")
    digests = set()
    for first, second in (("one", "two"), ("two", "one")):
        figure.write_text(
            f"from . import {first} as a, {second} as b\ndef run(c):\n    return f(), g()\n"
            "def f():\n    return a.value()\ndef g():\n    return -b.value()\n"
        )
        digests.add(closure(figure, ["run"]).digest)
    assert len(digests) == 2


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A copy of the library, to be edited."""
    return shutil.copytree(module._LIBRARY, tmp_path / "workbench", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("kernels/hash.py", "def hash_index(", "def hash_index(edited=None, *, ", {"kernels.hash.hash_index"}),
        ("plots/lines.py", "return ", "return 0 or ", set()),
        ("standin/catalog.py", "STANDINS: Mapping", "_NEW = _ARXIV\n\nSTANDINS: Mapping", set()),
    ],
)
def test_an_edit_of_the_library_counts_where_it_is_reached(
    figure: Path, library: Path, file: str, old: str, new: str, changed: set[str]
) -> None:
    short = closure(figure, ("run", "Config"), library=library).short()
    shutil.copytree(library, edited := library.with_name("edited"))
    edit(edited / file, old, new)
    after = closure(figure, ("run", "Config"), library=edited)
    assert {name.removeprefix("workbench.") for name in after.changed_since(short)} == changed
    assert (after.digest != digest(figure, library)) == bool(changed)


@pytest.fixture
def kept(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file between processes, of a library that stands for the running one."""
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_LIBRARY", library)
    forget()
    return tmp_path / "cache" / "definitions.pickle"


def forget() -> None:
    """As a new process does."""
    module._library_modules.cache_clear()
    module._digest_at_start.cache_clear()


def test_a_later_process_finds_the_normalised_statements_of_an_earlier_one(
    figure: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = closure(figure, ("run", "Config"))
    written = kept.stat().st_mtime_ns
    assert closure(figure, ("run", "Config")) == first and kept.stat().st_mtime_ns == written
    forget()
    read = []
    init = module._Module.__init__
    monkeypatch.setattr(
        module._Module, "__init__", lambda self, name, *rest: (read.append(name), init(self, name, *rest))[1]
    )
    assert closure(figure, ("run", "Config")) == first
    assert read and not [name for name in read if name.startswith("workbench.")]


@pytest.mark.parametrize("content", [b"", b"cut off", None])
def test_a_damaged_file_or_one_of_an_edited_library_is_not_used(
    figure: Path, kept: Path, library: Path, content: bytes | None
) -> None:
    first = closure(figure, ("run", "Config"))
    if content is None:
        edit(library / "kernels/hash.py", "def hash_index(", "def hash_index(edited=None, *, ")
    else:
        kept.write_bytes(content)
    forget()
    again = closure(figure, ("run", "Config"))
    assert (again == first) == (content is not None)
    forget()
    assert closure(figure, ("run", "Config")) == again


def test_modules_that_were_read_after_an_edit_are_not_kept(figure: Path, kept: Path, library: Path) -> None:
    """Else they would stand for the files before the edit, once it is taken back."""
    first = closure(figure, ("run", "Config"))
    before, file = kept.read_bytes(), library / "plots/lines.py"
    text = file.read_text()
    edit(file, "return ", "return 0 or ")
    edited = closure(figure, ("run", "Config", "draw"))
    file.write_text(text)
    forget()
    assert kept.read_bytes() == before and closure(figure, ("run", "Config")) == first
    assert closure(figure, ("run", "Config", "draw")) != edited


def test_moves_and_renames_of_files_change_nothing(library: Path) -> None:
    """The package of samplers moves into another package, and all of its files get other names."""
    figures = shutil.copytree("experiments", library.with_name("experiments"), ignore=shutil.ignore_patterns("results"))
    draws = (library / "sampling").rename(library / "features" / "draws")
    names = {file.stem: file.rename(file.with_stem(f"{file.stem}_moved")).stem for file in draws.glob("[a-z]*.py")}
    places = re.compile(rf"\bworkbench\.sampling\.({'|'.join(names)})\b")
    for file in [*library.rglob("*.py"), *figures.rglob("*.py")]:
        file.write_text(places.sub(lambda found: f"workbench.features.draws.{names[found[1]]}", file.read_text()))
    (library / "sampling").mkdir()  # the namespace stays, and leads to the new places
    (library / "sampling" / "__init__.py").touch()
    for stub, old, new in (("", ".sampling.", ".features.draws."), ("sampling", ".", "..features.draws.")):
        source = draws if stub else library
        text = re.sub(
            rf"(?m)^from {re.escape(old)}({'|'.join(names)}) import",
            lambda found, new=new: f"from {new}{names[found[1]]} import",
            (source / "__init__.pyi").read_text(),
        )
        (library / stub / "__init__.pyi").write_text(text)
    for name in SWEEPS[::20]:
        moved = closure((figures / name).with_suffix(".py"), ("run", "Config"), library=library)
        here = load_experiment(name).code()
        assert moved.digest == here.digest and moved.changed_since(here.short()) == [], name
        places_here = {part for part in here.definitions if part.startswith("workbench.sampling.")}
        assert {part.split(".")[-1] for part in places_here} <= {part.split(".")[-1] for part in moved.definitions}
        assert not places_here & set(moved.definitions)


def test_names_are_global_where_the_compiler_says_so() -> None:
    """Scopes of the library and of all experiments, against Python's own symbol table."""
    scopes = 0
    for file in sorted([*module._LIBRARY.rglob("*.py"), *Path("experiments").rglob("*.py")])[::4]:
        text, tables = file.read_text(), {}
        waiting = [symtable.symtable(text, str(file), "exec")]
        while waiting:
            table = waiting.pop()
            own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_local()} - {".0", "__class__"}
            tables.setdefault((table.get_lineno(), table.get_name()), []).append(own)
            waiting += table.get_children()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, module._SCOPES):
                name = getattr(node, "name", _COMPILED.get(type(node)))
                assert set(module._bound(node, "package")) in tables[node.lineno, name], (file, node.lineno)
                scopes += 1
    assert scopes > 1_000


_COMPILED = {
    ast.Lambda: "lambda", ast.ListComp: "listcomp", ast.SetComp: "setcomp", ast.DictComp: "dictcomp",
    ast.GeneratorExp: "genexpr",
}  # fmt: skip


@pytest.mark.parametrize("statement", ["from .shared import measure", "from experiments.toys.shared import measure"])
def test_relative_imports_count_like_absolute_ones(figure: Path, statement: str) -> None:
    edit(figure, "from experiments.toys.shared import measure", statement)
    assert "experiments.toys.shared.measure" in found_in(figure)


def test_modules_that_are_imported_from_their_package_count(figure: Path) -> None:
    text = figure.read_text().replace("from experiments.toys.shared import measure", "from . import shared")
    figure.write_text(text.replace("+ measure(config)", "+ shared.measure(config)"))
    assert "experiments.toys.shared.measure" in found_in(figure)
    figure.with_name("__init__.py").write_text("print()")
    assert "experiments.toys.<module>" in found_in(figure)


@pytest.mark.parametrize("text", ['"experiments.toys.shared:unrelated"', 'f"{__name__}:check_ranks"'])
def test_functions_that_ranks_import_by_name_count(figure: Path, text: str) -> None:
    code = figure.read_text().replace("LIMIT, hash_index", f"hash_index, wb.run_ranks({text}, config, 2)")
    figure.write_text(f"{code}\n\ndef check_ranks(config):\n    return LIMIT\n")
    found = found_in(figure)
    assert "workbench.distributed.rank_child.main" in found, "it runs in the processes of ranks"
    if "shared" in text:
        assert {"experiments.toys.shared.unrelated", "workbench.datasets.load.load_dataset"} <= found
    else:
        assert {"experiments.toys.fig1.check_ranks", "experiments.toys.fig1.LIMIT"} <= found


def test_scripts_that_run_in_processes_of_their_own_count() -> None:
    found = {name.rpartition(".")[0] for name in load_experiment("betty/fig11").code().definitions}
    assert {"workbench.partition.isolated.worker", "workbench.partition.isolated.metis_program"} <= found


@pytest.mark.parametrize("name", SWEEPS)
def test_no_figure_depends_on_how_rows_are_kept_or_shown(name: str) -> None:
    found = {part.removeprefix("workbench.") for part in load_experiment(name).code().definitions}
    assert not {part.split(".")[0] for part in found} & {"plots", "tracking", "report", "widgets", "cli"}
    assert "experiment.config.PointConfig" in found


@pytest.mark.parametrize("name", SWEEPS)
def test_data_sets_count_by_their_fingerprint_or_by_their_code(name: str) -> None:
    """A point's fingerprint is that of `config.dataset`; other data sets are read through `load_dataset` itself."""
    experiment = load_experiment(name)
    fields = experiment.module.Config.model_fields
    assert [field for field, about in fields.items() if "DataConfig" in str(about.annotation)] in ([], ["dataset"])


DATA = tuple(f"workbench.{name}." for name in ("datasets", "standin", "paths", "files", "core.array_store"))
"""Packages that load the point's data set; of these, the fingerprint counts."""

LOADED = """
import json, sys
from workbench.experiment.figure_loader import load_experiment

experiment = load_experiment("betty/table6")
task = experiment.tasks(size="smoke", overrides={"dataset": {"name": "synthetic-products", "scale": 0.001}})[0]
before = set(sys.modules)
called = set()


def note(frame, event, argument):
    if event == "call":
        name = frame.f_globals.get("__name__", "")
        if name.startswith(("workbench.", "experiments.")):
            called.add(f"{name}.{frame.f_code.co_qualname.partition('.')[0]}")


sys.setprofile(note)
list(experiment.module.run(task.config))
sys.setprofile(None)
print(json.dumps(sorted(called)))
"""


@pytest.mark.slow
def test_all_that_a_run_calls_is_in_the_closure() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=300)
    called = {name for name in json.loads(done.stdout.splitlines()[-1]) if "<" not in name}
    found = set(load_experiment("betty/table6").code().definitions)
    called = {name for name in called if not name.endswith("__create_fn__")}  # of dataclasses
    assert {"workbench.sampling.neighbor.NeighborSampler", "workbench.training.accumulate.accumulate"} <= called
    assert {name for name in called - found if not name.startswith(DATA)} == set()
