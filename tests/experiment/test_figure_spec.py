"""YAML files: what is refused, and with which words."""

import pytest

from tests.toy_experiments import SPEC
from workbench.core.yaml_file import ConfigError
from workbench.experiment.figure_spec import read_spec


@pytest.fixture
def read(tmp_path):
    def read_text(text):
        file = tmp_path / "fig1.yaml"
        file.write_text(text)
        return read_spec(file)

    return read_text


def test_a_whole_file(read):
    spec = read(SPEC)
    assert spec.title == "Squares" and list(spec.sizes) == ["smoke", "real", "paper"]
    assert spec.sizes["smoke"].grids == [{"number": [1, 2, 3]}]
    assert len(spec.sizes["real"].grids) == 2 and spec.sizes["real"].repetitions == 2
    assert spec.reported == [{"number": 2, "square": 4, "source": "Section 1"}]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ("claim:", "clam:"),
            ["fig1.yaml", "clam: unknown key; allowed: title, source, claim, fixed", "claim: is missing"],
        ),
        (("repetitions: 2", "repetitions: two"), ["sizes.real.repetitions: is 'two' and should be a valid integer"]),
        (("repetitions: 2", "repetitions: 0"), ["sizes.real.repetitions: is 0 and should be greater than 0"]),
        (("seeds: [0]", "seed: [0]"), ["sizes.smoke.seed: unknown key; allowed: device, fixed, sweep, seeds"]),
        (("  real:", "  huge:"), ["sizes.huge", "'smoke', 'real' or 'paper'"]),
        (("device: cuda", "device: tpu"), ["sizes.paper.device: is 'tpu'", "'cpu' or 'cuda'"]),
        (("square: 4, source: Section 1", "square: 4"), ["has no source"]),
        (("{number: [1, 2, 3]}", "{number: 1}"), ["sizes.smoke.sweep", "should be a valid list"]),
        (("fixed: {offset: 0}", "fixed: {offset: 0"), ["invalid YAML"]),
    ],
)
def test_what_is_refused(read, change, words):
    assert change[0] in SPEC
    with pytest.raises(ConfigError) as raised:
        read(SPEC.replace(*change))
    for word in words:
        assert word in str(raised.value)


def test_an_empty_file(read):
    with pytest.raises(ConfigError, match="valid dictionary"):
        read("")
