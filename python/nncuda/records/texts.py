"""Texts become token shards, on several processes, in the order of the files: each file between begin and end ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..formats import read_text, write_shard
from ..tokenizer.tokenizer import TextTokenizer, text_blocks
from .processes import Source, encoding
from .records import RecordEncoder

#: Characters of texts, about, that a process encodes at a time.
_PIECE = 1 << 20


class Block(NamedTuple):
    """A part of a text, and whether the text begins and ends with it."""

    text: str
    begins: bool
    ends: bool


def encode_text_files(
    parts: Sequence[tuple[Path, Sequence[Path]]],
    source: Source,
    processes: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> list[int]:
    """Writes shards, each from its files; returns the tokens of each. Files that are not text are passed over.

    `source` has the arguments of a `RecordEncoder`; `progress` is told bytes as they are done.
    """
    encoder = RecordEncoder(*source)
    files = [path for _, some in parts for path in some]
    with encoding(encoder, source, encoded_blocks, files, processes) as encode:

        def ids_of(some: Sequence[Path]) -> Iterator[np.ndarray]:
            for blocks, found in encode(_pieces(some, encoder.tokenizer, progress)):
                yield from found
                progress(sum(len(block.text.encode()) for block in blocks))

        return [write_shard(out, ids_of(some), encoder.vocab_size, encoder.digest) for out, some in parts]


def encoded_blocks(encoder: RecordEncoder, blocks: list[Block]) -> list[np.ndarray]:
    """The ids of each."""
    return [encoder.text_part(*block) for block in blocks]


def _pieces(
    files: Iterable[Path], tokenizer: TextTokenizer, passed_over: Callable[[int], None]
) -> Iterator[list[Block]]:
    """The texts of files, small ones together and large ones in parts."""
    blocks: list[Block] = []
    size = 0
    for path in files:
        if (text := read_text(path)) is None:
            passed_over(path.stat().st_size)
            continue
        at = 0
        for part in text_blocks(tokenizer, text):
            at += len(part)
            blocks.append(Block(part, at == len(part), at == len(text)))
            size += len(part)
            if size >= _PIECE:
                yield blocks
                blocks, size = [], 0
    if blocks:
        yield blocks
