"""Kernels that several packages share: hash, gather, relabel, segment reduce, transpose, and the thread pool.

Each kernel has two implementations: one compiled with numba for the CPU, and one in plain torch for any device. The
torch implementation is the CUDA path and the oracle in tests of the numba one.
"""
