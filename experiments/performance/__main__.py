"""Run the benchmarks: `python -m experiments.performance [--quick] [NAME …]`."""

import argparse
import csv
import importlib
import io
import statistics
from pathlib import Path
from typing import Any

from workbench import files

BENCHMARKS = ("sampling", "splitting", "aggregation", "estimate", "traced", "plan", "boundaries")


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _table(rows: list[dict[str, Any]]) -> str:
    cells = [list(rows[0]), *([_text(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in cells)


def _ratios(rows: list[dict[str, Any]]) -> str:
    ratios = [row["ratio_best"] for row in rows]
    median = statistics.median(ratios)
    return f"ratio of best times: median {median:.2f}, from {min(ratios):.2f} to {max(ratios):.2f}"


def _save(rows: list[dict[str, Any]], path: Path) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    files.write_file(path, text.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="experiments.performance", description="Compare with peers, and estimates with measurements."
    )
    parser.add_argument(
        "names", nargs="*", choices=[[], *BENCHMARKS], default=[], help="benchmarks to run (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write one CSV file per benchmark")
    options = parser.parse_args()
    for name in options.names or BENCHMARKS:
        module = importlib.import_module(f"experiments.performance.{name}")
        rows = module.run(quick=options.quick)
        print(f"\n{name}\n{_table(rows)}\n{getattr(module, 'summary', _ratios)(rows)}")
        if options.save:
            options.save.mkdir(parents=True, exist_ok=True)
            _save(rows, options.save / f"{name}.csv")


if __name__ == "__main__":
    main()
