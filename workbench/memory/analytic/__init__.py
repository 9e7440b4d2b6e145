"""The analytic memory model: layers, autograd and a training step simulated on tensors without values.

Every allocation of a kernel or layer is mirrored here; tests compare the result with the memory meter in every phase.
"""
