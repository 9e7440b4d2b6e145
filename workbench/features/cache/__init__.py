"""Replacement policies of caches: one state machine each, which both simulates traces and serves rows.

LRU, FIFO, CLOCK, SIEVE, S3-FIFO, static rows and Belady's rule run on flat arrays in compiled code; misses at every
capacity of LRU follow from stack distances in one pass.
"""
