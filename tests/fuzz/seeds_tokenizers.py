"""Small tokenizers and chat templates, valid and hostile."""

from __future__ import annotations

import base64
import json
import struct

from fuzz_protobuf import dump
from seeds_gguf import Seed


def piece(text: bytes, score: float = -1.0, kind: int = 1) -> list:
    return [1, 2, dump([[1, 2, text], [2, 5, struct.pack("<f", score)], [3, 0, kind]])]


def sentencepiece(pieces: list, trainer: list = (), normalizer: list = ()) -> bytes:  # type: ignore[assignment]
    return dump([*pieces, [2, 2, dump(list(trainer))], [3, 2, dump(list(normalizer))]])


def tokenizer_models() -> list[Seed]:
    """SentencePiece models."""
    bpe, fallback = [3, 0, 2], [35, 0, 1]
    start = [piece(b"<unk>", 0, 2), piece(b"<s>", 0, 3), piece(b"</s>", 0, 3)]
    every = [piece(b"<0x%02X>" % byte, 0, 6) for byte in range(256)]
    words = [piece(text.encode(), -i) for i, text in enumerate(("▁he", "he", "ll", "o", "▁", "h", "e", "l"))]
    charsmap = struct.pack("<I", 1024) + bytes(1024) + b"a" * 5000 + b"\0"
    wrong = "is not a SentencePiece model"
    return [
        Seed("valid_bpe", sentencepiece(start + every + words, [bpe, fallback]), None),
        Seed("valid_unigram", sentencepiece(start + words, [[3, 0, 1]], [[4, 0, 0]]), None),
        Seed("nothing", b"", wrong),
        Seed("no_pieces", sentencepiece([]), wrong),
        Seed("only_controls", sentencepiece(start), wrong),
        Seed("piece_not_utf8", sentencepiece([*start, *words, piece(b"a\xff")], [bpe]), "is not UTF-8"),
        Seed("piece_empty", sentencepiece([*start, piece(b"")], [bpe]), wrong),
        Seed("piece_twice", sentencepiece([*start, *words, words[0]], [bpe]), wrong),
        Seed("byte_minus_1", sentencepiece([*start, *words, piece(b"<0x-1>", 0, 6)], [bpe, fallback]), wrong),
        Seed("byte_without_fallback", sentencepiece([*start, *words, every[0]], [bpe]), wrong),
        Seed("bytes_missing", sentencepiece([*start, *every[1:], *words], [bpe, fallback]), wrong),
        Seed("length_beyond_the_file", sentencepiece(start) + b"\x0a\xff\xff\xff\xff\x0f", wrong),
        Seed("charsmap_of_long_texts", sentencepiece(start + words, [bpe], [[2, 2, charsmap]]), "makes 5000 bytes"),
        Seed("charsmap_beyond_its_end", sentencepiece(start + words, [bpe], [[2, 2, b"\0\0\0\x80" + bytes(9)]]), wrong),
    ]


def bpe(**change: object) -> dict[str, object]:
    """A tokenizer.json of byte-level BPE over few letters; `change` replaces entries at the top or in `model`."""
    words = ["<unk>", "<s>", "</s>", "h", "e", "l", "o", "a", "he", "ll", "hell", "Ġ"]
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": "<unk>",
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {word: index for index, word in enumerate(words)},
        "merges": [["h", "e"], ["l", "l"], ["he", "ll"]],
    }
    whole: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": model,
    }
    for key, value in change.items():
        (model if key in model and key != "type" else whole)[key] = value
    return whole


def added(index: int, content: str) -> dict[str, object]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": index, "content": content, **flags}


