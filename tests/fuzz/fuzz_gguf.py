"""A mutator of GGUF files that knows where their fields are.

A tolerant walk over the file names each field: magic, version, counts, lengths of strings, types, values, dimensions,
offsets. One of them gets another value, or a whole entry is doubled, moved, dropped; what follows is kept consistent
more often than not, so that the change is seen by the check that is meant for it and not by an earlier one.
"""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

from fuzz_values import byte_level, real32, text, whole

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
KEYS = tuple(
    """
    general.architecture general.alignment general.name general.file_type general.quantization_version
    llama.block_count llama.context_length llama.embedding_length llama.feed_forward_length llama.attention.head_count
    llama.attention.head_count_kv llama.attention.key_length llama.attention.value_length
    llama.attention.layer_norm_rms_epsilon llama.rope.dimension_count llama.rope.freq_base llama.rope.scaling.type
    llama.rope.scaling.factor llama.rope.scaling.original_context_length llama.vocab_size llama.expert_count
    llama.expert_used_count bitnet.block_count bitnet-b1.58.embedding_length bitnet-b1.58.feed_forward_length
    bitnet-b1.58.attention.head_count bitnet-b1.58.attention.key_length bitnet-b1.58.rope.scaling.type
    tokenizer.ggml.model tokenizer.ggml.pre tokenizer.ggml.tokens tokenizer.ggml.scores tokenizer.ggml.token_type
    tokenizer.ggml.merges tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id tokenizer.ggml.unknown_token_id
    tokenizer.ggml.padding_token_id tokenizer.ggml.add_bos_token tokenizer.ggml.add_eos_token
    tokenizer.ggml.add_space_prefix tokenizer.chat_template
    """.split()
)
NAMES = tuple(
    """
    token_embd.weight output.weight output_norm.weight blk.0.attn_norm.weight blk.0.attn_q.weight blk.0.attn_k.weight
    blk.0.attn_v.weight blk.0.attn_output.weight blk.0.ffn_norm.weight blk.0.ffn_gate.weight blk.0.ffn_up.weight
    blk.0.ffn_down.weight blk.0.ffn_gate_inp.weight blk.0.ffn_gate_exps.weight blk.0.attn_sub_norm.weight
    blk.0.ffn_sub_norm.weight blk.0.attn_q.scale blk.0.ffn_down.scale blk.1.attn_q.weight
    blk.99999999999.attn_q.weight rope_freqs.weight
    """.split()
)


class Field(NamedTuple):
    """Bytes start .. stop-1 of the file, and what they are."""

    start: int
    stop: int
    kind: str


class Walk:
    """The fields of a file as far as they can be followed; entries as (kind, start, stop); where the data begins."""

    def __init__(self, data: bytes):
        self.data = data
        self.fields: list[Field] = []
        self.entries: list[tuple[str, int, int]] = []
        self.at = 0
        self.alignment = 32
        self.complete = False
        try:
            self._header()
            self.complete = True
        except (struct.error, IndexError):
            pass
        self.header_end = self.at
        pad = -self.at % self.alignment
        self.data_start = min(len(data), self.at + pad)

    def _take(self, size: int, kind: str) -> int:
        if self.at + size > len(self.data):
            raise IndexError
        start, self.at = self.at, self.at + size
        if size:
            self.fields.append(Field(start, self.at, kind))
        return int.from_bytes(self.data[start : self.at], "little")

    def _string(self, kind: str) -> bytes:
        length = self._take(8, "length")
        if length > len(self.data):
            raise IndexError
        self.fields.append(Field(self.at, self.at + length, kind))
        self.at += length
        if self.at > len(self.data):
            raise IndexError
        return self.data[self.at - length : self.at]

    def _value(self, kind: int, depth: int = 0) -> int:
        if kind == STRING:
            self._string("text")
        elif kind == ARRAY:
            inner = self._take(4, "type")
            count = self._take(8, "count")
            if depth > 8:
                raise IndexError
            if inner in SIZES:
                shown = min(count, 4)
                for _ in range(shown):
                    self._take(SIZES[inner], "real" if inner == 6 else "value")
                self.at += (count - shown) * SIZES[inner]
                if self.at > len(self.data):
                    raise IndexError
            elif inner in (STRING, ARRAY):
                for index in range(count):
                    named = len(self.fields)
                    self._value(inner, depth + 1)
                    if 2 <= index < count - 1:  # a vocabulary would outweigh all the rest
                        del self.fields[named:]
        elif kind in SIZES:
            return self._take(SIZES[kind], "real" if kind == 6 else "value")
        else:
            raise IndexError
        return 0

    def _header(self) -> None:
        self._take(4, "magic")
        self._take(4, "version")
        tensors = self._take(8, "count")
        pairs = self._take(8, "count")
        for _ in range(pairs):
            start = self.at
            key = self._string("key")
            value = self._value(self._take(4, "type"))
            if key == b"general.alignment" and 0 < value <= 1 << 16:
                self.alignment = value
            self.entries.append(("pair", start, self.at))
        for _ in range(tensors):
            start = self.at
            self._string("name")
            for _ in range(min(self._take(4, "dimensions"), 16)):
                self._take(8, "size")
            self._take(4, "format")
            self._take(8, "offset")
            self.entries.append(("tensor", start, self.at))


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A file like `data`, with one to four changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        walk = Walk(data)
        choice = rng.randrange(10)
        if choice == 0 or not walk.fields:
            data = byte_level(rng, data)
        elif choice <= 2 and walk.entries:
            data = _change_entries(walk, rng)
        else:
            data = _change_field(walk, rng)
    return data


