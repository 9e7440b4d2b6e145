"""Keys of finished work: a point is run again, and a figure drawn again, only if its key has changed."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any


def point_key(code: str, config: Mapping[str, Any], fingerprint: str) -> str:
    """sha256 over all that decides a point's rows.

    Args:
        code: digest of the code that `run` reaches (`workbench.experiment.closure`).
        config: resolved configuration, JSON values.
    """
    return _sha256(code, json.dumps(config, sort_keys=True), fingerprint)


def summary_key(figure: str, digest: str, run_ids: Iterable[str]) -> str:
    """sha256 over all that decides a figure's summary in the store.

    Args:
        digest: of the code and texts that draw and check the figure.
        run_ids: runs whose rows it shows, in the grid's order.
    """
    return _sha256(figure, digest, *run_ids)


def _sha256(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
