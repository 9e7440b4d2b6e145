"""Allocation-efficient layers of BatchGNN: they write into buffers that are kept from step to step."""
