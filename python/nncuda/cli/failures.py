"""Errors as one sentence and an exit code, instead of a traceback."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from ..errors import Error, OutOfRangeError

WRONG_FILE = 3
NO_DEVICE = 4
INTERRUPTED = 130


class FailureGroup(click.Group):
    """A group of commands that turns the errors of this package and of the system into messages.

    A defect of the program itself is none of these and keeps its traceback.
    """

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Reads the arguments, and writes the help where they ask for it."""
        with _quiet_without_reader():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _quiet_without_reader():
                return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (Error, MemoryError) as error:
            # An id that was refused before any call is a wrong value, and has no name of a status.
            refused = isinstance(error, OutOfRangeError) and not error.name
            _fail(error, WRONG_FILE if refused else NO_DEVICE)
        except ValueError as error:  # before OSError: a FormatError may be both, and says more
            _fail(error, WRONG_FILE)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            _fail(f"{where}{error.strerror or error}", WRONG_FILE)


@contextlib.contextmanager
def _quiet_without_reader() -> Iterator[None]:
    """Ends the program where the reader of its output went away (`nncuda inspect | head`)."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left of the output would be written once more when the interpreter ends, and fail there.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.close()
        sys.exit(0)


def _fail(error: object, code: int) -> None:
    click.echo(f"Error: {error}", err=True)
    sys.exit(code)
