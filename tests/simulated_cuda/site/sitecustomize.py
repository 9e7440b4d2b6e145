"""Gives a Python program, and those that it starts, a simulated GPU: `python -m tests.simulated_cuda` sets it up."""

import atexit
import os
import sys

if os.environ.get("WORKBENCH_SIMULATED_CUDA") == "1":
    sys.path.append(os.environ["WORKBENCH_SIMULATED_CUDA_ROOT"])
    from tests.simulated_cuda import simulated_cuda

    _block = simulated_cuda()
    _block.__enter__()
    atexit.register(_block.__exit__, None, None, None)
