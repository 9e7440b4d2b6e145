"""The report: one HTML page that works offline, and its short form for the terminal."""
