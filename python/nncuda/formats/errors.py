"""What every reader raises when a file is not what it should be."""

from __future__ import annotations

from os import PathLike


class FormatError(ValueError):
    """A file is corrupt, truncated, or of another kind. The message names the file and what is wrong with it."""

    def __init__(self, path: str | PathLike[str], problem: str):
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem
