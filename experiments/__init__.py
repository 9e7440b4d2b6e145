"""One package per paper, and the performance benchmarks."""
