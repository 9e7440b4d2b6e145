"""Memory of modules without an analytic model, learned from traced training steps on small sub-batches.

Dry runs record what a step allocates and frees; a regression over the sizes of blocks predicts other batches, with an
error that is stated.
"""
