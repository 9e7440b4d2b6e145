"""Every Python example of the README runs as a script of its own."""

import re
from pathlib import Path
from types import CodeType

import pytest

README = Path(__file__).parent.parent / "README.md"
OPTIONAL = ["dgl", "torch_geometric"]


def examples() -> dict[str, tuple[str, CodeType]]:
    """By line: source and code of each example; errors show the README's own lines."""
    text = README.read_text()
    found = {}
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, match.start(1))
        found[f"line{line + 1}"] = match[1], compile("\n" * line + match[1], str(README), "exec")
    return found


def test_there_are_examples():
    assert len(examples()) >= 2


@pytest.mark.parametrize(("source", "code"), examples().values(), ids=examples())
def test_example_runs(source, code):
    for library in OPTIONAL:
        if re.search(rf"^\s*(import|from) {library}\b", source, re.MULTILINE):
            pytest.importorskip(library)
    exec(code, {"__name__": "__main__"})
