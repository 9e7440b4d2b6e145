"""Sections from recorded tables and from the runs in a store, on the toy experiments."""

from pathlib import Path

from workbench.experiment.figure_loader import experiment_names, load_experiment
from workbench.experiment.recorded import record
from workbench.report.collect import collect, sections_of_recorded
from workbench.tracking.file_store import FileStore


def test_a_recorded_section_says_whether_its_code_has_changed(toys: Path, store: FileStore) -> None:
    figure = load_experiment("toys/fig1")
    record(figure.runs(size="smoke", store=store))
    (section,) = sections_of_recorded(figure)
    assert section.recorded and "unchanged" in section.provenance["code"]
    code = toys / "fig1.py"
    code.write_text(code.read_text().replace("config.number**2", "config.number**3"))
    (section,) = sections_of_recorded(load_experiment("toys/fig1"))
    assert "has changed" in section.provenance["code"] and "fig1.run" in section.provenance["code"]


def test_every_figure_and_size_has_a_section(toys: Path, store: FileStore) -> None:
    figures = [load_experiment(name) for name in experiment_names()]
    figures[0].run(size="smoke", store=store)
    sections = [(section.name, section.size, section.status) for section in collect(figures, store)]
    assert sections == [
        ("toys/fig1", "smoke", "held"),
        ("toys/fig1", "real", "not run"),
        ("toys/fig1", "paper", "not run"),
        ("toys/fig2", "smoke", "held"),
        ("toys/fig2", "real", "not run"),
        ("toys/fig2", "paper", "not run"),
    ]


def test_a_section_is_written_although_its_figure_cannot_be_drawn(toys: Path, store: FileStore) -> None:
    figure = load_experiment("toys/fig1")
    figure.run(size="smoke", store=store)
    code = toys / "fig1.py"
    code.write_text(code.read_text().replace("import plotly.graph_objects as go", "raise ZeroDivisionError('oops')"))
    (section, *_) = collect([load_experiment("toys/fig1")], store)
    assert section.figure is None and section.problems == ("drawing failed: ZeroDivisionError: oops",)
    assert section.status == "failed"
