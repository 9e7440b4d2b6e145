"""Placement of feature rows in the buffers of several devices: which rows each holds, and what reading them costs."""
