"""A mutator of protocol buffers, and of SentencePiece models above all: fields, numbers, lengths, wire types.

The encoding is that of https://protobuf.dev/programming-guides/encoding: a tag (field number and wire type), then a
varint, eight bytes, a length and so many bytes, or four bytes.
"""

from __future__ import annotations

import random

from fuzz_values import TEXTS, byte_level, real32, text, whole

# Fields of a SentencePiece model that hold messages: pieces, trainer, normaliser, self test, denormaliser.
NESTED = {1, 2, 3, 4, 5}


def varint(value: int) -> bytes:
    out = bytearray()
    value %= 1 << 64
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise IndexError


Entry = list  # [number, wire type, int | bytes]


def parse(data: bytes) -> list[Entry]:
    """The fields in their order. Raises IndexError where `data` is no protocol buffer."""
    out, at = [], 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _read_varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, at = data[at : at + size], at + size
        elif wire == 2:
            length, at = _read_varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            raise IndexError
        if at > len(data):
            raise IndexError
        out.append([number, wire, value])
    return out


def dump(entries: list[Entry]) -> bytes:
    """The bytes of fields."""
    out = bytearray()
    for number, wire, value in entries:
        out += varint(number << 3 | wire)
        if wire == 0:
            out += varint(value)
        elif wire == 2:
            out += varint(len(value)) + value
        else:
            out += value
    return bytes(out)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A message like `data`, with one to four changes, at its top or in a message inside."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = _changed(data, rng, 0)
    return data


def _changed(data: bytes, rng: random.Random, depth: int) -> bytes:
    try:
        entries = parse(data)
    except IndexError:
        entries = []
    if not entries or rng.randrange(15) == 0:
        return byte_level(rng, data)
    at = rng.randrange(len(entries))
    if depth == 0 and rng.random() < 0.5:  # not a piece: there are many of them, and few of the rest
        rare = [i for i, entry in enumerate(entries) if entry[0] != 1]
        at = rng.choice(rare) if rare else at
    number, wire, value = entries[at]
    if depth == 0 and number in NESTED and wire == 2 and rng.random() < 0.8:
        entries[at][2] = _changed(value, rng, 1)
        return dump(entries)
    choice = rng.randrange(8)
    if choice == 0:
        del entries[at]
    elif choice == 1:
        entries.insert(rng.randrange(len(entries) + 1), list(entries[at]))
    elif choice == 2:
        other = rng.randrange(len(entries))
        entries[at], entries[other] = entries[other], entries[at]
    elif choice == 3:
        entries[at][0] = rng.choice((1, 2, 3, 4, 5, 35, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, whole(rng, 1, 29, 9)))
    elif choice == 4:
        kind = rng.choice((0, 1, 2, 5))
        entries[at][1:] = kind, {0: 1, 1: bytes(8), 2: b"x", 5: bytes(4)}[kind]
    elif choice == 5 and wire == 2:  # a length that is not true
        piece = dump(entries[at : at + 1])
        wrong = varint(number << 3 | 2) + varint(whole(rng, len(value), 64, len(value))) + value
        return dump(entries[:at]) + (wrong if rng.random() < 0.8 else piece[:-1]) + dump(entries[at + 1 :])
    elif wire == 0:
        signed = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, -1, -2, len(entries)))
        entries[at][2] = whole(rng, value, rng.choice((8, 32, 64)), len(data)) if rng.random() < 0.5 else signed
    elif wire == 5:
        entries[at][2] = real32(rng)
    elif wire == 2:
        entries[at][2] = byte_level(rng, value) if rng.random() < 0.4 else text(rng, TEXTS)
    return dump(entries)
