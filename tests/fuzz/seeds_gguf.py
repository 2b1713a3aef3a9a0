"""GGUF files made by hand, byte for byte: valid ones, and one for each known way to mislead a reader.

Nothing of the program under test writes them: a fault that its reader and writer share would not be seen.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
# Numbers of tensor types, elements and bytes of a block.
TYPES = {
    "f32": (0, 1, 4),
    "f16": (1, 1, 2),
    "q4_0": (2, 32, 18),
    "q4_1": (3, 32, 20),
    "q5_0": (6, 32, 22),
    "q5_1": (7, 32, 24),
    "q8_0": (8, 32, 34),
    "q2_k": (10, 256, 84),
    "q3_k": (11, 256, 110),
    "q4_k": (12, 256, 144),
    "q5_k": (13, 256, 176),
    "q6_k": (14, 256, 210),
    "iq4_nl": (20, 32, 18),
    "iq4_xs": (23, 256, 136),
    "bf16": (30, 1, 2),
    "mxfp4": (39, 32, 17),
}


class Seed(NamedTuple):
    """`expected` is a part of the sentence that refuses the file; None for a file that is to be read."""

    name: str
    data: bytes
    expected: str | None


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value(kind: int, content: Any) -> bytes:
    """A value of metadata behind its type. An array is given as (type of its elements, list)."""
    if kind == STRING:
        return struct.pack("<I", kind) + string(content)
    if kind == ARRAY:
        inner, items = content
        body = b"".join(string(x) if inner == STRING else struct.pack("<" + CODES[inner], x) for x in items)
        return struct.pack("<IIQ", kind, inner, len(items)) + body
    return struct.pack("<I", kind) + struct.pack("<" + CODES[kind], content)


def pair(key: str | bytes, kind: int, content: Any) -> bytes:
    return string(key) + value(kind, content)


def tensor(name: str | bytes, sizes: tuple[int, ...], kind: int, offset: int) -> bytes:
    body = struct.pack("<I", len(sizes)) + b"".join(struct.pack("<Q", size) for size in sizes)
    return string(name) + body + struct.pack("<IQ", kind, offset)


def gguf(
    pairs: list[bytes] = (),  # type: ignore[assignment]
    tensors: list[bytes] = (),  # type: ignore[assignment]
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    counts: tuple[int, int] | None = None,
    alignment: int = 32,
) -> bytes:
    """A file of these entries; `counts` of tensors and pairs, where they are to differ from what is there."""
    tensor_count, pair_count = counts or (len(tensors), len(pairs))
    head = magic + struct.pack("<IQQ", version, tensor_count, pair_count) + b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data if tensors or data else head


def laid_out(weights: dict[str, tuple[str, tuple[int, ...]]], alignment: int = 32) -> tuple[list[bytes], bytes]:
    """Descriptions and data of tensors of a type and sizes (the row first); values small and of all bit patterns."""
    entries, data = [], b""
    for name, (kind, sizes) in weights.items():
        number, block, block_bytes = TYPES[kind]
        count = 1
        for size in sizes:
            count *= size
        data += bytes(-len(data) % alignment)
        entries.append(tensor(name, sizes, number, len(data)))
        if kind == "f32":
            data += struct.pack(f"<{count}f", *(0.01 * (i % 7) + 0.01 for i in range(count)))
        else:
            data += bytes(i * 7 % 48 for i in range(count // block * block_bytes))
    return entries, data


def spm_vocabulary() -> list[tuple[str, float, int]]:
    """Pieces, scores and kinds of a vocabulary as SentencePiece's BPE has it: unknown, controls, bytes, pieces."""
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    pieces += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    pieces += [(text, -float(i), 1) for i, text in enumerate(("he", "ll", "hell", "▁hell", "o", "▁", "h", "e", "l"))]
    return pieces