def split(pattern: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replaced(pattern: dict[str, str], content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def normalizers(steps: list[dict[str, object]]) -> dict[str, object]:
    return {"type": "Sequence", "normalizers": steps}


def tokenizer_jsons() -> list[Seed]:
    """Files named tokenizer.json."""
    pieces = [["<unk>", 0.0], ["▁he", -1.0], ["l", -2.0], ["o", -2.5], ["▁", -3.0]]
    unigram = {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False}
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    far = {"h": 0, "l": 1, "ö": (1 << 32) - 1}
    filled = {"strategy": {"Fixed": 1 << 31}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}
    wrong = "is not a tokenizer"

    ended = "it ended its process, perhaps because it ran out of memory"
    before = {"type": "Prepend", "prepend": "a" * (1 << 20)}
    table = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(bytes(8)).decode()}
    beyond = {**table, "precompiled_charsmap": base64.b64encode(b"\4" + bytes(7)).decode()}
    flood = {"type": "Sequence", "decoders": [replaced({"Regex": ""}, "a" * 2000)]}

    def file(value: object) -> bytes:
        return json.dumps(value).encode()

    return [
        Seed("valid_bpe", file(bpe()), None),
        Seed("valid_unigram", file(bpe(model=unigram, pre_tokenizer=space, decoder=space, added_tokens=[])), None),
        Seed("valid_regex", file(bpe(pre_tokenizer=split(r"\p{L}+|\s+"))), None),
        Seed("valid_filled_to_any_length", file(bpe(padding={**filled, "pad_to_multiple_of": None})), None),
        Seed("nothing", b"", wrong),
        Seed("list", b"[]", wrong),
        Seed("depth", b'{"a":' * 5000, wrong),
        Seed("no_model", file({"version": "1.0"}), wrong),
        Seed("no_tokens", file(bpe(vocab={}, merges=[], added_tokens=[], unk_token=None)), "without tokens"),
        Seed("model_unknown", file(bpe(model={"type": "Plamo2"})), wrong),
        Seed("merge_of_no_tokens", file(bpe(merges=[["h", "x"]])), wrong),
        Seed("id_negative", file(bpe(vocab={"h": -1})), wrong),
        Seed("id_beyond_32_bits", file(bpe(vocab={"h": 1 << 32})), wrong),
        Seed("valid_id_far_beyond_the_others", file(bpe(vocab=far, merges=[], added_tokens=[], unk_token=None)), None),
        Seed("regex_wrong", file(bpe(pre_tokenizer=split("("))), wrong),
        Seed("unigram_without_pieces", file(bpe(model={**unigram, "vocab": []}, added_tokens=[])), wrong),
        Seed("unknown_beyond_the_pieces", file(bpe(model={**unigram, "unk_id": 9})), wrong),
        Seed("text_doubled_60_times", file(bpe(normalizer=normalizers([replaced({"String": "a"}, "aa")] * 60))), ended),
        Seed("bytes_doubled_60_times", file(bpe(normalizer=normalizers([{"type": "ByteLevel"}] * 60))), ended),
        Seed("text_of_a_mebibyte_before_each", file(bpe(normalizer=normalizers([before] * 30))), ended),
        Seed("text_without_end_for_nothing", file(bpe(normalizer=replaced({"Regex": ""}, "a" * 9000000))), ended),
        Seed("expression_that_tries_for_ever", file(bpe(pre_tokenizer=split("(a|aa)+b"))), "gave up"),
        Seed("table_of_characters_cut_off", file(bpe(normalizer=table)), "gave up"),
        Seed("table_of_characters_beyond_its_end", file(bpe(normalizer=beyond)), "gave up"),
        Seed("valid_texts_in_place_of_nothing", file(bpe(decoder=flood)), None),
        Seed("dropout_of_2", file(bpe(dropout=2.0)), wrong),
    ]


def templates() -> list[Seed]:
    """Chat templates."""
    chat = (
        "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] | trim }}{{ eos_token }}\n"
        "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    )
    namespaced = (
        "{%- set ns = namespace(system='') -%}{%- for m in messages -%}{%- if m.role == 'system' -%}"
        "{%- set ns.system = m.content -%}{%- else -%}[{{ m.role | upper }}]{{ m.content }}{%- endif -%}{%- endfor -%}"
        "{{ ns.system }}{{ messages | tojson }}"
    )
    doubled = "{% set x = namespace(a='ab') %}{% for i in range(60) %}{% set x.a = x.a + x.a %}{% endfor %}"
    memory = "too much memory"
    seeds = {
        "valid_plain": ("", None),
        "valid_chat": (chat, None),
        "valid_namespace": (namespaced, None),
        "unfinished": ("{% for m in messages %}", "Unexpected end of template"),
        "raises": ("{{ raise_exception('roles must take turns') }}", "roles must take turns"),
        "undefined": ("{{ nothing.at.all }}", "'nothing' is undefined"),
        "division_by_0": ("{{ 1 // 0 }}", "ZeroDivisionError"),
        "filter_unknown": ("{{ 'x' | no_such_filter }}", "no_such_filter"),
        "file": ("{% include '/etc/passwd' %}", "the chat template fails"),
        "classes": ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        "globals": ("{{ cycler.__init__.__globals__ }}", "SecurityError"),
        "changes_its_messages": ("{{ messages.append(1) }}", "SecurityError"),
        "range_too_big": ("{% for i in range(1000000000) %}{% endfor %}", "Range too big"),
        "forever_loops": ("{% for i in range(99999) %}" * 2 + "{% endfor %}" * 2, "ran for more than 0.5 s"),
        "forever_calls": (
            "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
            "ran for more than 0.5 s",
        ),
        "forever_power": ("{{ 9 ** (9 ** 9) }}", "ran for more than 0.5 s"),
        "recursion": ("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "nested too deeply"),
        "nesting": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested too deeply"),
        "memory_of_a_text": ("{{ 'a' * 2000000000 }}", memory),
        "memory_of_a_list": ("{{ ([0] * 2000000000) | length }}", memory),
        "memory_of_a_width": ("{{ '%2000000000d' % 1 }}", memory),
        "memory_doubled": (doubled, memory),
        "too_much_text": ("{% for i in range(9000) %}{{ 'a' * 9000 }}{% endfor %}", "writes more than 4194304"),
    }
    out = [Seed(name, text.encode(), expected) for name, (text, expected) in seeds.items()]
    out.append(Seed("not_utf8", b"a\xff", "is not UTF-8"))
    out.append(Seed("too_long", b"{# " + b"a" * (1 << 20) + b" #}", "has 1048582 characters"))
    return out
