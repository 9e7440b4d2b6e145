"""Loads all figures and reads the code that each of them reaches, seconds of work that forked kernels then share."""

from workbench.experiment.figure_loader import experiment_names, load_experiment

for name in experiment_names():
    load_experiment(name).code()
