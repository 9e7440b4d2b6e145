"""Runs fuzz cases in a separate process: it reads lines `category seed` and writes a line of JSON for each."""

import json
import os
import resource
import sys
import warnings

MAX_BYTES = 12 << 30


def main() -> None:
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # only results may go to the original stdout
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")

    from tests.fuzz.cases import run_case

    for line in sys.stdin:
        category, seed = line.split()
        results.write(json.dumps(run_case(category, int(seed))) + "\n")


if __name__ == "__main__":
    main()
