"""Figures of MariusGNN (Waleffe et al.)."""
