"""What every reader raises when a file is not what it should be."""

from __future__ import annotations

from os import PathLike


def printable(text: str) -> str:
    """Text from a file, fit for a terminal: what is no printable character, such as the start of an escape sequence
    that clears the screen or renames the window, is spelled as in Python."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


class FormatError(ValueError):
    """A file is corrupt, truncated, or of another kind. The message names the file and what is wrong with it."""

    def __init__(self, path: str | PathLike[str], problem: str):
        super().__init__(f"{path}: {printable(problem)}")
        self.path = path
        self.problem = problem
