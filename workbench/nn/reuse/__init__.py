"""Allocation-efficient layers of BatchGNN: they write into buffers that are kept from step to step.

A `Workspace` owns the buffers and refuses a forward pass that would overwrite what an earlier backward pass needs.
"""
