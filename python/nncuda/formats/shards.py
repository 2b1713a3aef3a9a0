"""Token shards: the encoded text that training reads.

Layout, little-endian: a header of 64 bytes, then `count` token ids of `width` bytes each. In version 1 nothing follows
them. In version 2 two bits for each token do, those of the first kind and then those of the second, each kind in
ceil(count / 8) bytes: bit i % 8, from the lowest, of byte i / 8 is that of token i, and bits beyond the last are 0.

    bytes  0..7    magic "NNTOKENS"
    bytes  8..11   version, 1 or 2
    bytes 12..15   width: 2 (uint16) or 4 (uint32)
    bytes 16..23   vocab_size: every id is below it
    bytes 24..31   count
    bytes 32..63   SHA-256 of the tokenizer file that made the ids; zeros when unknown
    first bits     1 where the token is the last of its document; a document has at least two tokens
    second bits    1 where the token counts as a target: a model learns to say it. The first of a document never is one
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..token_ids import whole_numbers
from .atomic import replace_file
from .errors import FormatError, cannot_read
from .regular import open_regular

MAGIC = b"NNTOKENS"
PLAIN, WITH_DOCUMENTS = 1, 2  # versions
HEADER = struct.Struct("<8sIIQQ32s")
UNKNOWN_TOKENIZER = bytes(32)

# Tokens that are looked at in one piece, of shards that may be larger than memory.
_CHUNK = 1 << 24

assert HEADER.size == 64


def bytes_of_bits(count: int) -> int:
    """What so many bits take."""
    return -(-count // 8)


def tokenizer_digest(model: bytes) -> bytes:
    """What a shard keeps of the tokenizer that made it: the SHA-256 of its file."""
    return hashlib.sha256(model).digest()


class TokenShard:
    """A shard, opened and checked: header, version, width and length of the file. `has_documents` says whether it knows
    where its documents end and which tokens count as targets.

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
        if version not in (PLAIN, WITH_DOCUMENTS):
            raise FormatError(path, f"is a token shard of version {version}; this program reads versions 1 and 2")
        if width not in (2, 4):
            raise FormatError(path, f"has ids of {width} bytes; they must have 2 or 4")
        if not 1 <= self.vocab_size <= 2 ** (8 * width):
            raise FormatError(path, f"has a vocabulary of {self.vocab_size}, which ids of {width} bytes cannot hold")
        self.has_documents = version == WITH_DOCUMENTS
        bits = 2 * bytes_of_bits(self.count) if self.has_documents else 0
        if size != HEADER.size + self.count * width + bits:
            needed = HEADER.size + self.count * width + bits
            raise FormatError(path, f"is {size} bytes long, but its {self.count} tokens take {needed}")
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
        self._fill(tokens, HEADER.size + begin * self.width)
        return tokens

    def pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """All tokens, in their order: the first token of each of many parts, and `read` of the part."""
        for start in range(0, self.count, _CHUNK):
            yield start, self.read(start, start + _CHUNK)

    def ends(self, start: int, stop: int) -> np.ndarray:
        """Whether each of the tokens start .. stop-1 is the last of its document, as bool. Only `has_documents`."""
        return self._bits(0, start, stop)

    def counted(self, start: int, stop: int) -> np.ndarray:
        """Whether each of these tokens counts as a target, as bool; that of the first of a document says nothing."""
        return self._bits(1, start, stop)

    def chunks(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The first token of each of many parts of the shard, `ends` of the part and its targets, as bool: tokens that
        count and are not the first of their document. FormatError when a document has one token, or the last none."""
        begins = True
        for start in range(0, self.count, _CHUNK):
            stop = min(start + _CHUNK, self.count)
            ends = self.ends(start, stop)
            firsts = np.concatenate([[begins], ends[:-1]])
            if (alone := firsts & ends).any():
                raise FormatError(
                    self.path, f"the document at token {start + int(alone.argmax())} has one token; it must have two"
                )
            begins = bool(ends[-1])
            yield start, ends, self.counted(start, stop) & ~firsts
        if not begins:
            raise FormatError(self.path, "its last token does not end a document")

    def _bits(self, kind: int, start: int, stop: int) -> np.ndarray:
        first, last = start // 8, bytes_of_bits(stop)
        packed = np.empty(max(0, last - first), np.uint8)
        bits = HEADER.size + self.count * self.width + kind * bytes_of_bits(self.count)
        self._fill(packed, bits + first)
        return np.unpackbits(packed, bitorder="little")[start - 8 * first : stop - 8 * first].astype(bool)

    def _fill(self, array: np.ndarray, offset: int) -> None:
        try:
            with open_regular(self.path) as file:
                file.seek(offset)
                rest = memoryview(array).cast("B")
                while rest and (count := file.readinto(rest)):
                    rest = rest[count:]
                if rest:
                    now = os.fstat(file.fileno()).st_size
                    raise FormatError(self.path, f"was cut to {now} bytes while it was in use; it had {self._size}")
        except OSError as error:
            raise cannot_read(self.path, error) from error

    def check_ids(self) -> None:
        """Raises FormatError when an id is not below vocab_size."""
        for start, ids in self.pieces():
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
    width = _width(vocab_size)
    count = 0
    with replace_file(path) as file:
        file.write(bytes(HEADER.size))
        for ids in tokens:
            file.write(_raw(ids, vocab_size, width))
            count += len(ids)
        file.seek(0)
        file.write(HEADER.pack(MAGIC, PLAIN, width, vocab_size, count, tokenizer))
    return count


class DocumentWriter:
    """Writes the documents of a shard as they come; `documents_into` makes one. `tokens`, `targets` and `documents`
    count what was written, `targets` only those that a model can learn."""

    def __init__(self, file: BinaryIO, bits: tuple[BinaryIO, BinaryIO], vocab_size: int):
        self.tokens = self.targets = self.documents = 0
        self._file, self._kinds = file, tuple(map(_BitWriter, bits))
        self._vocab_size, self._width = vocab_size, _width(vocab_size)
        file.write(bytes(HEADER.size))

    def write(self, ids: np.ndarray, counted: np.ndarray) -> None:
        """A document: its ids, and which of them count as targets, as bool. TypeError when one is not a whole number,
        ValueError when it is not below the vocabulary's size, or there are fewer than two, or other bits than ids."""
        if len(ids) < 2 or len(counted) != len(ids):
            raise ValueError(
                f"a document of {len(ids)} tokens and bits for {len(counted)}; it must have two, and a bit for each"
            )
        self._file.write(_raw(ids, self._vocab_size, self._width))
        counted = np.asarray(counted, bool)
        for kind, bits in zip(self._kinds, (np.arange(len(ids)) == len(ids) - 1, counted), strict=True):
            kind.write(bits)
        self.tokens += len(ids)
        self.targets += int(np.count_nonzero(counted[1:]))
        self.documents += 1

    def finish(self, tokenizer: bytes) -> None:
        """Adds the bits, and the header."""
        for kind in self._kinds:
            kind.append_to(self._file)
        self._file.seek(0)
        head = WITH_DOCUMENTS, self._width, self._vocab_size, self.tokens, tokenizer
        self._file.write(HEADER.pack(MAGIC, *head))


@contextlib.contextmanager
def documents_into(
    path: str | os.PathLike[str], vocab_size: int, tokenizer: bytes = UNKNOWN_TOKENIZER
) -> Iterator[DocumentWriter]:
    """A writer of documents into a new shard, which becomes `path` at the end, in one step; nothing is left when the
    body raises. The bits wait in files that have no name, so memory holds one document at a time."""
    folder = Path(path).parent
    with (
        replace_file(path) as file,
        tempfile.TemporaryFile(dir=folder) as ends,
        tempfile.TemporaryFile(dir=folder) as counted,
    ):
        writer = DocumentWriter(file, (ends, counted), vocab_size)
        yield writer
        writer.finish(tokenizer)


def write_documents(
    path: str | os.PathLike[str],
    documents: Iterable[tuple[np.ndarray, np.ndarray]],
    vocab_size: int,
    tokenizer: bytes = UNKNOWN_TOKENIZER,
) -> int:
    """Writes a shard of documents, as of `DocumentWriter.write`, in one step; returns the number of tokens."""
    with documents_into(path, vocab_size, tokenizer) as writer:
        for ids, counted in documents:
            writer.write(ids, counted)
    return writer.tokens


class _BitWriter:
    """Packs bits as they come into bytes of a file."""

    def __init__(self, file: BinaryIO):
        self._file, self._rest = file, np.empty(0, bool)

    def write(self, bits: np.ndarray) -> None:
        bits = np.concatenate([self._rest, bits])
        whole = len(bits) - len(bits) % 8
        self._file.write(np.packbits(bits[:whole], bitorder="little").tobytes())
        self._rest = bits[whole:]

    def append_to(self, file: BinaryIO) -> None:
        """Adds all of them, the last byte filled up with zeros, to another file."""
        self._file.write(np.packbits(self._rest, bitorder="little").tobytes())
        self._file.seek(0)
        shutil.copyfileobj(self._file, file)


def _width(vocab_size: int) -> int:
    return 2 if vocab_size <= 1 << 16 else 4


def _raw(ids: np.ndarray, vocab_size: int, width: int) -> bytes:
    ids = whole_numbers(ids)
    if ids.size and not (0 <= int(ids.min()) and int(ids.max()) < vocab_size):
        raise ValueError(f"ids from {ids.min()} to {ids.max()} in a vocabulary of {vocab_size}")
    return ids.astype(np.dtype("<u2" if width == 2 else "<u4")).tobytes()
