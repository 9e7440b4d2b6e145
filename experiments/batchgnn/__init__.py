"""Figures of BatchGNN (Hoang et al.)."""
