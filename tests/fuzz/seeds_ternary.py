"""BitNets in folders and GGUF files, valid and hostile: every form that ternary weights are stored in."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

from fuzz_files import pack_folder
from seeds_gguf import F32, STRING, U32, Seed, gguf, pair, tensor
from seeds_others import LLAMA, entry, safetensors

FFN = 66  # not a multiple of 4, nor of 16: of master weights and of tern2
CONFIG = {key: value for key, value in LLAMA.items() if key != "intermediate_size"} | {
    "architectures": ["BitNetForCausalLM"],
    "model_type": "bitnet",
    "hidden_act": "relu2",
    "tie_word_embeddings": True,
}
OFFLINE = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
DIVIDES = {**OFFLINE, "linear_class": "bitlinear"}
ONLINE = {**OFFLINE, "quantization_mode": "online"}
OURS = {"quant_method": "nncuda-tern2"}
SIZES = {"F32": 4, "BF16": 2, "U8": 1}
QUERY = "model.layers.0.self_attn.q_proj.weight"
DOWN = "model.layers.0.mlp.down_proj.weight"
SCALE = QUERY + "_scale"
SUB_NORM = "model.layers.0.mlp.ffn_sub_norm.weight"
#: dtype, shape, bytes.
Stored = tuple[str, list[int], bytes]
Sizes = tuple[int, ...]


def bf16(*numbers: float) -> bytes:
    """Numbers that bf16 holds."""
    return b"".join(struct.pack("<f", number)[2:] for number in numbers)


def repeated(data: bytes, size: int) -> bytes:
    return (data * (size // len(data) + 1))[:size]


def matrix(form: str, rows: int, columns: int) -> Stored:
    """A matrix of a folder; packed bytes have the bits 0, 1 and 2 alone."""
    if form == "numbers":
        return "BF16", [rows, columns], repeated(bf16(1, 0, -1, 0), 2 * rows * columns)
    if form == "packed":
        return "U8", [rows // 4, columns], repeated(bytes((0x00, 0x55, 0xAA, 0x19)), rows // 4 * columns)
    if form == "tern2":  # all zeros, so that what fills up the last sixteen is right
        stored, row_bytes = -(-rows // 16) * 16, -(-columns // 16) * 4
        return "U8", [stored, row_bytes], bytes([0x55]) * (stored * row_bytes)
    return "BF16", [rows, columns], repeated(bf16(0.5, -0.25, 0.0, 0.75, -1), 2 * rows * columns)


def weights(form: str = "master", ffn: int = FFN) -> dict[str, Stored]:
    """The tensors of `CONFIG`, its matrices in a form."""
    found: dict[str, Stored] = {"model.embed_tokens.weight": ("BF16", [64, 32], repeated(bf16(0.5, -1), 64 * 64))}
    layer = "model.layers.0."
    norms = {"model.norm": 32, f"{layer}input_layernorm": 32, f"{layer}post_attention_layernorm": 32}
    norms |= {f"{layer}self_attn.attn_sub_norm": 32, f"{layer}mlp.ffn_sub_norm": ffn}
    for name, size in norms.items():
        found[f"{name}.weight"] = "BF16", [size], bf16(*[1.0] * size)
    shapes = {"self_attn.q": (32, 32), "self_attn.k": (16, 32), "self_attn.v": (16, 32), "self_attn.o": (32, 32)}
    for name, (rows, columns) in (shapes | {"mlp.gate": (ffn, 32), "mlp.up": (ffn, 32), "mlp.down": (32, ffn)}).items():
        found[f"{layer}{name}_proj.weight"] = matrix(form, rows, columns)
        if form != "master":
            found[f"{layer}{name}_proj.weight_scale"] = "F32", [1], struct.pack("<f", 0.5)
    return found


def folder(tensors: dict[str, Stored], quantization: object = None, ffn: int = FFN, **change: object) -> bytes:
    config = {**CONFIG, "intermediate_size": ffn, **change}
    if quantization is not None:
        config["quantization_config"] = quantization
    entries, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        assert len(content) == math.prod(shape) * SIZES[dtype], name
        entries[name] = entry(dtype, shape, len(data), len(data) + len(content))
        data += content
    return pack_folder({"config.json": json.dumps(config).encode(), "model.safetensors": safetensors(entries, data)})


def folders() -> list[Seed]:
    """Hugging Face folders of a BitNet, and those of this library."""
    packed, numbers, ours = weights("packed", 64), weights("numbers"), weights("tern2")

    def other(name: str, stored: Stored | None, tensors: dict[str, Stored] = packed, how: object = OFFLINE) -> bytes:
        changed = {key: value for key, value in tensors.items() if key != name}
        if stored is not None:
            changed[name] = stored
        return folder(changed, how, 64 if tensors is packed else FFN)

    def scale(value: float, how: object = OFFLINE) -> bytes:
        return other(SCALE, ("F32", [1], struct.pack("<f", value)), how=how)

    def master(content: bytes) -> bytes:
        return other(QUERY, ("BF16", [32, 32], repeated(content, 2048)), weights(), None)

    def method(**change: object) -> bytes:
        return folder(packed, {**OFFLINE, **change}, 64)

    def config(**change: object) -> bytes:
        return folder(weights(), **change)

    blocks = {**OURS, "blocks": {"model.embed_tokens.weight": "q8_0"}}
    table = ("U8", [64, 34], bytes(64 * 34))
    return [
        Seed("valid_master", folder(weights()), None),
        Seed("valid_online", folder(weights(), ONLINE), None),
        Seed("valid_packed", folder(packed, OFFLINE, 64), None),
        Seed("valid_packed_divides", folder(packed, DIVIDES, 64), None),
        Seed("valid_numbers", folder(numbers, OFFLINE), None),
        Seed("valid_tern2", folder(ours, OURS), None),
        Seed("valid_tern2_blocks", other("model.embed_tokens.weight", table, ours, blocks), None),
        Seed("valid_silu", config(hidden_act="silu"), None),
        Seed("activation", config(hidden_act="gelu"), "hidden_act is 'gelu'; this engine has 'silu' and 'relu2'"),
        Seed("activation_of_a_list", config(hidden_act=["relu2"]), "hidden_act is ['relu2']"),
        Seed("bias", config(attention_bias=True), "'attention_bias' is True; this engine does not know that option"),
        Seed("layers_10000", config(num_hidden_layers=10000), "the configuration makes it 10000 layers"),
        Seed("quantization_of_a_list", folder(packed, [1], 64), "quantization_config is [1]; it must be an object"),
        Seed("method_unknown", method(quant_method="gptq"), "quant_method is 'gptq'"),
        Seed("method_of_a_list", method(quant_method=["bitnet"]), "quant_method is ['bitnet']"),
        Seed("linear_class_unknown", method(linear_class="linear"), "linear_class is 'linear'; it may be"),
        Seed("mode_unknown", method(quantization_mode="off"), "quantization_mode is 'off'; it may be"),
        Seed("mode_of_a_list", method(quantization_mode=[]), "quantization_mode is []; it may be"),
        Seed("norm_before", method(use_rms_norm=True), "use_rms_norm is True; it may be False"),
        Seed("modules_of_text", method(modules_to_not_convert="lm_head"), "modules_to_not_convert is 'lm_head'"),
        Seed("modules_of_numbers", method(modules_to_not_convert=[1]), "modules_to_not_convert is [1]"),
        Seed("modules_a_number", method(modules_to_not_convert=5), "modules_to_not_convert is 5"),
        Seed("modules_of_layers", method(modules_to_not_convert=["o_proj"]), "has ternary weights in all layers"),
        Seed("blocks_of_a_list", folder(ours, {**OURS, "blocks": ["q8_0"]}), "blocks is ['q8_0']"),
        Seed("blocks_of_a_norm", folder(ours, {**OURS, "blocks": {"model.norm.weight": "q8_0"}}), "blocks is {"),
        Seed("blocks_of_a_list_of_names", folder(ours, {**OURS, "blocks": {"lm_head.weight": []}}), "blocks is {"),
        Seed("blocks_of_f16", folder(ours, {**OURS, "blocks": {"lm_head.weight": "f16"}}), "blocks is {"),
        Seed("blocks_in_numbers", folder(ours, blocks), "model.embed_tokens.weight is bfloat16 [64, 32]; in q8_0"),
        Seed(
            "blocks_that_are_not_whole",
            folder(ours, {**OURS, "blocks": {"model.embed_tokens.weight": "q6_k"}}),
            "not whole blocks of q6_k",
        ),
        Seed("bits_3", other(QUERY, ("U8", [8, 32], bytes([0x55, 0x5D]) * 128)), "two-bit code 3, which is not"),
        Seed("bits_3_tern2", other(QUERY, ("U8", [32, 8], b"\xff" * 256), ours, OURS), "two-bit code 3, which is not"),
        Seed(
            "weights_behind_the_last",
            other(DOWN, ("U8", [32, 20], b"\xaa" * 640), ours, OURS),
            "has weights other than 0 beyond its last row or column",
        ),
        Seed("scale_0", scale(0.0), "has the weight_scale 0.0; it must be finite and above 0"),
        Seed("scale_below_0", scale(-0.5), "has the weight_scale -0.5"),
        Seed("scale_not_a_number", scale(math.nan), "has the weight_scale nan"),
        Seed("scale_infinite", scale(math.inf), "has the weight_scale inf"),
        Seed("scale_whose_inverse_is_infinite", scale(1e-45, DIVIDES), "has the factor inf"),
        Seed("scale_whose_inverse_is_0", scale(math.inf, DIVIDES), "has the weight_scale inf"),
        Seed("scale_missing", other(SCALE, None), f"lacks the tensor {SCALE}"),
        Seed("scale_a_row", other(SCALE, ("F32", [2], bytes(8))), "is f32 [2]; it must be one number"),
        Seed("scale_of_bytes", other(SCALE, ("U8", [1], b"\1")), "has dtype uint8; weights are f32, f16 or bf16"),
        Seed(
            "scale_of_no_matrix",
            other("model.layers.7.mlp.up_proj.weight_scale", ("F32", [1], bytes(4))),
            "has the tensor 'model.layers.7.mlp.up_proj.weight_scale'",
        ),
        Seed("packed_but_online", folder(packed, ONLINE, 64), "packed weights, but config.json describes none"),
        Seed("packed_without_a_word", folder(packed, None, 64), "packed weights, but config.json describes none"),
        Seed("packed_of_all_rows", other(QUERY, ("U8", [32, 32], bytes(1024))), "makes it [8, 32], four outputs to a"),
        Seed(
            "packed_of_66_rows",
            other("model.layers.0.mlp.up_proj.weight", ("U8", [16, 32], bytes(512)), numbers),
            "has 66 outputs; packed weights need a multiple of 4",
        ),
        Seed("tern2_of_another_shape", other(QUERY, ("U8", [16, 8], bytes(128)), ours, OURS), "[32, 8] in tern2"),
        Seed("tern2_in_numbers", folder(numbers, OURS), "has dtype bfloat16; weights of nncuda-tern2 are uint8"),
        Seed("numbers_of_2", other(QUERY, ("BF16", [32, 32], bf16(2, 1) * 512), numbers), "other than -1, 0 and 1"),
        Seed("numbers_not_a_number", other(QUERY, ("BF16", [32, 32], b"\xc0\x7f" * 1024), numbers), "other than -1"),
        Seed("master_infinite", master(bf16(1.0, math.inf)), "has values that are not finite; they have no mean"),
        Seed("master_not_a_number", master(b"\xc0\x7f"), "has values that are not finite; they have no mean"),
        Seed("matrix_missing", other(QUERY, None), f"lacks the tensor {QUERY} of shape [32, 32]"),
        Seed("matrix_of_no_layer", other("model.layers.9.mlp.up_proj.weight", packed[QUERY]), "has the tensor"),
        Seed("sub_norm_missing", other(SUB_NORM, None), f"lacks the tensor {SUB_NORM} of shape [64]"),
        Seed("sub_norm_of_another_size", other(SUB_NORM, ("BF16", [63], bytes(126))), "has shape [63]"),
        Seed("sub_norm_in_bytes", other(SUB_NORM, ("U8", [64], bytes(64))), "has dtype uint8; weights are"),
    ]


# GGUF files: number of the type, elements and bytes of a block, bytes behind all blocks.
TYPES = {
    "f32": (0, 1, 4, 0),
    "f16": (1, 1, 2, 0),
    "q8_0": (8, 32, 34, 0),
    "tq1_0": (34, 256, 54, 0),
    "tq2_0": (35, 256, 66, 0),
    "i2_s": (36, 128, 32, 32),
}
HALF = struct.pack("<e", 0.5)
ARCHITECTURE = "bitnet-b1.58"


def blocks(kind: str, rows: int, columns: int) -> bytes:
    """The bytes of a matrix in a type; of a norm, ones."""
    number = rows * columns // TYPES[kind][1]
    if kind == "tq1_0":
        return (bytes(range(7, 241, 5))[:47] + bytes(5) + HALF).ljust(54, b"\0") * number
    if kind == "tq2_0":
        return (bytes((0x55, 0xA0)) * 32 + HALF) * number
    if kind == "i2_s":
        return bytes((0x55, 0x0A)) * (16 * number) + struct.pack("<f", 0.5) + bytes(28)
    if kind == "f16":
        return repeated(struct.pack("<3e", 0.5, 0, -0.5), 2 * number)
    return struct.pack("<f", 1.0) * number if kind == "f32" else bytes(34 * number)


def gguf_weights(kind: str) -> dict[str, tuple[str, Sizes, bytes]]:
    """Tensors by name: type, sizes with the row first, bytes. Where rows are too short for blocks, f16."""
    found = {"token_embd.weight": ("f16", (256, 16), blocks("f16", 16, 256))}
    for name, size in (("output_norm", 256), ("blk.0.attn_norm", 256), ("blk.0.ffn_norm", 256)):
        found[f"{name}.weight"] = "f32", (size,), blocks("f32", 1, size)
    for name in ("attn_sub_norm", "ffn_sub_norm"):
        found[f"blk.0.{name}.weight"] = "f32", (8,), blocks("f32", 1, 8)
    for name in ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"):
        found[f"blk.0.{name}.weight"] = kind, (256, 8), blocks(kind, 8, 256)
    for name in ("attn_output", "ffn_down"):
        found[f"blk.0.{name}.weight"] = "f16", (8, 256), blocks("f16", 256, 8)
    return found


def gguf_file(weights: dict[str, tuple[str, Sizes, bytes]], architecture: str = ARCHITECTURE, **change: Any) -> bytes:
    sizes = {"block_count": 1, "context_length": 64, "embedding_length": 256, "feed_forward_length": 8}
    sizes |= {"attention.head_count": 1, "attention.head_count_kv": 1, "vocab_size": 16}
    sizes |= {"attention.key_length": 8, "attention.value_length": 8, "rope.dimension_count": 8}
    pairs = [pair("general.architecture", STRING, architecture)]
    pairs += [pair(f"{architecture}.{key}", U32, value) for key, value in {**sizes, **change}.items()]
    pairs.append(pair(f"{architecture}.attention.layer_norm_rms_epsilon", F32, 1e-5))
    pairs.append(pair(f"{architecture}.rope.freq_base", F32, 500000.0))
    entries, data = [], b""
    for name, (kind, shape, content) in weights.items():
        data += bytes(-len(data) % 32)
        entries.append(tensor(name, shape, TYPES[kind][0], len(data)))
        data += content
    return gguf(pairs, entries, data)


def ggufs() -> list[Seed]:
    """GGUF files of a BitNet."""
    query = "blk.0.attn_q.weight"

    def other(kind: str, content: bytes, name: str = query, of: str = "i2_s", sizes: Sizes = (256, 8)) -> bytes:
        return gguf_file({**gguf_weights(of), name: (kind, sizes, content)})

    def without(name: str) -> bytes:
        return gguf_file({key: entry for key, entry in gguf_weights("i2_s").items() if key != name})

    def i2_s(scale: float) -> bytes:
        return other("i2_s", blocks("i2_s", 8, 256)[:-32] + struct.pack("<f", scale) + bytes(28))

    def scaled(kind: str, *scales: bytes) -> bytes:
        block = blocks(kind, 1, 256)[:-2]
        return other(kind, b"".join(block + scales[row % len(scales)] for row in range(8)), of=kind)

    def factor(content: bytes, kind: str = "f32", sizes: tuple[int, ...] = (1,)) -> bytes:
        return other(kind, content, "blk.0.attn_q.scale", "tq2_0", sizes)

    large = {**gguf_weights("tq2_0"), query: ("tq2_0", (256, 8), (b"\xaa" * 64 + struct.pack("<e", 60000)) * 8)}
    huge = "f32", (1,), struct.pack("<f", 3e38)
    nan, minus = struct.pack("<e", math.nan), struct.pack("<e", -0.5)
    quarter = struct.pack("<e", 0.25)
    return [
        *(Seed(f"valid_{kind}", gguf_file(gguf_weights(kind)), None) for kind in ("i2_s", "tq1_0", "tq2_0", "f16")),
        Seed("valid_silu", gguf_file(gguf_weights("tq2_0"), "bitnet"), None),
        Seed("valid_bitnet_25", gguf_file(gguf_weights("i2_s"), "bitnet-25"), None),
        Seed("valid_factor", factor(struct.pack("<f", 0.125)), None),
        Seed("valid_blocks_of_zeros", scaled("tq2_0", HALF, bytes(2)), None),
        Seed("valid_frequencies", other("f32", bytes(16), "rope_freqs.weight", sizes=(4,)), None),
        Seed("other_architecture", gguf_file(gguf_weights("i2_s"), "bitnet-99"), "general.architecture is 'bitnet-99'"),
        Seed(
            "heads_of_7", gguf_file(gguf_weights("i2_s"), **{"attention.key_length": 7}), "must be the size of a head"
        ),
        Seed("layers_10000", gguf_file(gguf_weights("i2_s"), block_count=10000), "makes it 10000 layers"),
        Seed(
            "i2_s_bits_3", other("i2_s", b"\xc0" * 512 + blocks("i2_s", 8, 256)[-32:]), "two-bit code 3, which is not"
        ),
        Seed("i2_s_scale_0", i2_s(0.0), "has the scale 0.0; it must be finite and above 0"),
        Seed("i2_s_scale_below_0", i2_s(-1.0), "has the scale -1.0"),
        Seed("i2_s_scale_not_a_number", i2_s(math.nan), "has the scale nan"),
        Seed("i2_s_scale_infinite", i2_s(math.inf), "has the scale inf"),
        Seed("i2_s_rows_of_64", other("i2_s", bytes(160), sizes=(64, 8)), "rows of 64 elements; blocks of i2_s have"),
        Seed("i2_s_cut_off", other("i2_s", bytes(520), "blk.0.ffn_up.weight")[:-64], "but the file ends at byte"),
        Seed("i2_s_of_another_program", other("i2_s", bytes(8 * 256 // 32 * 18)), "so that this is another type of"),
        Seed("i2_s_without_a_tail", other("i2_s", bytes(512)), "inside tensor 'blk.0.attn_q.weight' before it"),
        Seed("tq1_0_rows_of_8", other("tq1_0", b"", "blk.0.ffn_down.weight", sizes=(8, 256)), "blocks of tq1_0 have"),
        Seed("tq1_0_scales_differ", scaled("tq1_0", HALF, quarter), "has blocks of 2 scales, 0.25 to 0.5"),
        Seed("tq2_0_scales_differ", scaled("tq2_0", HALF, quarter), "has blocks of 2 scales, 0.25 to 0.5"),
        Seed("tq2_0_scale_not_a_number", scaled("tq2_0", nan), "has a block whose scale is not finite, or below 0"),
        Seed("tq1_0_scale_below_0", scaled("tq1_0", minus), "has a block whose scale is not finite, or below 0"),
        Seed("tq2_0_bits_3", other("tq2_0", (b"\xff" * 64 + HALF) * 8), "two-bit code 3, which is not"),
        Seed("factor_0", factor(bytes(4)), "has the value 0.0; it must be finite and above 0"),
        Seed("factor_not_a_number", factor(struct.pack("<f", math.nan)), "has the value nan"),
        Seed("factor_too_large", gguf_file({**large, "blk.0.attn_q.scale": huge}), "has the scale inf"),
        Seed("factor_a_row", factor(bytes(8), sizes=(2,)), "it must be one number in f32, f16 or bf16"),
        Seed("factor_in_blocks", factor(bytes(34), "q8_0", (32,)), "it must be one number in f32, f16 or bf16"),
        Seed("factor_of_no_matrix", other("f32", bytes(4), "blk.7.attn_q.scale", sizes=(1,)), "'blk.7.attn_q.scale'"),
        Seed("two_magnitudes", other("f16", struct.pack("<2e", 1, 2) * 1024), "has values of more than one magnitude"),
        Seed("numbers_infinite", other("f16", struct.pack("<e", math.inf) * 2048), "has values of more than one"),
        Seed("matrix_in_q8_0", other("q8_0", bytes(34 * 64)), "is of type q8_0; ternary weights are f32, f16, bf16"),
        Seed("matrix_missing", without("blk.0.ffn_up.weight"), "lacks the tensor blk.0.ffn_up.weight"),
        Seed("matrix_of_another_shape", other("i2_s", bytes(256 + 32), sizes=(256, 4)), "has shape [4, 256]"),
        Seed("sub_norm_missing", without("blk.0.attn_sub_norm.weight"), "self_attn.attn_sub_norm.weight of shape [8]"),
        Seed(
            "sub_norm_in_blocks", other("q8_0", bytes(34), "blk.0.ffn_sub_norm.weight", sizes=(32,)), "has shape [32]"
        ),
        Seed("embeddings_ternary", other("i2_s", bytes(1056), "token_embd.weight", sizes=(256, 16)), "is of type i2_s"),
    ]
