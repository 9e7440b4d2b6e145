"""Measurements of `make gpu-check` on a machine with a GPU, and the program that runs them."""
