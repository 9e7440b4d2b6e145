"""Runs cases in a process of its own: a line `category seed` in, a line of JSON out, until the input ends."""

import json
import os
import resource
import sys
import warnings

MOST_BYTES = 12 << 30


def main() -> None:
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing else is to write among the results
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")

    from tests.fuzz.cases import run_case

    for line in sys.stdin:
        category, seed = line.split()
        results.write(json.dumps(run_case(category, int(seed))) + "\n")


if __name__ == "__main__":
    main()
