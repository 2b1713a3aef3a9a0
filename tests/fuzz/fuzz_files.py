"""Mutators of the smaller formats: safetensors, token shards, templates, and folders of files as one piece of bytes."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import fuzz_gguf
import fuzz_json
import fuzz_protobuf
from fuzz_values import TEXTS, byte_level, whole

SAFETENSORS_KEYS = tuple(
    """
    dtype shape data_offsets __metadata__ format model.norm.weight lm_head.weight
    model.layers.0.self_attn.q_proj.weight model.layers.0.self_attn.q_proj.weight_scale
    model.layers.0.mlp.ffn_sub_norm.weight
    """.split()
)
DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I8", "U8", "BOOL", "F8_E4M3", "F4", "C64", "X", "")
CONFIG_KEYS = tuple(
    """
    model_type architectures vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads
    num_key_value_heads head_dim num_local_experts num_experts_per_tok max_position_embeddings rms_norm_eps rope_theta
    rope_scaling rope_parameters rope_type type factor low_freq_factor high_freq_factor
    original_max_position_embeddings hidden_act tie_word_embeddings attention_bias mlp_bias quantization_config
    quant_method linear_class quantization_mode modules_to_not_convert blocks sliding_window router_aux_loss_coef
    initializer_range nncuda norm_topk_prob ntk_alpha extended_context capacity_factor bos_token_id eos_token_id
    weight_map metadata chat_template bos_token eos_token content hidden_activation query_pre_attn_scalar
    attn_logit_softcapping final_logit_softcapping layer_types sliding_window_pattern rope_local_base_freq
    full_attention sliding_attention
    """.split()
)
CONFIG_TEXTS = (
    *TEXTS,
    *("gemma2", "gemma3_text", "gelu_pytorch_tanh", "full_attention", "sliding_attention"),
    *("llama", "mixtral", "silu", "gelu", "default", "linear", "dynamic", "yarn", "llama3", "ntk"),
    *("bitnet", "relu2", "bitlinear", "autobitlinear", "online", "offline", "nncuda-tern2", "q8_0", "q6_k"),
    *("model.safetensors", "/etc/passwd", "..", ".", "model-00001-of-00002.safetensors", "a/../b", "x\0y"),
)
TOKENIZER_KEYS = tuple(
    """
    model type vocab merges unk_token byte_fallback dropout added_tokens id content special normalizer pre_tokenizer
    post_processor decoder pretokenizers decoders normalizers pattern Regex String behavior invert prepend
    prepend_scheme split ignore_merges truncation padding strategy max_length stride single pair special_tokens ids
    tokens add_prefix_space use_regex trim_offsets replacement lstrip rstrip single_word normalized
    """.split()
)
TOKENIZER_TEXTS = (
    *TEXTS,
    *("BPE", "Unigram", "WordPiece", "WordLevel", "ByteLevel", "Sequence", "Metaspace", "Replace", "Prepend", "Strip"),
    *("ByteFallback", "Fuse", "Split", "Isolated", "Removed", "TemplateProcessing", "NFC", "NFKC", "Precompiled"),
    *("(a+)+$", "(?:a|a)*b", "\\p{L}{1,100000}", "(", "[", "a b", "a", "b", "<0x41>", "Digits", "Punctuation"),
)
# Parts of a tokenizer.json that the library takes, by where they stand.
_REGEX = (
    *({"String": " "}, {"String": ""}, {"Regex": "\\s+"}, {"Regex": "(?:a|aa)+c"}, {"Regex": ""}),
    {"Regex": "\\p{L}+|."},
)
TOKENIZER_PARTS: dict[str, tuple[dict[str, Any], ...]] = {
    "normalizer": (
        *({"type": kind} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt", "StripAccents", "ByteLevel")),
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Prepend", "prepend": "▁"},
        *({"type": "Replace", "pattern": pattern, "content": new} for pattern in _REGEX for new in ("", "▁", "aa")),
        {"type": "Sequence", "normalizers": []},
    ),
    "pre_tokenizer": (
        *({"type": kind} for kind in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts")),
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": False},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
        {"type": "Digits", "individual_digits": True},
        {"type": "Punctuation", "behavior": "Contiguous"},
        {"type": "CharDelimiterSplit", "delimiter": "a"},
        {"type": "FixedLength", "length": 0},
        *(
            {"type": "Split", "pattern": pattern, "behavior": how, "invert": how == "Removed"}
            for pattern in _REGEX
            for how in ("Isolated", "Removed", "MergedWithNext")
        ),
        {"type": "Sequence", "pretokenizers": []},
    ),
    "decoder": (
        *({"type": kind} for kind in ("ByteFallback", "Fuse")),
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        {"type": "WordPiece", "prefix": "", "cleanup": True},
        {"type": "BPEDecoder", "suffix": ""},
        {"type": "CTC", "pad_token": "", "word_delimiter_token": "a", "cleanup": True},
        {"type": "Strip", "content": " ", "start": 1 << 31, "stop": 1},
        *({"type": "Replace", "pattern": pattern, "content": "▁a"} for pattern in _REGEX),
        {"type": "Sequence", "decoders": []},
    ),
    "post_processor": (
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "BertProcessing", "sep": ["a", 1 << 31], "cls": ["b", 0]},
        {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1, (1 << 32) - 1], "tokens": ["<s>", "a"]}},
        },
    ),
    "truncation": ({"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 1 << 31},),
    "model": (
        {"type": "WordLevel", "vocab": {"a": 0, "<unk>": 7}, "unk_token": "<unk>"},
        {
            "type": "WordPiece",
            "unk_token": "<unk>",
            "continuing_subword_prefix": "",
            "max_input_chars_per_word": 0,
            "vocab": {"a": 0, "<unk>": 1},
        },
        {
            "type": "Unigram",
            "unk_id": None,
            "vocab": [["a", 1e308], ["", 0.0], ["<0x61>", -1e308]],
            "byte_fallback": True,
        },
        {
            "type": "BPE",
            "unk_token": None,
            "byte_fallback": True,
            "ignore_merges": True,
            "vocab": {"a": 0, "b": 1, "ab": 2, "<0x0A>": 3},
            "merges": [["a", "b"]],
        },
    ),
}
TEMPLATE_PIECES = (
    *("{% for m in messages %}", "{% endfor %}", "{% for i in range(1000000000) %}"),
    *("{% for i in range(99999) %}{% for j in range(99999) %}", "{% endfor %}{% endfor %}"),
    *("{% if m['role'] == 'user' %}", "{% else %}", "{% endif %}", "{{ m['content'] }}", "{{ messages }}"),
    *("{{ 'a' * 1000000000 }}", "{{ [0] * 1000000000 }}", "{{ 9 ** (9 ** 9) }}", "{{ 2 ** 100000 }}"),
    *("{{ '%1000000000d' % 1 }}", "{{ '{:>1000000000}'.format(1) }}", "{{ 'a'.ljust(1000000000) }}"),
    *("{{ 'a'|center(1000000000) }}", "{{ 'a'|indent(1000000000) }}", "{{ lipsum(n=100000) }}"),
    *("{{ [1]|batch(1000000000, 0)|list }}", "{{ ''.__class__.__mro__ }}", "{{ cycler.__init__.__globals__ }}"),
    *("{{ raise_exception('no') }}", "{{ raise_exception }}", "{% set x = namespace(a='ab') %}"),
    "{% for i in range(60) %}{% set x.a = x.a + x.a %}{% endfor %}",
    "{% for i in range(60) %}{% set x.a = x.a ~ x.a %}{% endfor %}",
    "{% for i in range(60) %}{% set x.a = x.a|replace('a', x.a) %}{% endfor %}",
    "{% for i in range(60) %}{% set x.a = [x.a, x.a]|join %}{% endfor %}",
    "{% macro f(n) %}{{ f(n - 1) }}{{ f(n - 1) }}{% endmacro %}",
    *("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}", "{{ f(40) }}"),
    *("{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{{ bos_token }}", "{{ eos_token }}"),
    *("{{ undefined.x }}", "{{ 1 / 0 }}", "{{ 'x'|no_such_filter }}", "{% generation %}{% endgeneration %}"),
    *("{% break %}", "{% if add_generation_prompt %}", "{{ messages|tojson }}", "{{ strftime_now('%Y') }}"),
    *("{{ strftime_now('%' * 9999) }}", "{%- ", " -%}", "{#", "{{ ", " }}"),
    *("{{ 9999999999999999999999|string * 99 }}", "{% set messages = messages[1:] %}", "{{ messages[99]['role'] }}"),
    *("{% filter upper %}", "{% endfilter %}", "{% call f(1) %}{% endcall %}", "{{ '(' * 5000 }}"),
    "{{" + "(" * 300 + "1" + ")" * 300 + "}}",
)
FOLDER_MAGIC = b"FOLDER\n"


def mutate_gguf(data: bytes, rng: random.Random) -> bytes:
    """A GGUF file."""
    return fuzz_gguf.mutate(data, rng)


def mutate_tokenizer_model(data: bytes, rng: random.Random) -> bytes:
    """A SentencePiece model."""
    return fuzz_protobuf.mutate(data, rng)


def mutate_tokenizer_json(data: bytes, rng: random.Random) -> bytes:
    """A `tokenizer.json`: one of its parts another, or a change inside it."""
    if rng.random() < 0.5:
        try:
            whole_file = json.loads(data)
            slot = rng.choice(list(TOKENIZER_PARTS))
            part = rng.choice(TOKENIZER_PARTS[slot])
            inner = next((key for key in part if part.get("type") == "Sequence" and key != "type"), None)
            if inner:
                part = {**part, inner: [rng.choice(TOKENIZER_PARTS[slot]) for _ in range(rng.randrange(5))]}
            whole_file[slot] = part
            data = json.dumps(whole_file).encode()
        except (ValueError, RecursionError, TypeError):
            pass
        if rng.random() < 0.6:
            return data
    return fuzz_json.mutate(data, rng, TOKENIZER_KEYS, TOKENIZER_TEXTS)


RECORD_KEYS = ("step", "loss", "held_out_loss", "expert_shares", "grad_norm", "tokens", "seconds")
CONVERSATION_KEYS = (
    "text",
    "messages",
    "role",
    "content",
    "tools",
    "tool_calls",
    "function",
    "arguments",
    "type",
    "id",
)
TOML_VALUES = (
    b"1", b"0", b"-1", b"1.5", b"nan", b"-inf", b"1e400", b"5e-324", b"9" * 400, b"0x" + b"f" * 900, b"true", b'"none"',
    b'"f16"', b'"\\u0000"', b"[1, 2]", b"{a = 1}", b"1979-05-27", b"[" * 900, b"{a = " * 300, b"'a'",
)  # fmt: skip


def mutate_config(data: bytes, rng: random.Random) -> bytes:
    """A `config.json`, index or the like."""
    return fuzz_json.mutate(data, rng, CONFIG_KEYS, CONFIG_TEXTS)


def mutate_lines(data: bytes, rng: random.Random, keys: tuple[str, ...] = RECORD_KEYS) -> bytes:
    """A JSONL file: one of its lines another, twice, gone, or a change inside it."""
    lines = data.splitlines(keepends=True) or [b""]
    at = rng.randrange(len(lines))
    choice = rng.randrange(6)
    if choice == 0:
        lines[at:at] = [rng.choice(lines)]
    elif choice == 1:
        del lines[at]
    elif choice == 2:
        return byte_level(rng, data)
    else:
        lines[at] = fuzz_json.mutate(lines[at].rstrip(b"\n"), rng, keys) + rng.choice((b"\n", b"\r\n", b""))
    return b"".join(lines)


def mutate_conversations(data: bytes, rng: random.Random) -> bytes:
    """The same of records to train on."""
    return mutate_lines(data, rng, CONVERSATION_KEYS)


def mutate_toml(data: bytes, rng: random.Random) -> bytes:
    """A configuration in TOML: the name or the value of a line another, or bytes changed."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    name, equals, _ = lines[at].partition(b" = ")
    if rng.randrange(6) == 0:
        return byte_level(rng, data)
    if not equals or rng.randrange(4) == 0:
        lines[at] = rng.choice((b"[model]", b"[x]", b"[[train]]", b"a." * 900 + b"b = 1", name + b".x = 1", b"", b"\0"))
    else:
        lines[at] = name + equals + rng.choice(TOML_VALUES)
    return b"\n".join(lines)


