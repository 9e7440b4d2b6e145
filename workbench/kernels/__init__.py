"""Operations that several rooms share: hash, gather, relabel, segment reduce, transpose, thread pool.

Each kernel exists twice: compiled with numba for the CPU, and in plain torch for any device. The torch form is what
runs on CUDA and what the numba form is tested against.
"""
