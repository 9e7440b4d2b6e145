"""Benchmarks of the library itself: its speed beside DGL's, its memory estimates and plans beside measurements."""
