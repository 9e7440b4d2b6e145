"""The search for the smallest number of micro-batches that fit."""
