"""Figures of Cooperative Minibatching (Balin et al.)."""
