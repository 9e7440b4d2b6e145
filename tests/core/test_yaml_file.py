"""YAML files: every text that is no record is an error that names the file."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from workbench.core.yaml_file import ConfigError, read_yaml


class Part(BaseModel):
    """A nested record."""

    x: int = 0
    y: int = 0


class Record(BaseModel):
    """A record."""

    name: str = ""
    parts: dict[str, Part] = {}


def read(folder: Path, content: bytes) -> Record:
    (folder / "a.yaml").write_bytes(content)
    return read_yaml(folder / "a.yaml", Record)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name: [\n", "invalid YAML: "),
        (b"name: caf\xe9\n", "invalid YAML: 'utf-8' codec can't decode byte 0xe9 in position 9"),
        (b"name: 2020-13-01\n", r"invalid YAML: month must be in 1\.\.12"),
        (b"name: !!int a\n", "invalid YAML: invalid literal for int"),
        (b"name: 3\n", "name: is 3 and should be a valid string"),
        (b"", "should be a valid dictionary"),
    ],
)
def test_errors_name_the_file(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"a\.yaml: {message}"):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: a\nname: b\n", 2),
        ("name: a\n'name': a\n", 2),
        ("parts:\n  p: {x: 1}\n  q: {x: 1, y: 2, x: 1}\n", 3),
        ("parts:\n  p: &p {x: 1}\n  q:\n    <<: *p\n    y: 2\n    y: 3\n", 6),
    ],
)
def test_a_repeated_key_is_refused(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(ConfigError, match=rf"a\.yaml: invalid YAML: the key '\w+' is repeated.* line {line},"):
        read(tmp_path, text.encode())


def test_merged_keys_may_be_repeated(tmp_path: Path) -> None:
    """Also where a mapping is merged before it is read itself, as a deeper one is."""
    text = """
parts:
  p: &p {x: 1, y: 2}
  q: &q {<<: *p, x: 3}
  r: {<<: *q, y: 4}
  s: {<<: [*p, *q], x: 5}
"""
    parts = read(tmp_path, text.encode()).parts
    assert {name: (part.x, part.y) for name, part in parts.items()} == {
        "p": (1, 2), "q": (3, 2), "r": (3, 4), "s": (5, 2),
    }  # fmt: skip
    deep = "parts: {a: {b: &b {<<: {x: 1}, x: 2}}, c: {<<: *b, x: 3}}\n"
    assert read(tmp_path, deep.encode()).parts["c"].x == 3
