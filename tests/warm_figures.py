"""Work of seconds that forked kernels then share: the code that figures reach is read, and that of kernels loaded."""

import torch

import workbench as wb
from workbench.experiment.figure_loader import experiment_names, load_experiment

for name in {name.partition("/")[0]: name for name in experiment_names()}.values():
    load_experiment(name).sweep.code()

# Machine code is loaded by its first call. No backward pass here: autograd does not survive the fork.
mb = wb.NeighborSampler([2, 2]).sample(wb.Graph.from_edges(torch.arange(8), torch.arange(8)), torch.arange(4))
mb.split(wb.partition_batch(mb, 2, method="range"))
