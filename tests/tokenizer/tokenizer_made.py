"""Model files made by hand: some whose every rule shows in the ids, some that no reader may take."""

from __future__ import annotations

import base64
import random
import struct

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# Fields of the file's messages (sentencepiece_model.proto) by number.
PIECES, TRAINER, NORMALIZER = 1, 2, 3
PIECE_TEXT, PIECE_SCORE, PIECE_KIND = 1, 2, 3
MODEL_TYPE, BYTE_FALLBACK = 3, 35
CHARSMAP, EXTRA_SPACES = 2, 4


def varint(number: int) -> bytes:
    """A number in Protocol Buffers' variable length."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def data(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def piece(text: bytes, kind: int = NORMAL, score: float = -1.0) -> bytes:
    content = (
        data(PIECE_TEXT, text) + varint(PIECE_SCORE << 3 | 5) + struct.pack("<f", score) + number(PIECE_KIND, kind)
    )
    return data(PIECES, content)


def drawn(model_type: int, seed: int) -> bytes:
    """A model of short pieces over few letters, with what training seldom gives: pieces of one letter that are out of
    use, user-defined pieces that compete with others, scores of which many sums are equal."""
    draw = random.Random(seed)
    texts = {"".join(draw.choice("abcd\u2581") for _ in range(draw.randrange(1, 5))): None for _ in range(60)}
    pieces = piece(b"<unk>", UNKNOWN, 0.0) + piece(b"<s>", CONTROL, 0.0)
    for text in texts:
        kind = draw.choices([NORMAL, USER_DEFINED, UNUSED], [20, 2, 3])[0]
        pieces += piece(text.encode(), kind, -draw.randrange(1, 13) / 2)
    return pieces + data(TRAINER, number(MODEL_TYPE, model_type)) + data(NORMALIZER, number(EXTRA_SPACES, 0))


def refused() -> list[dict[str, str]]:
    """Name, file in base64."""
    unknown = piece(b"<unk>", UNKNOWN, 0.0)
    start = unknown + piece(b"a") + piece(b"b")
    all_bytes = b"".join(piece(b"<0x%02X>" % byte, BYTE) for byte in range(256))
    fallback = data(TRAINER, number(BYTE_FALLBACK, 1))
    models = {
        "nothing": b"",
        "text": b"this is a text and no model\n",
        "cut_in_a_piece": start[:-3],
        "length_beyond_the_file": start + varint(PIECES << 3 | 2) + varint(1 << 40) + b"x",
        "endless_number": start + b"\x10" + b"\xff" * 12,
        "no_unknown": piece(b"a") + piece(b"b"),
        "two_unknowns": start + piece(b"<unk2>", UNKNOWN),
        "same_piece_twice": start + piece(b"a"),
        "empty_piece": start + piece(b""),
        "zero_in_a_piece": start + piece(b"a\x00b"),
        "only_controls": unknown + piece(b"<s>", CONTROL),
        "too_long_piece": start + piece(b"c" * 8000),
        "byte_without_fallback": start + piece(b"<0x41>", BYTE),
        "fallback_without_bytes": start + fallback,
        "no_byte": start + all_bytes.replace(b"<0x41>", b"<0xZZ>") + fallback,
        "charsmap_cut_off": start + data(NORMALIZER, data(CHARSMAP, b"\x01\x00")),
        "charsmap_beyond_the_end": start + data(NORMALIZER, data(CHARSMAP, struct.pack("<I", 1 << 31) + b"x" * 32)),
    }
    return [{"name": name, "model": base64.b64encode(model).decode()} for name, model in models.items()]
