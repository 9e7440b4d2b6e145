"""Fused draws give the picks of the torch form, bit for bit.

On a machine without a GPU, Triton's interpreter runs them on CPU tensors:
`pip install --no-deps --target FOLDER triton`, then
`TRITON_INTERPRET=1 PYTHONPATH=FOLDER python -m pytest tests/kernels/test_triton_draws.py`.
"""

import os

import pytest
import torch

from workbench.sampling.uniform import picks_torch

pytest.importorskip("triton", reason="Triton is not installed; CUDA builds of torch bring it")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("Triton's kernels need a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from workbench.kernels import triton_draws  # noqa: E402

DEVICE = "cpu" if INTERPRETED else "cuda"


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5, 8, 25, 64])
def test_fused_picks_equal_those_of_torch(count: int, replace: bool) -> None:
    """Of rows with many repetitions or few, for keys and nodes of all sizes."""
    generator = torch.Generator().manual_seed(count)
    nodes = torch.randint(2**62, (77,), generator=generator) >> torch.arange(77) % 60
    for longest, key in ((2, 5), (3 * count, -(2**63)), (2**31 - 70, 2**63 - 1), (count + 9, 1)):
        degrees = (count + 1 + torch.randint(longest, (77,), generator=generator)).to(DEVICE)
        for some in (slice(None), slice(3), slice(0)):
            arguments = key, nodes.to(DEVICE)[some], degrees[some], count
            ours, theirs = (f(*arguments, replace=replace) for f in (triton_draws.picks, picks_torch))
            assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)
