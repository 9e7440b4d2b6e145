"""Figures that no paper has: ideas of several of them combined, and compared with what came after them."""
