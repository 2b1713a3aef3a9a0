"""`nncuda verify`: the golden tests on this machine."""

from __future__ import annotations

import sys

import click


@click.command()
def verify() -> None:
    """Run the golden tests of every kernel on this machine."""
    from .. import golden

    sys.exit(golden.main())
