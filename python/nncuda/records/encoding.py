"""Files of texts and records become token shards, on several processes, in the order of the files.

Each process has a tokenizer and a chat template of its own, and at most one piece of work at a time, so that memory is
bounded and an answer is never waited for by who should read it. They end when this process does, however that ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..formats import FormatError
from ..formats.json_values import numbered_lines
from ..formats.shards import documents_into
from .records import RecordEncoder

#: Bytes of lines, about, that a process encodes at a time.
_PIECE = 1 << 20

#: Smaller inputs are encoded here: a process takes longer to start.
_SMALL = 1 << 21


class Line(NamedTuple):
    """A record, where it stands, and which shard it is for."""

    number: int
    text: bytes
    shard: int


#: Ids and what counts of each record; or, last, the number of the line that is wrong and the sentence that says why.
Encoded = list[tuple[np.ndarray, np.ndarray] | tuple[int, str]]

#: Makes that of many pieces of lines, in their order.
Encode = Callable[[Iterable[list[Line]]], Iterator[tuple[list[Line], Encoded]]]


def encode_records(
    files: Sequence[Path],
    outs: Sequence[Path],
    source: tuple[Path, Path | None],
    held_out_share: float = 0.0,
    processes: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> list[tuple[int, int, int]]:
    """Writes the records of JSONL files into the first of `outs`; with a second one, a share of them, which a hash of
    their lines chooses, into that. Returns documents, tokens and targets of each. Empty lines are passed over.

    `source` has the arguments of a `RecordEncoder`; `progress` is told bytes as they are done. FormatError, with the
    file and the line, for what is no record, and where a shard would have none; nothing is written then.
    """
    encoder = RecordEncoder(*source)
    small = sum(path.stat().st_size for path in files) <= _SMALL
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(documents_into(out, encoder.vocab_size, encoder.digest)) for out in outs]
        encode = (
            encoding_here(encoder) if small or processes == 1 else stack.enter_context(_processes(source, processes))
        )
        for path in files:
            for lines, found in records_of(path, encode, held_out_share if len(outs) > 1 else 0.0):
                for line, record in zip(lines, found, strict=True):
                    writers[line.shard].write(*record)
                progress(sum(len(line.text) for line in lines))
        for out, writer in zip(outs, writers, strict=True):
            if writer.documents == 0:
                where = ", ".join(map(str, files))
                raise FormatError(where, f"no record is for {out}: they hold {sum(w.documents for w in writers)}")
        return [(writer.documents, writer.tokens, writer.targets) for writer in writers]


def records_of(
    path: Path, encode: Encode, held_out_share: float = 0.0
) -> Iterator[tuple[list[Line], list[tuple[np.ndarray, np.ndarray]]]]:
    """The records of a file, many together, and their ids and what counts of them. FormatError for a line that holds
    none."""
    for lines, found in encode(_pieces(path, held_out_share)):
        records = []
        for ids, counted in found:
            if isinstance(counted, str):
                raise FormatError(path, f"line {ids}: {counted}")
            records.append((np.asarray(ids), counted))
        yield lines, records


def _pieces(path: Path, share: float) -> Iterator[list[Line]]:
    """The records of a file, many together."""
    lines: list[Line] = []
    size = 0
    for number, text in numbered_lines(path):
        if not text.strip():
            continue
        draw = int.from_bytes(hashlib.sha256(text.strip()).digest()[:8], "big") / 2**64
        lines.append(Line(number, text, int(draw < share)))
        size += len(text)
        if size >= _PIECE:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _encoded(encoder: RecordEncoder, lines: list[Line]) -> Encoded:
    """Records up to the first that is none."""
    found: Encoded = []
    for line in lines:
        try:
            found.append(encoder.encode(line.text))
        except (ValueError, FormatError) as error:
            return [*found, (line.number, str(error))]
    return found


def encoding_here(encoder: RecordEncoder) -> Encode:
    """Encodes in this process."""
    return lambda pieces: ((lines, _encoded(encoder, lines)) for lines in pieces)


@contextlib.contextmanager
def _processes(source: tuple[Path, Path | None], count: int) -> Iterator[Encode]:
    """The same on so many processes."""
    context = multiprocessing.get_context(
        "spawn"
    )  # a copy of this process would have its threads' locks, not the threads
    workers, started = [], []
    try:
        for _ in range(count):
            here, there = context.Pipe()
            workers.append(here)
            started.append(context.Process(target=_work, args=(there, *source), daemon=True))
            started[-1].start()
            there.close()
        yield lambda pieces: _shared_out(workers, pieces)
    finally:
        for worker in workers:
            worker.close()
        for process in started:
            process.terminate()
            process.join()


def _shared_out(workers: Sequence[Connection], pieces: Iterable[list[Line]]) -> Iterator[tuple[list[Line], Encoded]]:
    """What the workers make of pieces, which go to one after the other, in the order of the pieces."""
    under_way: dict[int, list[Line]] = {}

    def answer(number: int) -> tuple[list[Line], Encoded]:
        try:
            return under_way.pop(number), workers[number % len(workers)].recv()
        except EOFError:
            raise RuntimeError("a process that encodes has ended") from None

    number = -1
    for number, lines in enumerate(pieces):
        if number >= len(workers):
            yield answer(number - len(workers))
        under_way[number] = lines
        workers[number % len(workers)].send(lines)
    for left in range(max(0, number + 1 - len(workers)), number + 1):
        yield answer(left)


def _work(asked: Connection, path: Path, template_path: Path | None) -> None:
    """The program of a process: pieces of lines, until who sends them closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for who started this
    encoder = RecordEncoder(path, template_path)
    with contextlib.suppress(EOFError, OSError):
        while True:
            asked.send(_encoded(encoder, asked.recv()))
