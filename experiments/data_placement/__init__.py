"""Figures of Rethinking Graph Data Placement (Song and Jiang)."""
