"""Options that several commands have, each defined once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

device_option = click.option(
    "--device", default="cpu", show_default=True, help="cpu, cuda, cuda:INDEX, or auto: a GPU if there is one."
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(1, 256),
    help="Number of worker threads; it does not affect results.  [default: all cores]",
)

config_file_option = click.option(
    "--config", "config_path", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A TOML file."
)

texts_argument = click.argument("text", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
include_option = click.option(
    "--include", multiple=True, default=["*"], show_default=True, help="Patterns of file names to take from folders."
)


def together(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order in which the help shows them."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


#: `device` and `threads`, those of a `Context`.
device_options = together(device_option, threads_option)


def out_option(what: str) -> Callable[[Command], Command]:
    """`out`, a file that is written."""
    file = click.Path(dir_okay=False, path_type=Path)
    return click.option("--out", required=True, type=file, help=f"The {what} to write.")


def force_option(what: str) -> Callable[[Command], Command]:
    """`force`, without which no file is replaced."""
    return click.option("--force", is_flag=True, help=f"Replace {what}.")