def mutate_safetensors(data: bytes, rng: random.Random) -> bytes:
    """A safetensors file: its length of header, its entries, its data."""
    if len(data) < 8 or rng.randrange(10) == 0:
        return byte_level(rng, data)
    (length,) = struct.unpack_from("<Q", data)
    header, body = data[8 : 8 + length], data[8 + length :]
    if rng.random() < 0.2:
        body = rng.choice((body[: rng.randrange(len(body) + 1)], body + bytes(rng.choice((1, 4, 64))), b""))
    else:
        header = fuzz_json.mutate(header, rng, SAFETENSORS_KEYS, (*DTYPES, *TEXTS))
    length = len(header)
    if rng.random() < 0.15:
        length = whole(rng, length, 64, len(data))
    if rng.random() < 0.1:
        header += b" " * rng.choice((1, 7, 1000))
    return struct.pack("<Q", length) + header + body


def mutate_shard(data: bytes, rng: random.Random) -> bytes:
    """A token shard: one field of its header, or its ids."""
    if len(data) < 64 or rng.randrange(6) == 0:
        return byte_level(rng, data)
    start, stop = rng.choice(((0, 8), (8, 12), (12, 16), (16, 24), (24, 32), (32, 64), (64, len(data))))
    now = data[start:stop]
    if stop - start in (4, 8) and start:
        size = stop - start
        new = whole(rng, int.from_bytes(now, "little"), 8 * size, len(data)).to_bytes(size, "little")
    else:
        new = byte_level(rng, now)
    return data[:start] + new + data[stop:]


