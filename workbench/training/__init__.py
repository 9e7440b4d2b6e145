"""Training: gradient accumulation over micro-batches, steps, OOM recovery, epochs, evaluation, profiles."""
