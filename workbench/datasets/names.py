"""Names of data sets: a single path component, so that a name cannot escape its folder."""

import re

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(name: str) -> str:
    """Validate the name of a data set.

    Args:
        name: the name.

    Returns:
        `name`.

    Raises:
        ValueError: it is not the name of a single file or folder.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid data set name: use up to 100 letters, digits, '.', '-' and '_', "
            "starting with a letter or a digit; pass folders as root="
        )
    return name
