"""Reads the code that a figure of each paper reaches, seconds of work that forked kernels then share."""

from workbench.experiment.figure_loader import experiment_names, load_experiment

for name in {name.partition("/")[0]: name for name in experiment_names()}.values():
    load_experiment(name).sweep.code()
