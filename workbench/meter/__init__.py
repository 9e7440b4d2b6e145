"""Measurement and limits of memory and time, with one definition for CPU and CUDA."""
