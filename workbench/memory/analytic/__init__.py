"""The analytic model: layers of `workbench.nn`, autograd and a training step on tensors without values."""
