"""Token shards: the encoded text that training reads.

Layout, little-endian: a header of 64 bytes, then `count` token ids of `width` bytes each, nothing after them.

    bytes  0..7    magic "NNTOKENS"
    bytes  8..11   version, 1
    bytes 12..15   width: 2 (uint16) or 4 (uint32)
    bytes 16..23   vocab_size: every id is below it
    bytes 24..31   count
    bytes 32..63   SHA-256 of the tokenizer file that made the ids; zeros when unknown
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..token_ids import whole_numbers
from .atomic import replace_file
from .errors import FormatError, cannot_read
from .regular import open_regular

MAGIC = b"NNTOKENS"
VERSION = 1
HEADER = struct.Struct("<8sIIQQ32s")
UNKNOWN_TOKENIZER = bytes(32)

assert HEADER.size == 64


def tokenizer_digest(model: bytes) -> bytes:
    """What a shard keeps of the tokenizer that made it: the SHA-256 of its file."""
    return hashlib.sha256(model).digest()


class TokenShard:
    """A shard, opened and checked: header, version, width and length of the file.

    `read` gives tokens. The file is not mapped: a map of one that is cut short while it is in use ends the process by
    SIGBUS, where a read can say what happened. Ids are checked by `check_ids`, which reads the whole file; readers that
    take windows check those.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        try:
            with open_regular(self.path) as file:
                size = os.fstat(file.fileno()).st_size
                head = file.read(HEADER.size)
        except FormatError:
            raise
        except OSError as error:
            raise cannot_read(path, error) from error
        if head[:8] != MAGIC:
            raise FormatError(path, "is not a token shard: it does not begin with NNTOKENS")
        if len(head) < HEADER.size:
            raise FormatError(path, f"is cut off inside its header, at byte {size}")
        _, version, width, self.vocab_size, self.count, self.tokenizer = HEADER.unpack(head)
        if version != VERSION:
            raise FormatError(path, f"is a token shard of version {version}; this program reads version {VERSION}")
        if width not in (2, 4):
            raise FormatError(path, f"has ids of {width} bytes; they must have 2 or 4")
        if not 1 <= self.vocab_size <= 2 ** (8 * width):
            raise FormatError(path, f"has a vocabulary of {self.vocab_size}, which ids of {width} bytes cannot hold")
        if size != HEADER.size + self.count * width:
            raise FormatError(
                path, f"is {size} bytes long, but its {self.count} tokens take {HEADER.size + self.count * width}"
            )
        self.width = width
        self._size = size

    def __len__(self) -> int:
        return self.count

    def read(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Tokens start .. stop-1 (by default all) as uint16 or uint32.

        Raises FormatError when the file is no longer as long as it was. It is opened for this read alone: a run may
        have more shards than a process may have open files.
        """
        begin, end, _ = slice(start, stop).indices(self.count)
        tokens = np.empty(max(0, end - begin), np.dtype("<u2" if self.width == 2 else "<u4"))
        try:
            with open_regular(self.path) as file:
                file.seek(HEADER.size + begin * self.width)
                rest = memoryview(tokens).cast("B")
                while rest and (count := file.readinto(rest)):
                    rest = rest[count:]
                if rest:
                    now = os.fstat(file.fileno()).st_size
                    raise FormatError(self.path, f"was cut to {now} bytes while it was in use; it had {self._size}")
        except OSError as error:
            raise cannot_read(self.path, error) from error
        return tokens

    def check_ids(self) -> None:
        """Raises FormatError when an id is not below vocab_size."""
        chunk = 1 << 24
        for start in range(0, self.count, chunk):
            ids = self.read(start, start + chunk)
            worst = int(ids.argmax())
            if int(ids[worst]) >= self.vocab_size:
                raise FormatError(
                    self.path, f"token {start + worst} is {int(ids[worst])}; the vocabulary has {self.vocab_size}"
                )


def write_shard(
    path: str | os.PathLike[str],
    tokens: Iterable[np.ndarray],
    vocab_size: int,
    tokenizer: bytes = UNKNOWN_TOKENIZER,
) -> int:
    """Writes a shard from arrays of ids, in their order, in one step; returns the number of tokens.

    Ids of vocabularies up to 65 536 take two bytes. Raises ValueError when an id is not below `vocab_size`, and
    TypeError when one is not a whole number; nothing is written then.
    """
    width = 2 if vocab_size <= 1 << 16 else 4
    dtype = np.dtype("<u2" if width == 2 else "<u4")
    count = 0
    with replace_file(path) as file:
        file.write(bytes(HEADER.size))
        for ids in tokens:
            ids = whole_numbers(ids)
            if ids.size and not (0 <= int(ids.min()) and int(ids.max()) < vocab_size):
                raise ValueError(f"ids from {ids.min()} to {ids.max()} in a vocabulary of {vocab_size}")
            file.write(ids.astype(dtype).tobytes())
            count += ids.size
        file.seek(0)
        file.write(HEADER.pack(MAGIC, VERSION, width, vocab_size, count, tokenizer))
    return count
