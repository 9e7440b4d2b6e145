"""Options whose value is one of some names."""

from collections.abc import Sequence
from typing import Any

import click


class NameChoice(click.Choice):
    """One of some names; the error about another one asks about the name that was probably meant.

    Args:
        names: known names.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """The message of a usage error.

        Args:
            value: the name that was given.
            ctx: of the command.
        """
        from workbench.core.suggestions import did_you_mean

        meant = did_you_mean(value, self.choices)
        return f"{super().get_invalid_choice_message(value, ctx)} {meant[:1].upper()}{meant[1:]}".rstrip()