def _spliced(walk: Walk, start: int, stop: int, new: bytes, rng: random.Random) -> bytes:
    # The data stays where its alignment puts it, unless the file is to be one whose data has moved.
    data = walk.data
    if len(new) == stop - start or not walk.complete or rng.random() < 0.1:
        return data[:start] + new + data[stop:]
    head = data[:start] + new + data[stop : walk.header_end]
    return head + bytes(-len(head) % walk.alignment) + data[walk.data_start :]


def _change_field(walk: Walk, rng: random.Random) -> bytes:
    field = rng.choice(walk.fields)
    if rng.random() < 0.3:  # metadata is most of a file: half of the attention to the rest
        rare = [f for f in walk.fields if f.kind not in ("text", "length", "value", "real")]
        field = rng.choice(rare or walk.fields)
    data, size = walk.data, field.stop - field.start
    left = len(data) - field.stop
    if field.kind in ("key", "name", "text"):
        known = {"key": KEYS, "name": NAMES}.get(field.kind, ())
        new = text(rng, known)
        if field.kind == "text" and rng.random() < 0.1:
            new = rng.choice(KEYS + NAMES).encode()
        if rng.random() < 0.2:
            return data[: field.start] + new + data[field.stop :]  # the length is now wrong
        return _spliced(walk, field.start - 8, field.stop, struct.pack("<Q", len(new)) + new, rng)
    now = int.from_bytes(data[field.start : field.stop], "little")
    if field.kind == "magic":
        new = rng.choice((b"GGUF", b"FUGG", b"ggml", b"GGJT", rng.randbytes(4)))
    elif field.kind == "version":
        new = struct.pack("<I", rng.choice((0, 1, 2, 3, 4, 2 << 24, 3 << 24, 0xFFFFFFFF)))
    elif field.kind == "real":
        new = real32(rng)
    elif field.kind == "type":
        new = struct.pack("<I", rng.choice((*range(14), 0xFFFFFFFF)))
    elif field.kind == "format":
        new = struct.pack("<I", rng.choice((*range(40), 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)))
    elif field.kind == "dimensions" and rng.random() < 0.5:
        new = struct.pack("<I", rng.choice((0, 1, 2, 3, 4, 5, 8, 1000000, 0xFFFFFFFF)))
    else:
        new = whole(rng, now, 8 * size, left).to_bytes(size, "little")
    return data[: field.start] + new + data[field.stop :]


def _change_entries(walk: Walk, rng: random.Random) -> bytes:
    data = walk.data
    kind, start, stop = rng.choice(walk.entries)
    entry = data[start:stop]
    choice = rng.randrange(5)
    step = 0
    if choice == 0:
        out, step = _spliced(walk, start, stop, b"", rng), -1
    elif choice == 1:
        out, step = _spliced(walk, start, start, entry, rng), 1
    elif choice == 2:
        name = text(rng, KEYS if kind == "pair" else NAMES)
        body = _new_value(rng) if kind == "pair" else _new_tensor(rng)
        out, step = _spliced(walk, start, start, struct.pack("<Q", len(name)) + name + body, rng), 1
    elif choice == 3 and kind == "pair":
        key = data[start : start + 8 + int.from_bytes(data[start : start + 8], "little")]
        out = _spliced(walk, start, stop, key + _new_value(rng), rng)
    else:
        others = [e for e in walk.entries if e[0] == kind and e[1] >= stop]
        if not others:
            return byte_level(rng, data)
        _, begin, end = rng.choice(others)
        out = data[:start] + data[begin:end] + data[stop:begin] + entry + data[end:]
    if rng.random() < 0.9 and len(out) >= 24:
        at = 16 if kind == "pair" else 8
        count = (int.from_bytes(out[at : at + 8], "little") + step) % (1 << 64)
        out = out[:at] + struct.pack("<Q", count) + out[at + 8 :]
    return out


def _new_value(rng: random.Random, depth: int = 0) -> bytes:
    kind = rng.choice((*SIZES, STRING, ARRAY))
    if depth > 1:
        return struct.pack("<I", kind) + _payload(kind, rng, depth)
    if rng.random() < 0.02:  # arrays in arrays, deeper than a reader may follow
        deep = rng.choice((10, 100, 3000))
        return struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * deep + struct.pack("<IQ", 0, 0)
    return struct.pack("<I", kind) + _payload(kind, rng, depth)


def _payload(kind: int, rng: random.Random, depth: int) -> bytes:
    if kind == STRING:
        new = text(rng)
        return struct.pack("<Q", len(new)) + new
    if kind == ARRAY:
        inner = rng.choice((*SIZES, STRING, STRING, ARRAY)) if depth < 2 else 0
        count = rng.choice((0, 1, 2, 5))
        return struct.pack("<IQ", inner, count) + b"".join(_payload(inner, rng, depth + 1) for _ in range(count))
    size = SIZES[kind]
    return real32(rng) if kind == 6 else whole(rng, 1, 8 * size, 100).to_bytes(size, "little")


def _new_tensor(rng: random.Random) -> bytes:
    sizes = [rng.choice((1, 4, 32, 256)) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4)))]
    body = struct.pack("<I", len(sizes)) + b"".join(struct.pack("<Q", size) for size in sizes)
    return body + struct.pack("<IQ", rng.choice((0, 1, 2, 8, 12, 14, 30)), rng.choice((0, 32, 64, 4096)))
