"""The files of SentencePiece models, written and read: what a `sentencepiece_model.proto` message needs of protobuf.

(https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto;
https://protobuf.dev/programming-guides/encoding/)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

#: Kinds of pieces, in SentencePiece's files and in GGUF's.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class PieceModel:
    """What matters of a model: names, scores and kinds of its pieces by id, and how text becomes pieces."""

    pieces: Sequence[str]
    scores: Sequence[float]
    kinds: Sequence[int]
    model_type: int
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    normalises: bool = False  # by a table of characters of its own

    def to_bytes(self) -> bytes:
        """The file. `normalises` is left out."""
        trainer = _number(3, self.model_type) + _number(4, len(self.pieces))
        trainer += _number(35, int(BYTE in self.kinds))
        unknown = next((index for index, kind in enumerate(self.kinds) if kind == UNKNOWN), 0)
        # -1 for those that the pieces do not have; the wrapper knows the ids from elsewhere.
        trainer += _number(40, unknown) + _number(41, -1) + _number(42, -1) + _number(43, -1)
        trainer += _block(45, self.pieces[unknown].encode("utf-8"))
        normalizer = _block(1, b"identity") + _number(3, int(self.add_dummy_prefix))
        normalizer += _number(4, int(self.remove_extra_whitespaces)) + _number(5, 1)
        entries = [
            _block(1, _block(1, piece.encode("utf-8")) + b"\x15" + struct.pack("<f", score) + _number(3, kind))
            for piece, score, kind in zip(self.pieces, self.scores, self.kinds, strict=True)
        ]
        return b"".join(entries) + _block(2, trainer) + _block(3, normalizer)

    @classmethod
    def from_bytes(cls, content: bytes) -> PieceModel:
        """Reads a file. ValueError when it is not a model."""
        pieces, scores, kinds = [], [], []
        trainer: dict[tuple[int, int], Any] = {}
        normalizer: dict[tuple[int, int], Any] = {}
        for field, kind, value in _fields(content):
            # A field of another wire type is one that this message does not know: SentencePiece passes over it too.
            if kind != _BYTES:
                continue
            if field == 1:
                entry = {(number, wire): part for number, wire, part in _fields(value)}
                pieces.append(entry.get((1, _BYTES), b"").decode("utf-8"))
                scores.extend(struct.unpack("<f", entry.get((2, _FIXED32), bytes(4))))
                kind = entry.get((3, _VARINT), NORMAL)
                kinds.append(kind if NORMAL <= kind <= BYTE else NORMAL)  # as protobuf takes names it does not know
            elif field in (2, 3):
                message = trainer if field == 2 else normalizer
                message.update({(number, wire): part for number, wire, part in _fields(value)})
        return cls(
            pieces,
            scores,
            kinds,
            trainer.get((3, _VARINT), UNIGRAM),
            bool(normalizer.get((3, _VARINT), 1)),
            bool(normalizer.get((4, _VARINT), 1)),
            bool(normalizer.get((2, _BYTES), b"")),
        )


def longest_replacement(charsmap: bytes) -> int:
    """Bytes of the longest text that a compiled map of characters puts in place of one: the map is the size of a trie
    (u32), the trie, then the texts, each with a zero after it."""
    size = int.from_bytes(charsmap[:4], "little")
    return max(map(len, charsmap[4 + size :].split(b"\0")), default=1) or 1


def most_growth(content: bytes) -> int:
    """How many times longer a model's maps of characters may make a text, in bytes. ValueError if it is not one."""
    maps = [
        part
        for field, kind, value in _fields(content)
        if field in (3, 5) and kind == _BYTES  # the rules for texts, and those for what is decoded
        for number, wire, part in _fields(value)
        if number == 2 and wire == _BYTES
    ]
    return max(map(longest_replacement, maps), default=1)


def _varint(value: int) -> bytes:
    value %= 2**64  # negative numbers in two's complement
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _block(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(content)) + content


def _fields(content: bytes) -> Iterator[tuple[int, int, Any]]:
    # Numbers and wire types of the fields, and their values: whole numbers, or bytes.
    at = 0

    def varint() -> int:
        nonlocal at
        value = 0
        for shift in range(0, 70, 7):
            if at == len(content):
                raise ValueError("the message ends inside a number")
            byte = content[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number is longer than 64 bits")

    while at < len(content):
        key = varint()
        kind = key & 7
        if kind == _VARINT:
            yield key >> 3, kind, varint()
            continue
        if kind not in (_FIXED64, _BYTES, _FIXED32):
            raise ValueError(f"a field is of wire type {kind}")
        size = varint() if kind == _BYTES else 8 if kind == _FIXED64 else 4
        if size > len(content) - at:
            raise ValueError("the message ends inside a field")
        yield key >> 3, kind, content[at : at + size]
        at += size
