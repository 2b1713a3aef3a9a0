"""What mutators put in place of a field: the numbers and texts at which readers break."""

from __future__ import annotations

import random
import struct

EDGES = (0, 1, 2, 3, 7, 8, 31, 32, 33, 255, 256, 1 << 16, 1 << 20)
# Products and sums of these wrap at 32 and 64 bits, with and without a sign.
WRAPS = (
    4194305,
    211106198978564,
    6148914691236517206,
    *((1 << bits) + step for bits in (15, 16, 31, 32, 40, 42, 62, 63, 64) for step in (-64, -32, -4, -1, 0, 1)),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, -1e38, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    *("", "a", " ", "▁", "\0", "\n", "llama", "gpt2", "mixtral", "default", "../../x", "/dev/zero", "<0x00>"),
    *("<0xFF>", "<0x-1>", "<0xZZ>", "<0x100>", "<unk>", "<s>", "</s>", "é", "😀", "a" * 300, "Ġ"),
)


def whole(rng: random.Random, now: int, bits: int, left: int) -> int:
    """A number for an unsigned field of so many bits that holds `now`, `left` bytes before the end of the file."""
    choice = rng.randrange(6)
    if choice == 0:
        value = rng.choice(EDGES)
    elif choice == 1:
        value = rng.choice(WRAPS)
    elif choice == 2:
        value = now + rng.choice((-1, 1, -8, 8, 32, -32))
    elif choice == 3:
        value = max(0, left // rng.choice((1, 1, 2, 4, 8))) + rng.choice((-1, 0, 1))
    elif choice == 4:
        value = now ^ (1 << rng.randrange(bits))
    else:
        value = now * rng.choice((2, 3, 1 << 8, 1 << 16, 1 << 32))
    return value % (1 << bits)


def real32(rng: random.Random) -> bytes:
    """Four bytes of a little-endian float."""
    if rng.random() < 0.8:
        return struct.pack("<f", rng.choice(FLOATS) if rng.random() < 0.7 else rng.uniform(-100, 100))
    return rng.randbytes(4)


def text(rng: random.Random, known: tuple[str, ...] = ()) -> bytes:
    """The bytes of a text: one that means something, a long one, or one that is no UTF-8."""
    choice = rng.randrange(8)
    if choice == 0:
        return rng.randbytes(rng.randrange(9))
    if choice == 1:
        return rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"))
    return rng.choice(known if known and choice < 6 else TEXTS).encode()


def byte_level(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, cut out, doubled or cut off, whatever they mean."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(out) + 1)
        choice = rng.randrange(6)
        if choice == 0 and at < len(out):
            out[at] = rng.randrange(256)
        elif choice == 1 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif choice == 2:
            del out[at : at + rng.choice((1, 2, 4, 8, 64))]
        elif choice == 3:
            out[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8)))
        elif choice == 4:
            piece = bytes(out[at : at + rng.randrange(1, 65)])
            to = rng.randrange(len(out) + 1)
            out[to:to] = piece
        elif rng.random() < 0.3:
            del out[at:]
    return bytes(out)
