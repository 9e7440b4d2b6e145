"""Loads all figures and reads the code that their sweeps reach, seconds of work that forked kernels then share."""

from workbench.experiment.figure_loader import experiment_names, load_experiment

for name in experiment_names():
    experiment = load_experiment(name)
    if experiment.home is None:
        experiment.code()
