"""Cooperative minibatching: ranks sample and train one global batch together, each the rows that it owns."""
