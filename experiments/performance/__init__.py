"""Benchmarks of the engine against other libraries, both sides interleaved in one process."""
