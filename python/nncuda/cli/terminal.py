"""How the commands write to the terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from ..formats.errors import printable


class CommandConsole(Console):
    """Tells a reader that went away as any other writing does, for :class:`FailureGroup`; rich's own ends the program
    with exit code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """A console for results. Where the output is not a terminal, lines are not cut to one's width."""
    found = CommandConsole()
    return found if found.is_terminal else CommandConsole(width=120)


def tell(text: str | Text) -> None:
    """Prints a line of results as it is: not cut to the terminal's width, and numbers in it without colours."""
    console().print(text, soft_wrap=True, highlight=False)


def spoken(text: str) -> str:
    """Text that a model wrote, as it goes to the standard output: to a terminal without escape sequences, which would
    be orders to it; to a file or pipe as it is."""
    if not sys.stdout.isatty():
        return text
    return "".join(sign if sign in "\n\t" else printable(sign) for sign in text)


def bytes_text(count: int) -> str:
    """A number of bytes for people: 1536 is "1.5 KiB"."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def count_text(count: int) -> str:
    """A number for people: 15345920 is "15.35 M"."""
    for limit, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= limit:
            return f"{count / limit:.2f} {unit}"
    return str(count)
