"""The option for the number of threads, of every command that computes."""

from __future__ import annotations

import click

threads_option = click.option(
    "--threads",
    type=click.IntRange(1, 256),
    help="Number of worker threads; it does not affect results.  [default: all cores]",
)
