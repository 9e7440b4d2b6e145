"""Estimate the device memory of a training step before it runs, and plan micro-batches that fit."""
