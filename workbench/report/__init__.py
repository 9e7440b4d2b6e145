"""The report: a self-contained HTML page, a summary on the terminal, cells of notebooks and generated documents."""
