"""`nncuda doctor`: what this installation runs on, and what is wrong with it."""

from __future__ import annotations

import sys

import click

from .. import doctor as examination


@click.command()
def doctor() -> None:
    """Show engine, instruction set, threads, GPU and versions; say what is wrong and how to fix it."""
    sys.exit(examination.main())