def byte_letters() -> list[str]:
    """The letter of each byte in byte-level BPE (Radford et al. 2019): printable ones stand for themselves, the others
    for letters from 256 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def vocabulary(kind: str = "llama", change: dict[int, str] | None = None, special: bool = True) -> list[bytes]:
    """Metadata of a tokenizer; `change` replaces pieces by index."""
    if kind == "llama":
        pieces = spm_vocabulary()
    else:
        texts = [*byte_letters(), "he", "ll", "hell", "<|begin|>", "<|end|>"]
        pieces = [(text, 0.0, 3 if text.startswith("<|") else 1) for text in texts]
    texts = [(change or {}).get(index, text) for index, (text, _, _) in enumerate(pieces)]
    out = [
        pair("tokenizer.ggml.model", STRING, kind),
        pair("tokenizer.ggml.tokens", ARRAY, (STRING, texts)),
        pair("tokenizer.ggml.token_type", ARRAY, (I32, [kind for _, _, kind in pieces])),
    ]
    if kind == "llama":
        out.append(pair("tokenizer.ggml.scores", ARRAY, (F32, [score for _, score, _ in pieces])))
        out.append(pair("tokenizer.ggml.unknown_token_id", U32, 0))
    else:
        out.append(pair("tokenizer.ggml.pre", STRING, "llama-bpe"))
        out.append(pair("tokenizer.ggml.merges", ARRAY, (STRING, ["h e", "l l", "he ll"])))
    if special:
        begin = 1 if kind == "llama" else len(pieces) - 2
        out.append(pair("tokenizer.ggml.bos_token_id", U32, begin))
        out.append(pair("tokenizer.ggml.eos_token_id", U32, begin + 1))
        template = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{{ eos_token }}{% endfor %}"
        out.append(pair("tokenizer.chat_template", STRING, template))
    return out


def retold(key: str, kind: int | None, content: Any, tokenizer: str = "llama", **more: Any) -> bytes:
    """A file of metadata alone whose entry `key` of the tokenizer is another one, or missing where `kind` is None."""
    entries = [entry for entry in vocabulary(tokenizer, **more) if not entry[8:].startswith(key.encode())]
    if kind is not None:
        entries.append(pair(key, kind, content))
    words, data = laid_out(weights("f32", vocab=268 if tokenizer == "llama" else 261))
    return gguf(settings() + entries, words, data)


def settings(experts: int = 0, **change: tuple[int, Any] | None) -> list[bytes]:
    """Metadata of a llama of one layer; `change` gives a key, with _ for its dots, another type and value, or leaves it
    out."""
    values: dict[str, tuple[int, Any]] = {
        "general.architecture": (STRING, "llama"),
        "general.name": (STRING, "seed"),
        "llama.block_count": (U32, 1),
        "llama.context_length": (U32, 64),
        "llama.embedding_length": (U32, 32),
        "llama.feed_forward_length": (U32, 64),
        "llama.attention.head_count": (U32, 4),
        "llama.attention.head_count_kv": (U32, 2),
        "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "llama.rope.dimension_count": (U32, 8),
        "llama.rope.freq_base": (F32, 10000.0),
    }
    if experts:
        values["llama.expert_count"] = (U32, experts)
        values["llama.expert_used_count"] = (U32, 2)
    for name, new in change.items():
        key = next((k for k in values if k.replace(".", "_") == name), name.replace("__", "."))
        values.pop(key, None)
        if new is not None:
            values[key] = new
    return [pair(key, kind, content) for key, (kind, content) in values.items()]


def weights(kind: str = "f32", experts: int = 0, vocab: int = 268) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Tensors of the model of `settings`, with matrices of one type."""
    out = {
        "token_embd.weight": (kind, (32, vocab)),
        "output_norm.weight": ("f32", (32,)),
        "output.weight": (kind, (32, vocab)),
        "blk.0.attn_norm.weight": ("f32", (32,)),
        "blk.0.ffn_norm.weight": ("f32", (32,)),
        "blk.0.attn_q.weight": (kind, (32, 32)),
        "blk.0.attn_k.weight": (kind, (32, 16)),
        "blk.0.attn_v.weight": (kind, (32, 16)),
        "blk.0.attn_output.weight": (kind, (32, 32)),
    }
    if experts:
        out["blk.0.ffn_gate_inp.weight"] = ("f32", (32, experts))
        for part, sizes in (("gate", (32, 64)), ("up", (32, 64)), ("down", (64, 32))):
            out[f"blk.0.ffn_{part}_exps.weight"] = (kind, (*sizes, experts))
    else:
        for part, sizes in (("gate", (32, 64)), ("up", (32, 64)), ("down", (64, 32))):
            out[f"blk.0.ffn_{part}.weight"] = (kind, sizes)
    return out


