"""Plotly figures of tables and records: pure functions that draw, measure nothing and keep nothing."""
