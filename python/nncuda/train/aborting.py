"""How a rank that fails tells the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..device import Comm
from ..errors import Error, PeerError
from .divergence import DivergedError


@contextlib.contextmanager
def aborting(comm: Comm | None) -> Iterator[None]:
    """An exception from in here ends the job: the other ranks get a PeerError with its text. None is a rank alone.

    Divergence is none of these, which all ranks find, each for itself, nor is a loop of steps that is left.
    """
    try:
        yield
    except (PeerError, DivergedError, GeneratorExit):
        raise
    except BaseException as error:
        if comm is not None:
            with contextlib.suppress(Error):  # the first one is the one to tell
                named = isinstance(error, OSError) and error.filename and not isinstance(error, ValueError)
                text = f"{error.filename}: {error.strerror}" if named else str(error)  # type: ignore[attr-defined]
                comm.abort(text or type(error).__name__)
        raise


@contextlib.contextmanager
def together(comm: Comm | None) -> Iterator[None]:
    """What ranks do in here, each for itself, has succeeded on all of them where it ends, or it fails on all of them,
    and not before each has come to its end: so that none takes away what another still works on."""
    if comm is None:
        yield
        return
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    with aborting(comm):
        try:
            failed = comm.sum(int(failure is not None))
        finally:  # also where the others cannot be asked any more
            if failure is not None:
                raise failure
    if failed:
        comm.barrier()  # which fails as that rank says
