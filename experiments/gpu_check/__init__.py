"""What `make gpu-check` measures on a machine with a GPU, and the program that runs it."""
