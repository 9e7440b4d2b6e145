"""Replacement policies of caches: one state machine each, which both simulates traces and serves rows."""
