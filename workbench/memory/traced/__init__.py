"""Memory of modules without an analytic model, learned from traced training steps on small sub-batches."""
