"""Every fault of the catalog can still be planted: its piece of source is there exactly once."""

from pathlib import Path

import workbench
from tests.mutations.catalog import MUTATIONS
from tests.mutations.plant import places, planted


def test_every_mutation_applies_once() -> None:
    found = places(MUTATIONS, Path(workbench.__file__).parent)
    assert {mutation.name: len(at) for mutation, at in found.items() if len(at) != 1} == {}
    for mutation, [place] in found.items():
        assert planted(mutation, place) != place.file.read_text(encoding="utf-8")


def test_forty_mutations_have_tests_of_their_own() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == 40
    names = {file.name for file in Path(__file__).parents[1].rglob("test_*.py")}
    for mutation in MUTATIONS:
        assert mutation.tests and all(name in names for name in mutation.tests), mutation.name
