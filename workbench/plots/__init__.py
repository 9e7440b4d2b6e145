"""Plotly figures of tables and records: pure functions that draw and neither measure nor store anything.

One module per kind of figure; names, colours and layout are shared, so that a method looks the same everywhere.
"""