def model(kind: str = "q4_0", tokenizer: str = "llama", experts: int = 0, version: int = 3, **change: Any) -> bytes:
    """A whole small model."""
    words = 268 if tokenizer == "llama" else 261
    entries, data = laid_out(weights(kind, experts, words))
    return gguf(settings(experts, **change) + vocabulary(tokenizer), entries, data, version=version)


def valid() -> list[Seed]:
    """Files that are to be read: each type of tensor, each type of value, both versions, both kinds of tokenizer."""
    everything = [
        *(pair(f"x.{kind}", kind, 1) for kind in CODES),
        pair("x.text", STRING, "é"),
        *(pair(f"x.array.{kind}", ARRAY, (kind, [0, 1, 1])) for kind in CODES),
        pair("x.texts", ARRAY, (STRING, ["", "a", "é"])),
        pair("x.nothing", ARRAY, (I32, [])),
    ]
    entries, data = laid_out({f"t.{kind}": (kind, (256, 2)) for kind in TYPES})
    other, other_data = laid_out({"a": ("f32", (2, 3)), "b": ("f32", (3,))}, 64)
    return [
        Seed("valid_values", gguf(everything), None),
        Seed("valid_types", gguf([], entries, data), None),
        Seed("valid_alignment_64", gguf([pair("general.alignment", U32, 64)], other, other_data, alignment=64), None),
        Seed("valid_empty", gguf(), None),
        Seed("valid_v2", model("q8_0", version=2), None),
        Seed("valid_llama", model("q4_0"), None),
        Seed("valid_gpt2", model("f16", "gpt2"), None),
        Seed("valid_moe", model("q4_0", experts=4), None),
    ]


