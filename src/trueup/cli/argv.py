"""The arguments of the command line, before they are parsed."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from trueup.cli.errors import WrongUsage
from trueup.masking import mask


def check_text(arguments: Sequence[str]) -> None:
    """Raises WrongUsage when an argument is not UTF-8: neither PostgreSQL nor JSON could hold it."""
    for position, argument in enumerate(arguments, 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise WrongUsage(f"argument {position} is not valid UTF-8: {argument[:80]!a}") from None


def hide_secrets(argv: MutableSequence[str]) -> None:
    """Mask them in `sys.argv`, which tools that report crashes send along.

    The operating system keeps its own copy, which other users of the machine can read. That is why a password belongs into
    TRUEUP_DATABASE_URL.
    """
    argv[:] = [mask(argument) for argument in argv]
