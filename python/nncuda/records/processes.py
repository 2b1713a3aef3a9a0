"""Encoding on several processes, in the order of what is to be encoded.

Each process has a tokenizer and a chat template of its own, and at most one piece of work at a time, so that memory is
bounded and an answer is never waited for by who should read it. They end when this process does, however that ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from .records import RecordEncoder

Piece = TypeVar("Piece")
Made = TypeVar("Made")

#: The arguments of a `RecordEncoder`.
Source = tuple[Path, Path | None]

#: What is made of a piece; a function of a module, since other processes find it by its name.
Work = Callable[[RecordEncoder, Piece], Made]

#: Makes that of many pieces, each with it, in their order.
Encode = Callable[[Iterable[Piece]], Iterator[tuple[Piece, Made]]]

#: Smaller inputs are encoded in this process: another one takes longer to start.
SMALL = 1 << 21


def encoding_here(encoder: RecordEncoder, work: Work[Piece, Made]) -> Encode[Piece, Made]:
    """Encodes in this process."""
    return lambda pieces: ((piece, work(encoder, piece)) for piece in pieces)


@contextlib.contextmanager
def encoding(
    encoder: RecordEncoder, source: Source, work: Work[Piece, Made], files: Iterable[Path], count: int
) -> Iterator[Encode[Piece, Made]]:
    """Encodes on so many processes, or here where the files are small; `source` made the encoder."""
    if count == 1 or sum(path.stat().st_size for path in files) <= SMALL:
        yield encoding_here(encoder, work)
        return
    context = multiprocessing.get_context(
        "spawn"
    )  # a copy of this process would have its threads' locks, not the threads
    workers, started = [], []
    try:
        for _ in range(count):
            here, there = context.Pipe()
            workers.append(here)
            started.append(context.Process(target=_serve, args=(there, source, work), daemon=True))
            started[-1].start()
            there.close()
        yield lambda pieces: _shared_out(workers, pieces)
    finally:
        for worker in workers:
            worker.close()
        for process in started:
            process.terminate()
            process.join()


def _shared_out(workers: Sequence[Connection], pieces: Iterable[Piece]) -> Iterator[tuple[Piece, Any]]:
    """What the workers make of pieces, which go to one after the other, in the order of the pieces."""
    under_way: dict[int, Piece] = {}

    def answer(number: int) -> tuple[Piece, Any]:
        try:
            return under_way.pop(number), workers[number % len(workers)].recv()
        except EOFError:
            raise RuntimeError("a process that encodes has ended") from None

    number = -1
    for number, piece in enumerate(pieces):
        if number >= len(workers):
            yield answer(number - len(workers))
        under_way[number] = piece
        workers[number % len(workers)].send(piece)
    for left in range(max(0, number + 1 - len(workers)), number + 1):
        yield answer(left)


def _serve(asked: Connection, source: Source, work: Work[Any, Any]) -> None:
    """The program of a process: pieces, until who sends them closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for who started this
    encoder = RecordEncoder(*source)
    with contextlib.suppress(EOFError, OSError):
        while True:
            asked.send(work(encoder, asked.recv()))