def hostile() -> list[Seed]:
    """Files that are to be refused, with a part of the sentence that says why. `README.md` has the story of each."""
    two = [pair("general.architecture", STRING, "llama"), pair("llama.block_count", U32, 1)]
    floats = bytes(128)
    big = 1 << 62
    return [
        Seed("nothing", b"", "has 0 bytes"),
        Seed("magic", gguf(two, magic=b"GGML"), "begins with"),
        Seed("version_0", gguf(two, version=0), "version 0"),
        Seed("version_1", gguf(two, version=1), "version 1"),
        Seed("version_4", gguf(two, version=4), "version 4"),
        Seed("big_endian", gguf(two, version=3 << 24), "big-endian"),
        Seed("cut_in_the_header", gguf(two)[:20], "20 bytes"),
        Seed("cut_in_a_value", gguf(two)[:-2], "llama.block_count takes 4 bytes, but only 2"),
        # Published flaws of readers of this format.
        Seed(
            "cve_2024_21802_dimensions",
            gguf([], [string("t") + struct.pack("<I", 1000) + struct.pack("<Q", 1) * 1000 + struct.pack("<IQ", 0, 0)]),
            "1000 dimensions",
        ),
        Seed(
            "cve_2025_53630_sum_of_sizes",  # each fits 64 bits, their sum wraps to little
            gguf([], [tensor("a", (big - 8,), 0, 0), tensor("b", (16,), 0, 64)], floats),
            "tensor 'a' has",
        ),
        Seed(
            "cve_2025_49847_token_of_2_gib",
            gguf(
                [
                    string("tokenizer.ggml.tokens")
                    + struct.pack("<IIQ", ARRAY, STRING, 2)
                    + string("a")
                    + struct.pack("<Q", (1 << 31) + 8)
                    + b"b" * 64
                ]
            ),
            "string 1 of tokenizer.ggml.tokens takes 2147483656 bytes",
        ),
        Seed(
            "cve_2026_27940_size_and_overhead",  # fits 64 bits; with what a reader adds for its objects it wraps
            gguf([], [tensor("a", (big - 128,), 0, 0)], floats),
            "tensor 'a' has",
        ),
        Seed(
            "count_of_tensors_times_their_size",  # n × the size of a description wraps, and with it what is allocated
            gguf(two, [tensor("a", (16,), 0, 0)], floats, counts=((1 << 63) // 184 + 1, 2)),
            f"promises {(1 << 63) // 184 + 1} tensors",
        ),
        Seed(
            "padding_of_a_size_near_the_top",  # padding it to the alignment wraps to nothing
            gguf([], [tensor("a", (big - 1,), 0, 0), tensor("b", (8,), 0, 32)], floats),
            "tensor 'a' has",
        ),
        Seed(
            "cve_2026_33298_product_of_dimensions",  # 2^22+1 · 2^22+1 · … = 4 modulo 2^64
            gguf([], [tensor("a", (4194305, 4194305, 211106198978564), 0, 0)], floats),
            "tensor 'a' has",
        ),
        Seed("cve_2026_33298_row_times_rows", gguf([], [tensor("a", (1 << 20, 1 << 44), 0, 0)], floats), "'a' has"),
        # Known classes of flaws.
        Seed("dimension_0", gguf([], [tensor("a", (4, 0), 0, 0)], floats), "dimensions [4, 0]"),
        Seed("dimensions_none", gguf([], [tensor("a", (), 0, 0)], floats), "0 dimensions"),
        Seed("dimension_negative", gguf([], [tensor("a", ((1 << 64) - 1,), 0, 0)], floats), "tensor 'a' has"),
        Seed("alignment_0", gguf([pair("general.alignment", U32, 0)]), "general.alignment is 0"),
        Seed("alignment_24", gguf([pair("general.alignment", U32, 24)]), "general.alignment is 24"),
        Seed("alignment_of_text", gguf([pair("general.alignment", STRING, "32")]), "general.alignment is '32'"),
        Seed(
            "alignment_2_gib",
            gguf([pair("general.alignment", U32, 1 << 31)], [tensor("a", (4,), 0, 0)], floats),
            "tensor 'a' has 16 bytes from byte 2147483648",
        ),
        Seed("cve_2024_23605_count_of_pairs", gguf(two, counts=(0, 1 << 40)), "promises 1099511627776 entries"),
        Seed("count_of_pairs_all_bits", gguf(two, counts=(0, (1 << 64) - 1)), "promises 18446744073709551615 entries"),
        Seed("count_of_pairs_without_room", gguf(two[1:], counts=(0, 4)), "room for"),
        Seed("count_of_pairs_one_more", gguf(two, counts=(0, 3)) + bytes(16), "key of metadata has 0 bytes"),
        Seed("key_longer_than_the_file", gguf([struct.pack("<Q", 60000) + b"k" * 64]), "takes 60000 bytes"),
        Seed("key_of_all_bits", gguf([struct.pack("<Q", (1 << 64) - 1) + b"k" * 64]), "18446744073709551615 bytes"),
        Seed("key_empty", gguf([pair("", U32, 1)]), "has 0 bytes"),
        Seed("key_not_utf8", gguf([pair(b"\xff\xfe", U32, 1)]), "not UTF-8"),
        Seed("key_twice", gguf([*two, two[1]]), "'llama.block_count' of metadata is there twice"),
        Seed(
            "text_longer_than_the_file",
            gguf([string("general.name") + struct.pack("<IQ", STRING, 1 << 33) + b"x" * 32]),
            "general.name takes 8589934592 bytes",
        ),
        Seed("text_not_utf8", gguf([pair("general.name", STRING, b"\xc3(")]), "not UTF-8"),
        Seed("type_of_value_13", gguf([string("x") + struct.pack("<IQ", 13, 0)]), "type of x is 13"),
        Seed("type_of_elements_13", gguf([string("x") + struct.pack("<IIQ", ARRAY, 13, 0)]), "array x is 13"),
        Seed(
            "type_of_elements_all_bits",
            gguf([string("x") + struct.pack("<IIQ", ARRAY, 0xFFFFFFFF, 1) + bytes(8)]),
            "array x is 4294967295",
        ),
        Seed(
            "array_longer_than_the_file",
            gguf([string("x") + struct.pack("<IIQ", ARRAY, U32, 1 << 40) + bytes(64)]),
            "takes 4398046511104 bytes",
        ),
        Seed(
            "array_whose_size_wraps",
            gguf([string("x") + struct.pack("<IIQ", ARRAY, U64, (1 << 61) + 1) + bytes(64)]),
            "takes 18446744073709551624 bytes",
        ),
        Seed(
            "array_of_texts_without_texts",
            gguf([string("x") + struct.pack("<IIQ", ARRAY, STRING, 1 << 32) + bytes(64)]),
            "4294967296 strings",
        ),
        Seed(
            "arrays_in_arrays",
            gguf([string("x") + struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * 5000 + bytes(12)]),
            "array of arrays",
        ),
        Seed("bool_of_2", gguf([string("x") + struct.pack("<IB", BOOL, 2)]), "x is 2"),
        Seed("bools_of_2", gguf([string("x") + struct.pack("<IIQB", ARRAY, BOOL, 1, 2)]), "a bool of 2"),
        Seed("name_of_a_tensor_long", gguf([], [tensor("n" * 65, (4,), 0, 0)], floats), "name of a tensor has 65"),
        Seed("name_twice", gguf([], [tensor("a", (4,), 0, 0), tensor("a", (4,), 0, 32)], floats), "described twice"),
        Seed("type_unknown_past_the_end", gguf([], [tensor("a", (4,), 99, 64)], bytes(16)), "but the file ends"),
        Seed("offset_past_the_end", gguf([], [tensor("a", (4,), 0, 4096)], floats), "the file ends at byte"),
        Seed("offset_whose_sum_wraps", gguf([], [tensor("a", (4,), 0, (1 << 64) - 32)], floats), "the file ends at"),
        Seed("offset_unaligned", gguf([], [tensor("a", (4,), 0, 4)], floats), "offset 4"),
        Seed(
            "tensors_overlap",
            gguf([], [tensor("a", (16,), 0, 0), tensor("b", (4,), 0, 32)], floats),
            "inside tensor 'a'",
        ),
        Seed("data_cut_off", gguf([], [tensor("a", (16,), 0, 0)], bytes(63)), "the file ends at byte"),
        Seed("row_not_of_blocks", gguf([], [tensor("a", (33,), 2, 0)], floats), "rows of 33 elements"),
    ]


def models() -> list[Seed]:
    """Files whose container is in order, and whose model is, or is not."""
    one = pair("general.architecture", STRING, "llama")

    def without(name: str) -> bytes:
        kept = {key: entry for key, entry in weights().items() if key != name}
        entries, data = laid_out(kept)
        return gguf(settings() + vocabulary(), entries, data)

    def reshaped(name: str, kind: str, sizes: tuple[int, ...]) -> bytes:
        entries, data = laid_out({**weights(), name: (kind, sizes)})
        return gguf(settings() + vocabulary(), entries, data)

    def with_divisors(count: int, kind: str = "f32") -> bytes:
        entries, data = laid_out({**weights(), "rope_freqs.weight": (kind, (count,))})
        return gguf(settings() + vocabulary(), entries, data)

    def words(change: dict[int, str], tokenizer: str = "llama") -> bytes:
        entries, data = laid_out(weights("f32", vocab=268 if tokenizer == "llama" else 261))
        return gguf(settings() + vocabulary(tokenizer, change), entries, data)

    numbers = (ARRAY, (U32, [1, 2]))
    ggml = "tokenizer.ggml."
    kinds = [kind for _, _, kind in spm_vocabulary()]
    return [
        Seed("token_byte_minus_1", words({3: "<0x-1>"}), "byte token 3 is '<0x-1>'"),
        Seed("token_byte_of_letters", words({3: "<0xZZ>"}), "byte token 3 is '<0xZZ>'"),
        Seed("token_byte_twice", words({3: "<0x01>"}), "byte token 4 is '<0x01>'"),
        Seed("token_empty", words({260: ""}), "token 260 of tokenizer.ggml.tokens is empty"),
        Seed("token_twice", words({260: "o"}), "duplicate tokens (1)"),
        Seed("token_with_a_zero", words({260: "a\0b"}), "null character"),
        Seed("tokenizer_unknown", retold(ggml + "model", STRING, "plamo2"), "tokenizer.ggml.model is 'plamo2'"),
        Seed("tokenizer_of_numbers", retold(ggml + "model", *numbers), "tokenizer.ggml.model is array"),
        Seed("tokens_missing", retold(ggml + "tokens", None, 0), "vocab_size is missing"),
        Seed("tokens_of_numbers", retold(ggml + "tokens", *numbers), "vocab_size is missing"),
        Seed("kinds_missing", retold(ggml + "token_type", None, 0), "tokenizer.ggml.token_type is missing"),
        Seed("kinds_too_few", retold(ggml + "token_type", ARRAY, (I32, kinds[:-1])), "token_type has 267 entries"),
        Seed("kinds_of_7", retold(ggml + "token_type", ARRAY, (I32, [7, *kinds[1:]])), "token_type has 7 for token 0"),
        Seed("kinds_of_minus_1", retold(ggml + "token_type", ARRAY, (I32, [-1, *kinds[1:]])), "has -1 for token 0"),
        Seed("kinds_of_0", retold(ggml + "token_type", ARRAY, (I32, [0, *kinds[1:]])), "has 0 for token 0"),
        Seed("unknown_none", retold(ggml + "token_type", ARRAY, (I32, [1, *kinds[1:]])), "has 0 unknown tokens"),
        Seed("unknown_twice", retold(ggml + "token_type", ARRAY, (I32, [*kinds[:-1], 2])), "has 2 unknown tokens"),
        Seed("unknown_of_another", retold(ggml + "unknown_token_id", U32, 3), "is 3, but the unknown token is 0"),
        Seed(
            "byte_too_few",
            retold(ggml + "token_type", ARRAY, (I32, [*kinds[:3], 1, *kinds[4:]])),
            "has 255 byte tokens",
        ),
        Seed("scores_too_few", retold(ggml + "scores", ARRAY, (F32, [0.0] * 267)), "scores has 267 entries"),
        Seed("scores_missing", retold(ggml + "scores", None, 0), "tokenizer.ggml.scores is missing"),
        Seed("scores_not_finite", retold(ggml + "scores", ARRAY, (F32, [float("nan")] * 268)), "scores has nan"),
        Seed("scores_of_integers", retold(ggml + "scores", ARRAY, (I32, [0] * 268)), "scores is of another type"),
        Seed("unknown_beyond_the_tokens", retold(ggml + "unknown_token_id", U32, 268), "unknown_token_id is 268"),
        Seed("begin_beyond_the_tokens", retold(ggml + "bos_token_id", U32, 1 << 31), "bos_token_id is 2147483648"),
        Seed("end_of_turn_of_all_bits", retold(ggml + "eot_token_id", U32, 2**32 - 1), "eot_token_id is 4294967295"),
        Seed("flag_of_a_number", retold(ggml + "add_bos_token", U32, 1), "add_bos_token is 1; it must be a bool"),
        Seed("end_of_minus_1", retold(ggml + "eos_token_id", I32, -1), "eos_token_id is -1"),
        Seed("merges_missing", retold(ggml + "merges", None, 0, "gpt2"), "tokenizer.ggml.merges is missing"),
        Seed("merge_of_one", retold(ggml + "merges", ARRAY, (STRING, ["h"]), "gpt2"), "merge 0 is 'h'"),
        Seed("merge_of_three", retold(ggml + "merges", ARRAY, (STRING, ["h e l"]), "gpt2"), "merge 0 is 'h e l'"),
        Seed("merge_of_no_tokens", retold(ggml + "merges", ARRAY, (STRING, ["h x9"]), "gpt2"), "is not a tokenizer"),
        Seed("letter_twice", words({3: "he"}, "gpt2"), "has duplicate tokens (1)"),
        Seed(
            "cut_missing", retold(ggml + "pre", None, 0, "gpt2"), "cuts text (tokenizer.ggml.pre is missing): convert"
        ),
        Seed("cut_default", retold(ggml + "pre", STRING, "default", "gpt2"), "(tokenizer.ggml.pre is 'default'): "),
        Seed("cut_unknown", retold(ggml + "pre", STRING, "what", "gpt2"), "cuts text as 'what'"),
        Seed(
            "template_of_a_number", retold("tokenizer.chat_template", U32, 1), "tokenizer.chat_template is not a string"
        ),
        *(Seed(f"valid_{kind}", model(kind), None) for kind in ("f32", "f16", "bf16", "q4_0", "q5_1", "q8_0")),
        Seed("valid_v2", model("q8_0", version=2), None),
        Seed("valid_gpt2", model("f16", "gpt2"), None),
        Seed("valid_moe", model("q4_0", experts=4), None),
        Seed("valid_tied", without("output.weight"), None),
        Seed(
            "valid_linear",
            model(llama__rope__scaling__type=(STRING, "linear"), llama__rope__scaling__factor=(F32, 2.0)),
            None,
        ),
        Seed("no_metadata", gguf(), "general.architecture is None"),
        Seed("other_architecture", model(general_architecture=(STRING, "gpt2")), "general.architecture is 'gpt2'"),
        Seed("architecture_of_numbers", model(general_architecture=numbers), "general.architecture is array"),
        Seed("nothing_else", gguf([one]), "llama.attention.head_count is missing"),
        Seed("heads_0", model(llama_attention_head_count=(U32, 0)), "llama.attention.head_count is 0"),
        Seed("heads_of_text", model(llama_attention_head_count=(STRING, "4")), "head_count is '4'"),
        Seed("heads_a_layer_that_differ", model(llama_attention_head_count_kv=numbers), "head_count_kv is array"),
        Seed("kv_heads_no_divisor", model(llama_attention_head_count_kv=(U32, 3)), "num_kv_heads is 3"),
        Seed("hidden_0", model(llama_embedding_length=(U32, 0)), "llama.embedding_length is 0"),
        Seed("layers_0", model(llama_block_count=(U32, 0)), "llama.block_count is 0"),
        Seed("layers_10000", model(llama_block_count=(U32, 10000)), "12 tensors; the configuration makes it 10000"),
        Seed(
            "layers_of_all_bits", model(llama_block_count=(U64, (1 << 64) - 1)), "block_count is 18446744073709551615"
        ),
        Seed("layers_negative", model(llama_block_count=(I32, -1)), "block_count is -1"),
        Seed("layers_of_float", model(llama_block_count=(F32, 1.0)), "block_count is 1.0"),
        Seed("context_0", model(llama_context_length=(U32, 0)), "llama.context_length is 0"),
        Seed("eps_not_a_number", model(llama_attention_layer_norm_rms_epsilon=(F32, float("nan"))), "epsilon is nan"),
        Seed("base_infinite", model(llama_rope_freq_base=(F32, float("inf"))), "freq_base is inf"),
        Seed("base_0", model(llama_rope_freq_base=(F32, 0.0)), "rope.base is 0.0"),
        Seed("rope_of_half_heads", model(llama_rope_dimension_count=(U32, 4)), "rope.dimension_count is 4"),
        Seed("scaling_of_numbers", model(llama__rope__scaling__type=numbers), "rope.scaling.type is array"),
        Seed("scaling_unknown", model(llama__rope__scaling__type=(STRING, "xpos")), "rope.scaling.type is 'xpos'"),
        Seed("window", model(llama__attention__sliding_window=(U32, 16)), "attends to all of the context"),
        Seed("layers_missing", model(llama_block_count=None), "llama.block_count is missing"),
        Seed("window_of_numbers", model(llama__attention__sliding_window=numbers), "sliding_window is array"),
        Seed("tokens_of_a_number", gguf([*settings(), pair("tokenizer.ggml.tokens", U32, 5)]), "vocab_size is missing"),
        Seed("experts_without_use", model(llama__expert_count=(U32, 4)), "expert_used_count is missing"),
        Seed("experts_by_the_billion", model(experts=4, llama_expert_count=(U32, (1 << 31) - 1)), "has shape [4, 32]"),
        Seed("experts_used_above_all", model(experts=4, llama_expert_used_count=(U32, 5)), "experts_per_token is 5"),
        Seed("tensor_missing", without("blk.0.ffn_norm.weight"), "lacks the tensor"),
        Seed("tensor_of_another_shape", reshaped("blk.0.attn_k.weight", "f32", (16, 32)), "has shape [32, 16]"),
        Seed("tensor_of_no_model", reshaped("blk.0.what.weight", "f32", (4,)), "'blk.0.what.weight'"),
        Seed("tensor_of_another_layer", reshaped("blk.7.attn_k.weight", "f32", (32, 16)), "model.layers.7.self_attn"),
        Seed("norm_in_blocks", reshaped("output_norm.weight", "q8_0", (32,)), "is in q8_0"),
        Seed("divisors_too_many", with_divisors(8), "the number of divisors of rope is 8"),
        Seed("divisors_in_blocks", with_divisors(32, "q4_0"), "rope_freqs.weight"),
    ]
