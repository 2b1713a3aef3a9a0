"""The ranks of a command: how it finds the others, and which of them talks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, get_args

import click

from ..device import Comm, Context
from ..device.comm import Transport
from ..errors import Error
from .arguments import together

expert_parallel_option = click.option(
    "--expert-parallel",
    type=int,
    default=1,
    show_default=True,
    help="So many neighbouring ranks share the experts out, each holding as many; it must divide both numbers.",
)

#: `transport` and `peer_timeout`, those of a `Comm`.
joining_options = together(
    click.option(
        "--transport",
        type=click.Choice([name for name in get_args(Transport) if name != "threads"]),
        default="auto",
        show_default=True,
        help="How ranks reach each other; auto: mpi if mpiexec started this, nccl if RANK and WORLD_SIZE are set and "
        "the device is a GPU, else there is one rank.",
    ),
    click.option(
        "--peer-timeout",
        type=click.FloatRange(0, 1e9),
        default=600,
        show_default=True,
        help="Seconds without an answer after which a rank counts as lost; 0 waits for ever.",
    ),
)

#: These, `log_ranks` and `expert_parallel`.
rank_options = together(
    joining_options,
    click.option(
        "--log-ranks", is_flag=True, help="Other ranks than the first tell their steps, too, on standard error."
    ),
    expert_parallel_option,
)


#: Seconds for which a rank that cannot begin waits for the others, to tell them.
_PATIENCE = 60


@contextlib.contextmanager
def before_joining() -> Iterator[None]:
    """An exception from in here, before this rank has its communicator, is told to the ranks that mpiexec started with
    it: MPI would let them wait for it for ever."""
    try:
        yield
    except click.exceptions.Exit:  # --help
        raise
    except Exception as error:
        with contextlib.suppress(Error), Context("cpu", threads=1) as ctx:
            reason = error.format_message() if isinstance(error, click.ClickException) else str(error)
            Comm(ctx, "auto", timeout=_PATIENCE).abort(reason)
        raise


class RankCommand(click.Command):
    """A command of several ranks: they are told when one of them has wrong arguments."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with before_joining():
            return super().make_context(*args, **kwargs)


def local_device(device: str) -> str:
    """A GPU without a number is the one that a launcher such as torchrun has for this rank."""
    local = os.environ.get("LOCAL_RANK", "")
    return f"cuda:{local}" if device == "cuda" and local.isdigit() else device
