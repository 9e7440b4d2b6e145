"""Plants faults in a copy of the library, one at a time, and reports which of them the tests catch.

    python -m tests.mutations [--only WORD …] [--tree CHECKOUT] [--first] [--unchecked]

For each mutation of `tests/mutations/catalog.py`, the test files that it names run first; if they pass, those of the
package that it is in. A fault is caught if a test fails. Exits with 1 if one survives.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from importlib.util import cache_from_source
from pathlib import Path

from tests.mutations.catalog import MUTATIONS
from tests.mutations.plant import Mutation, Place, places, planted

_ROOT = Path(__file__).parents[2]
_NOT_COPIED = shutil.ignore_patterns(".*", "build", "__pycache__", "mlruns", "*.egg-info", "shared")
_LONGEST_SECONDS = 1200  # a fault that hangs the tests is caught
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_NO_TESTS, _FAILURES = 5, (1, 2)  # exit codes of pytest; 2: a file can't be collected


def run_tests(copy: Path, paths: Iterable[str]) -> tuple[bool, str]:
    """Run tests of a copy; whether they passed, and the first that failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:nbval", "-p", "no:cacheprovider", "-n0"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "NUMBA_CACHE_DIR": str(copy / ".kernels"),
        "DGLBACKEND": "pytorch",
    }
    try:
        done = subprocess.run(
            [*command, "-m", "not slow", *paths],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LONGEST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False, "no end"
    if done.returncode in (0, _NO_TESTS):
        return True, ""
    if done.returncode not in _FAILURES:
        raise RuntimeError(f"pytest {' '.join(paths)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    failed = _FAILED.search(done.stdout)
    return False, failed[1] if failed else done.stdout[-200:]


def files_of(copy: Path, names: Iterable[str]) -> list[str]:
    """Paths of test files by their names, wherever they are; names that a checkout lacks are left out."""
    found = [path for name in names for path in sorted((copy / "tests").rglob(name))]
    return [str(path.relative_to(copy)) for path in found]


def try_mutation(copy: Path, mutation: Mutation, place: Place, *, first_alone: bool) -> str:
    """Plant a mutation in a copy, run the tests, and restore the file; return what came of it."""
    original, folder = place.file.read_text(encoding="utf-8"), place.file.relative_to(copy).parts[1]
    try:
        _replace(place.file, planted(mutation, place))
        passed, failed = run_tests(copy, files_of(copy, mutation.tests))
        if passed and not first_alone and (copy / "tests" / folder).is_dir():
            passed, failed = run_tests(copy, [f"tests/{folder}"])
            failed = failed and f"{failed} (of the package)"
    finally:
        _replace(place.file, original)
    return "SURVIVED" if passed else f"caught by {failed}"


def _replace(file: Path, text: str) -> None:
    """Write a module; compiled ones are told apart by seconds and size alone."""
    file.write_text(text, encoding="utf-8")
    Path(cache_from_source(file)).unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="mutations whose name or definition contains a word")
    parser.add_argument("--tree", type=Path, default=_ROOT, help="checkout to mutate a copy of (default: this one)")
    parser.add_argument("--first", action="store_true", help="run the named test files alone")
    parser.add_argument("--unchecked", action="store_true", help="trust that the tests pass without any mutation")
    options = parser.parse_args()
    words = options.only or [""]
    chosen = tuple(m for m in MUTATIONS if any(word in f"{m.name} {m.definition}" for word in words))
    results = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve() / "checkout"
        shutil.copytree(options.tree, copy, ignore=_NOT_COPIED)
        named = sorted({file for mutation in chosen for file in files_of(copy, mutation.tests)})
        passed, failed = (True, "") if options.unchecked else run_tests(copy, named)
        if not passed:
            print(f"{failed} fails without any mutation", file=sys.stderr)
            return 2
        for mutation, found in places(chosen, copy / "workbench").items():
            begin, result = time.monotonic(), "not applicable"
            if len(found) == 1:
                result = try_mutation(copy, mutation, found[0], first_alone=options.first)
            results[result.split()[0]] += 1
            print(f"{mutation.name} | {mutation.definition} | {result} | {time.monotonic() - begin:.0f} s", flush=True)
    print(", ".join(f"{count} {result}" for result, count in results.items()))
    return int(results["SURVIVED"] > 0)


if __name__ == "__main__":
    sys.exit(main())
