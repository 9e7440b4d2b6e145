"""Plotly figures of tables and records: pure functions that draw and neither measure nor store anything."""
