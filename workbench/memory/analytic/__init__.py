"""The analytic memory model: layers, autograd and a training step simulated on tensors without values."""
