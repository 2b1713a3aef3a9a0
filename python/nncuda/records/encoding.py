"""Files of records become token shards, on several processes, in the order of the files."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..formats import FormatError
from ..formats.json_values import numbered_lines
from ..formats.shards import documents_into
from .processes import Encode, Source, encoding
from .records import RecordEncoder

#: Bytes of lines, about, that a process encodes at a time.
_PIECE = 1 << 20


class Line(NamedTuple):
    """A record, where it stands, and which shard it is for."""

    number: int
    text: bytes
    shard: int


#: Ids and what counts of each record; or, last, the number of the line that is wrong and the sentence that says why.
Encoded = list[tuple[np.ndarray, np.ndarray] | tuple[int, str]]

EncodeLines = Encode[list[Line], Encoded]


def encode_records(
    files: Sequence[Path],
    outs: Sequence[Path],
    source: Source,
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
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(documents_into(out, encoder.vocab_size, encoder.digest)) for out in outs]
        encode = stack.enter_context(encoding(encoder, source, encoded_lines, files, processes))
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
    path: Path, encode: EncodeLines, held_out_share: float = 0.0
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


def encoded_lines(encoder: RecordEncoder, lines: list[Line]) -> Encoded:
    """Records up to the first that is none."""
    found: Encoded = []
    for line in lines:
        try:
            found.append(encoder.encode(line.text))
        except (ValueError, FormatError) as error:
            return [*found, (line.number, str(error))]
    return found
