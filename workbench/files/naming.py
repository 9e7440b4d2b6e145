"""File names derived from arbitrary values."""

import hashlib
import json
from typing import Any


def digest(*parts: Any) -> str:
    """Return 16 hex digits of the sha256 of JSON values: a safe file name for any value.

    >>> digest("../x")
    '407cf666ec8fe0f8'
    """
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
