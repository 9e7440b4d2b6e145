"""Whether micro-batches of a model compute the same as the whole batch: tried on a small batch, and warned of.

A finding names the layer whose output depends on the batch's other nodes, or says that the trial could not decide.
"""