def mutate_template(data: bytes, rng: random.Random) -> bytes:
    """A chat template: pieces put in, taken out, doubled."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = data.decode("utf-8", "replace")
        at = rng.randrange(len(text) + 1)
        choice = rng.randrange(5)
        if choice == 0:
            data = byte_level(rng, data)
            continue
        if choice == 1 and text:
            stop = min(len(text), at + rng.randrange(1, 60))
            text = text[:at] + text[stop:]
        elif choice == 2 and "{" in text:  # in front of a tag, where it stands as one
            at = rng.choice([i for i, sign in enumerate(text) if sign == "{"])
            text = text[:at] + rng.choice(TEMPLATE_PIECES) + text[at:]
        elif choice == 3:
            text += rng.choice(TEMPLATE_PIECES)
        else:
            text = text[:at] + rng.choice(TEMPLATE_PIECES) + text[at:]
        data = text.encode("utf-8", "replace")
    return data[:8192]


def pack_folder(files: dict[str, bytes]) -> bytes:
    """Files as one piece of bytes: a line of name and size before each."""
    return FOLDER_MAGIC + b"".join(f"{name} {len(data)}\n".encode() + data for name, data in files.items())


def unpack_folder(data: bytes) -> dict[str, bytes]:
    """The files of `pack_folder`; what cannot be made out is left away."""
    files: dict[str, bytes] = {}
    at = len(FOLDER_MAGIC)
    while at < len(data):
        end = data.find(b"\n", at)
        name, _, size = data[at:end].decode("utf-8", "replace").partition(" ")
        if end < 0 or not size.isdecimal() or len(size) > 9 or Path(name).name != name or name in ("", ".", ".."):
            break
        files[name] = data[end + 1 : end + 1 + int(size)]
        at = end + 1 + int(size)
    return files


BY_SUFFIX = {
    ".gguf": mutate_gguf,
    ".safetensors": mutate_safetensors,
    ".model": mutate_tokenizer_model,
    ".jinja": mutate_template,
    ".tokens": mutate_shard,
}


def mutate_folder(data: bytes, rng: random.Random) -> bytes:
    """A folder: one of its files changed as its kind asks, taken away, or under the name of another."""
    files = unpack_folder(data)
    if not files:
        return byte_level(rng, data)
    name = rng.choice(list(files))
    choice = rng.randrange(12)
    if choice == 0:
        del files[name]
    elif choice == 1:
        files[rng.choice(list(files))] = files[name]
    elif name == "tokenizer.json":
        files[name] = mutate_tokenizer_json(files[name], rng)
    elif name == "tokenizer_config.json" and choice == 2:
        content = json.dumps({"chat_template": rng.choice(TEMPLATE_PIECES)})
        files[name] = content.encode()
    else:
        files[name] = BY_SUFFIX.get(Path(name).suffix, mutate_config)(files[name], rng)
    return pack_folder(files)
