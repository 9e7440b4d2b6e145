"""The report: a self-contained HTML page, a summary on the terminal, cells of notebooks and generated documents.

All of them show the same sections: a figure's verdict at one size, its findings, its table and where that came from.
"""
