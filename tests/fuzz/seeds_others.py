"""Small configurations, safetensors files, folders and token shards, valid and hostile."""

from __future__ import annotations

import json
import math
import struct

from fuzz_files import pack_folder
from seeds_gguf import Seed

CONFIG = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "sliding_window": None,
}


def config(without: str = "", **change: object) -> bytes:
    """`CONFIG` with changes."""
    return json.dumps({key: value for key, value in {**CONFIG, **change}.items() if key != without}).encode()


def raw_config(key: str, text: str) -> bytes:
    """`CONFIG` with a value that json.dumps does not write."""
    return config(**{key: "@"}).replace(b'"@"', text.encode())


def configs() -> list[Seed]:
    """config.json of Mixtral."""
    ours = {"extended_context": 128, "ntk_alpha": 2.0, "norm_topk_prob": False, "capacity_factor": 1.5}
    return [
        Seed("valid", config(), None),
        Seed("valid_ours", config(nncuda=ours), None),
        Seed("valid_rope_parameters", config("rope_theta", rope_parameters={"rope_theta": 1e6}), None),
        Seed("rope_twice", config(rope_parameters={"rope_theta": 1e6}, rope_scaling=3), "rope_scaling is 3"),
        Seed("nothing", b"", "is not JSON"),
        Seed("list", b"[]", "is not a JSON object"),
        Seed("not_utf8", b"\xff\xfe{}", "is not JSON"),
        Seed("depth", b'{"a":' * 50_000, "is not JSON"),
        Seed("depth_closed", raw_config("nncuda", '{"a":' * 20_000 + "1" + "}" * 20_000), "is not JSON"),
        Seed("digits", raw_config("vocab_size", "9" * 5000), "is not JSON"),
        Seed("digits_within_the_limit", raw_config("rope_theta", "9" * 4000), "rope_theta"),
        Seed("key_twice", config()[:-1] + b', "hidden_size": 64}', "the key 'hidden_size' is twice"),
        Seed("not_a_number", raw_config("rms_norm_eps", "NaN"), "norm_eps is nan"),
        Seed("infinite", raw_config("rope_theta", "Infinity"), "rope_theta is inf"),
        Seed("infinite_by_its_exponent", raw_config("rope_theta", "1e999"), "rope_theta is inf"),
        Seed("base_near_0", config(rope_theta=5e-324), "rope_theta is 5e-324; it must be a number, from 1 to 1e+12"),
        Seed("base_of_400_digits", raw_config("rope_theta", "9" * 400), "rope_theta is 9999"),
        Seed("eps_of_10", config(rms_norm_eps=10.0), "norm_eps is 10.0; it must be a number, from 0 to 1"),
        Seed(
            "experts_by_the_billion", config(num_local_experts=(1 << 31) - 1), "tensors; a model may have at most 65536"
        ),
        Seed("name_without_end", config(nncuda={"x" * 99_999: 1}), "the options under 'nncuda' must be among"),
        Seed("text_without_end", config(hidden_act="x" * 99_999), "hidden_act is 'xxxx"),
        Seed("heads_0", config(num_attention_heads=0), "num_attention_heads is 0"),
        Seed("negative", config(hidden_size=-32), "hidden_size is -32"),
        Seed("number_as_text", config(hidden_size="32"), "hidden_size is '32'"),
        Seed("number_with_a_point", config(num_hidden_layers=1.0), "num_layers is 1.0"),
        Seed("bool_for_a_number", config(vocab_size=True), "vocab_size is True"),
        Seed("value_missing", config("num_attention_heads"), "num_attention_heads is missing"),
        Seed("value_of_null", config(vocab_size=None), "vocab_size is missing"),
        Seed("value_of_a_list", config(num_hidden_layers=[1]), "num_layers is [1]; it must be a whole number"),
        Seed("vocabulary_of_a_float", config(vocab_size=1000.0), "vocab_size is 1000.0; it must be a whole number"),
        Seed("vocabulary_beyond_64_bits", config(vocab_size=10**20), "vocab_size is 100000"),
        Seed("kv_heads_no_divisor", config(num_key_value_heads=3), "num_kv_heads is 3; it must be a divisor of"),
        Seed("head_of_12", config(head_dim=12), "head_dim is 12; it must be a multiple of 8, at most 256"),
        Seed("head_of_264", config(head_dim=264), "head_dim is 264; it must be a multiple of 8, at most 256"),
        Seed("experts_used_above_all", config(num_experts_per_tok=5), "experts_per_token is 5; it must be 1 to 4"),
        Seed("tensors_by_the_million", config(num_hidden_layers=10**6, num_local_experts=10**6), "make 300000700000"),
        Seed(
            "beyond_all_machines",
            config(intermediate_size=2**31 - 1, hidden_size=2**31 - 1, head_dim=8),
            "more parameters than",
        ),
        Seed("activation", config(hidden_act="gelu"), "hidden_act is 'gelu'; this model has 'silu'"),
        Seed("tied", config(tie_word_embeddings=True), "tie_word_embeddings is True; this model has"),
        Seed(
            "llama3_of_nothing",
            config(rope_scaling={"rope_type": "llama3", "factor": 8}),
            "low_freq_factor of the rotary embedding is missing",
        ),
        Seed("tied_by_an_object", config(tie_word_embeddings={}), "tie_word_embeddings is {}; this model has"),
        Seed("valid_window_of_all", config(sliding_window=64), None),
        Seed(
            "window", config(sliding_window=16), "sliding_window is 16; this model attends to all of its context (64)"
        ),
        Seed("window_of_text", config(sliding_window="4096"), "sliding_window is '4096'"),
        Seed("window_not_a_number", raw_config("sliding_window", "NaN"), "sliding_window is nan"),
        Seed("rope_of_text", config(rope_scaling="linear"), " is 'linear'; it must be an object"),
        Seed("rope_of_a_number", config(rope_parameters=3), "rope_parameters is 3; it must be an object"),
        Seed("rope_of_another_type", config(rope_scaling={"type": "yarn"}), "rotary embedding of type 'yarn'; this"),
        Seed("rope_of_a_list", config(rope_parameters={"rope_type": ["x"]}), "rotary embedding of type ["),
        Seed("rope_theta_of_text", config(rope_theta="big"), "rope_theta is 'big'; it must be a number, from 1"),
        Seed("rope_theta_negative", config(rope_theta=-1), "rope_theta is -1; it must be a number, from 1 to 1e+12"),
        Seed("ours_of_a_number", config(nncuda=3), "under 'nncuda' must be among extended_context"),
        Seed("ours_of_nobody", config(nncuda={"depth": 3}), "under 'nncuda' must be among extended_context"),
        Seed("ours_too_short", config(nncuda={"extended_context": 16}), "extended_context is 16; it must be at least"),
        Seed(
            "ours_of_null", config(nncuda={"norm_topk_prob": None}), "norm_topk_prob is None; it must be true or false"
        ),
        Seed("ours_below_1", config(nncuda={"ntk_alpha": 0.5}), "ntk_alpha is 0.5; it must be a number, from 1 to"),
        Seed("ours_beyond_measure", config(nncuda={"ntk_alpha": 1e300}), "ntk_alpha is 1e+300; it must be a number"),
        Seed("ours_of_text", config(nncuda={"capacity_factor": "1"}), "capacity_factor is '1'; it must be a number"),
        Seed("rope_theta_of_a_list", config(rope_theta=[1]), "rope_theta is [1]"),
        Seed("other_model", config(model_type="gpt2"), "model_type is 'gpt2'"),
        Seed("other_model_of_a_list", config(model_type=["mixtral"]), "model_type is ['mixtral']"),
        Seed("other_model_of_null", config(model_type=None), "model_type is None"),
        Seed("layers_beyond_memory", config(num_hidden_layers=1 << 40), "num_layers is 1099511627776"),
    ]


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A file of this header, as an object or as bytes."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype: str, shape: list[float], start: int, stop: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def safetensors_files() -> list[Seed]:
    """Single files. All of them are refused with one sentence, followed by the package's own word for it."""
    kinds = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
    every, at = {}, 0
    for kind, size in kinds.items():
        every[kind] = entry(kind, [2, 1], at, at + 2 * size)
        at += 2 * size
    one = entry("F32", [2], 0, 8)
    wrong = "not a safetensors file"
    return [
        Seed("valid", safetensors({"__metadata__": {"format": "pt"}, **every}, bytes(at)), None),
        Seed("valid_empty_tensor", safetensors({"a": entry("F32", [0, 4], 0, 0)}), None),
        Seed("nothing", b"", wrong),
        Seed("cut_in_the_length", bytes(7), wrong),
        Seed("not_utf8", safetensors(b"\xff\xfe"), wrong),
        Seed("list", safetensors(b"[]"), wrong),
        Seed("unended", safetensors(b"{"), wrong),
        Seed("header_of_two", safetensors(b"{}x"), wrong),
        Seed("header_beyond_the_file", safetensors({"a": one}, bytes(8), 1 << 20), wrong),
        Seed("header_as_large_as_may_be", safetensors({"a": one}, bytes(8), 1 << 25), wrong),
        Seed("header_of_all_bits", safetensors({"a": one}, bytes(8), (1 << 64) - 1), wrong),
        Seed("header_depth", safetensors(b'{"a":' * 50_000), wrong),
        Seed("data_cut_off", safetensors({"a": one}, bytes(7)), wrong),
        Seed("data_behind_the_end", safetensors({"a": one}, bytes(9)), wrong),
        Seed("hole", safetensors({"a": one, "b": entry("F32", [1], 12, 16)}, bytes(16)), wrong),
        Seed("overlap", safetensors({"a": one, "b": one}, bytes(8)), wrong),
        Seed("offsets_reversed", safetensors({"a": entry("F32", [2], 8, 0)}, bytes(8)), wrong),
        Seed("product_wraps", safetensors({"a": entry("F32", [1 << 32, 1 << 32], 0, 0)}), wrong),
        Seed(
            "dimension_beside_a_0", safetensors({"a": entry("F32", [0, (1 << 64) - 4], 0, 0)}), "larger than any memory"
        ),
        Seed("product_of_another_size", safetensors({"a": entry("F32", [3], 0, 8)}, bytes(8)), wrong),
        Seed("negative", safetensors({"a": entry("F32", [-1, -2], 0, 8)}, bytes(8)), wrong),
        Seed("dimension_of_a_float", safetensors({"a": entry("U8", [1.5], 0, 1)}, bytes(1)), wrong),
        Seed("dimension_of_a_bool", safetensors({"a": entry("U8", [True], 0, 1)}, bytes(1)), wrong),
        Seed("shape_of_a_number", safetensors({"a": {**one, "shape": 2}}, bytes(8)), wrong),
        Seed("shape_missing", safetensors({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8)), wrong),
        Seed("offset_alone", safetensors({"a": {**one, "data_offsets": [0]}}, bytes(8)), wrong),
        Seed("offsets_of_three", safetensors({"a": {**one, "data_offsets": [0, 8, 8]}}, bytes(8)), wrong),
        Seed("entry_of_a_number", safetensors({"a": 3}), wrong),
        Seed("dtype_of_a_list", safetensors({"a": {**one, "dtype": ["F32"]}}, bytes(8)), wrong),
        Seed("dtype_unknown", safetensors({"a": entry("F33", [2], 0, 8)}, bytes(8)), wrong),
        Seed("dtype_without_numpy", safetensors({"a": entry("F8_E4M3", [2], 0, 2)}, bytes(2)), "has dtype F8_E4M3"),
        Seed("metadata_of_numbers", safetensors({"__metadata__": {"a": 1}}), wrong),
        Seed("shape_of_100000", safetensors({"a": entry("U8", [1] * 100_000, 0, 2)}, bytes(2)), wrong),
        Seed(
            "shape_of_100000_beside_a_0", safetensors({"a": entry("U8", [0] + [9] * 100_000, 0, 0)}), "larger than any"
        ),
        Seed("name_without_end", safetensors({"a" * 99_999: entry("F8_E4M3", [1], 0, 1)}, bytes(1)), "dtype F8_E4M3"),
        Seed("name_twice", safetensors(b'{"a":%b,"a":%b}' % ((json.dumps(one).encode(),) * 2), bytes(8)), "twice"),
        Seed("name_twice_once_empty", safetensors(b'{"a":%b,"a":{}}' % json.dumps(one).encode(), bytes(8)), wrong),
        Seed("valid_name_of_70000_letters", safetensors({"a" * 70_000: one}, bytes(8)), None),
    ]


def folders() -> list[Seed]:
    """Folders of weights."""
    one = {"a": entry("F32", [2], 0, 8)}
    first, second = safetensors(one, bytes(8)), safetensors({"b": entry("U8", [2], 0, 2)}, bytes(2))
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")

    def shards(weight_map: object, **more: bytes) -> bytes:
        index = json.dumps({"metadata": {"total_size": 10}, "weight_map": weight_map}).encode()
        return pack_folder({"model.safetensors.index.json": index, names[0]: first, names[1]: second, **more})

    good = {"a": names[0], "b": names[1]}
    return [
        Seed("valid", pack_folder({"model.safetensors": first}), None),
        Seed("valid_shards", shards(good), None),
        Seed("nothing", pack_folder({}), "neither model.safetensors"),
        Seed("map_missing", pack_folder({"model.safetensors.index.json": b"{}"}), "has no weight_map"),
        Seed("map_of_numbers", shards({"a": 1}), "has no weight_map"),
        Seed("map_is_a_list", shards([names[0]]), "has no weight_map"),
        Seed("path_above", shards({**good, "a": "../x.safetensors"}), "outside its folder"),
        Seed("path_absolute", shards({**good, "a": "/etc/passwd"}), "outside its folder"),
        Seed("path_of_dots", shards({**good, "a": ".."}), "outside its folder"),
        Seed("path_empty", shards({**good, "a": ""}), "outside its folder"),
        Seed("path_with_a_zero", shards({**good, "a": "x\0y"}), "outside its folder"),
        Seed("file_missing", shards({**good, "a": "other.safetensors"}), "cannot be read"),
        Seed("tensor_elsewhere", shards({"a": names[1], "b": names[0]}), "which lacks it"),
        Seed("tensor_missing", shards({**good, "c": names[1]}), "which lacks it"),
        Seed("tensor_twice", shards({"a": names[0], "b": names[1]}, **{names[1]: first}), "as well"),
    ]


LLAMA = {key: value for key, value in CONFIG.items() if not key.startswith(("num_local", "num_experts", "sliding"))} | {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def llama_tensors(experts: int = 0) -> dict[str, list[int]]:
    """Names and shapes of the weights of `LLAMA`, or with experts of `CONFIG`."""
    shapes = {
        "model.embed_tokens.weight": [64, 32],
        "model.norm.weight": [32],
        "lm_head.weight": [64, 32],
        "model.layers.0.input_layernorm.weight": [32],
        "model.layers.0.post_attention_layernorm.weight": [32],
        "model.layers.0.self_attn.q_proj.weight": [32, 32],
        "model.layers.0.self_attn.k_proj.weight": [16, 32],
        "model.layers.0.self_attn.v_proj.weight": [16, 32],
        "model.layers.0.self_attn.o_proj.weight": [32, 32],
    }
    parts = {"gate_proj": [64, 32], "up_proj": [64, 32], "down_proj": [32, 64]}
    if not experts:
        return shapes | {f"model.layers.0.mlp.{part}.weight": shape for part, shape in parts.items()}
    shapes["model.layers.0.block_sparse_moe.gate.weight"] = [experts, 32]
    for expert in range(experts):
        for part, shape in zip(("w1", "w3", "w2"), parts.values(), strict=True):
            shapes[f"model.layers.0.block_sparse_moe.experts.{expert}.{part}.weight"] = shape
    return shapes


def weights_file(shapes: dict[str, list[int]], dtype: str = "BF16") -> bytes:
    """A safetensors file of tensors of zeros."""
    entries, at = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape) * {"BF16": 2, "F32": 4, "I8": 1}[dtype]
        entries[name] = entry(dtype, shape, at, at + size)
        at += size
    return safetensors(entries, bytes(at))


def folder_models() -> list[Seed]:
    """Hugging Face folders of a Llama or Mixtral."""

    def llama(shapes: dict[str, list[int]] | None = None, dtype: str = "BF16", **change: object) -> bytes:
        content = json.dumps({**LLAMA, **change}).encode()
        return pack_folder(
            {"config.json": content, "model.safetensors": weights_file(shapes or llama_tensors(), dtype)}
        )

    def mixtral(shapes: dict[str, list[int]] | None = None, **change: object) -> bytes:
        weights = weights_file(shapes or llama_tensors(4), "F32")
        return pack_folder({"config.json": config(**change), "model.safetensors": weights})

    def llama3(**change: object) -> bytes:
        return llama(rope_scaling={**LLAMA3, **change})

    def gemma3(**change: object) -> bytes:
        own = {"model_type": "gemma3_text", "hidden_act": "gelu_pytorch_tanh", "sliding_window": 16, "head_dim": 8}
        norms = {f"{place}_feedforward_layernorm": [32] for place in ("pre", "post")}
        norms |= {f"self_attn.{part}_norm": [8] for part in "qk"}
        shapes = tied | {f"model.layers.0.{name}.weight": shape for name, shape in norms.items()}
        return llama(shapes, tie_word_embeddings=True, **{**own, **change})

    fewer = llama_tensors(4)
    moved = {name.replace("experts.3.", "experts.7."): shape for name, shape in fewer.items()}
    tied = {name: shape for name, shape in llama_tensors().items() if name != "lm_head.weight"}
    billion = (1 << 31) - 1
    return [
        Seed("valid_llama", llama(), None),
        Seed("valid_tied", llama(tied, tie_word_embeddings=True), None),
        Seed("valid_llama3", llama3(), None),
        Seed("valid_linear", llama(rope_scaling={"type": "linear", "factor": 2.0}), None),
        Seed("valid_mixtral", mixtral(), None),
        Seed("valid_gemma3", gemma3(), None),
        Seed("window_of_gemma_missing", gemma3(sliding_window=None), "sliding_window is None"),
        Seed("kinds_of_more_layers", gemma3(layer_types=["full_attention"] * 9), "layer_types is ["),
        Seed("kind_of_layer_unknown", gemma3(layer_types=["linear_attention"]), "layer_types is ["),
        Seed("period_0", gemma3(sliding_window_pattern=0), "sliding_window_pattern is 0"),
        Seed("scalar_below_0", gemma3(query_pre_attn_scalar=-1.0), "query_pre_attn_scalar is -1.0"),
        Seed("scalar_near_0", gemma3(query_pre_attn_scalar=5e-324), "attention_scale is "),
        Seed("cap_infinite", gemma3(attn_logit_softcapping=10**400), "attn_logit_softcapping is 1000"),
        Seed("local_base_0", gemma3(rope_local_base_freq=1e-300), "local_rope_base is 1e-300"),
        Seed("rope_of_one_kind", gemma3(rope_parameters={"rope_theta": 1.0}), "rope_parameters is {"),
        Seed("nothing", pack_folder({}), "config.json: cannot be read"),
        Seed("no_weights", pack_folder({"config.json": json.dumps(LLAMA).encode()}), "neither model.safetensors"),
        Seed("other_model", llama(model_type="bert"), "model_type is 'bert'"),
        Seed("size_missing", llama(hidden_size=None), "hidden_size is missing"),
        Seed("size_of_text", llama(intermediate_size="96"), "intermediate_size is '96'"),
        Seed("layers_0", llama(num_hidden_layers=0), "num_hidden_layers is 0; it must be"),
        Seed("kv_heads_no_divisor", llama(num_key_value_heads=3), "num_kv_heads is 3; it must be a divisor"),
        Seed("biases_of_the_mlp", llama(mlp_bias=True), "mlp_bias is True"),
        Seed(
            "window", llama(sliding_window=32), "sliding_window is 32; this engine attends to all of the context (64)"
        ),
        Seed("rope_theta_of_text", llama(rms_norm_eps=None, rope_theta="x"), "rope_theta is 'x'"),
        Seed("rope_of_half_heads", llama(rope_parameters={"partial_rotary_factor": 0.5}), "partial_rotary_factor"),
        Seed("heads_0", llama(num_attention_heads=0), "num_attention_heads is 0"),
        Seed("layers_10000", llama(num_hidden_layers=10000), "the configuration makes it 10000 layers"),
        Seed("layers_by_the_billion", llama(num_hidden_layers=billion), "num_layers is 2147483647"),
        Seed("hidden_beyond_32_bits", llama(hidden_size=1 << 40), "hidden_size is 1099511627776"),
        Seed("eps_beyond_a_float", llama(rms_norm_eps=10**400), "rms_norm_eps is 1000"),
        Seed("head_of_another_size", llama(head_dim=12), "head_dim is 12"),
        Seed("head_by_the_billion", llama(head_dim=billion - 7, rope_scaling=LLAMA3), "head_dim is 2147483640"),
        Seed("base_near_0", llama3(rope_theta=5e-324), "rope.base is 5e-324"),
        Seed("factor_below_1", llama3(factor=0.5), "factor 0.5"),
        Seed("frequencies_reversed", llama3(low_freq_factor=8.0), "low below high"),
        Seed("frequencies_infinite", llama3(high_freq_factor=10**400), "high_freq_factor is 1000"),
        Seed(
            "llama3_in_part", llama(rope_scaling={"rope_type": "llama3", "factor": 8.0}), "low_freq_factor is missing"
        ),
        Seed("scaling_unknown", llama(rope_scaling={"rope_type": "xpos"}), "type 'xpos'"),
        Seed("valid_dynamic", llama(rope_scaling={"rope_type": "dynamic", "factor": 4.0}), None),
        Seed("yarn_in_part", llama(rope_scaling={"rope_type": "yarn"}), "factor is missing"),
        Seed("scaling_of_a_list", llama(rope_scaling=[1]), "rope_scaling is [1]"),
        Seed("activation", llama(hidden_act="gelu"), "hidden_act is 'gelu'"),
        Seed("weights_of_integers", llama(dtype="I8"), "has dtype int8"),
        Seed("tensor_missing", llama(tied), "lacks the tensor lm_head.weight"),
        Seed("tensor_of_another_shape", llama({**llama_tensors(), "model.norm.weight": [33]}), "has shape [33]"),
        Seed("tensor_of_no_model", llama({**llama_tensors(), "x": [1]}), "has the tensor 'x'"),
        Seed("experts_by_the_billion", mixtral(num_local_experts=billion), "config.json makes it 2147483647"),
        Seed("expert_missing", mixtral(moved), "has 4 experts"),
    ]


def shard(
    ids: bytes, count: int, *, magic: bytes = b"NNTOKENS", version: int = 1, width: int = 2, vocab: int = 100
) -> bytes:
    return struct.pack("<8sIIQQ32s", magic, version, width, vocab, count, bytes(32)) + ids


def shards() -> list[Seed]:
    """Token shards."""
    ids = struct.pack("<4H", 1, 2, 3, 99)
    return [
        Seed("valid", shard(ids, 4), None),
        Seed("valid_wide", shard(struct.pack("<2I", 1, 70000), 2, width=4, vocab=70001), None),
        Seed("valid_empty", shard(b"", 0), None),
        Seed("magic", shard(ids, 4, magic=b"NNTOKENZ"), "does not begin with NNTOKENS"),
        Seed("cut_in_the_header", shard(ids, 4)[:40], "cut off inside its header"),
        Seed("version_3", shard(ids, 4, version=3), "version 3"),
        Seed("width_0", shard(ids, 4, width=0), "ids of 0 bytes"),
        Seed("cut_off", shard(ids, 4)[:-1], "is 71 bytes long, but its 4 tokens take 72"),
        Seed("longer", shard(ids, 4) + b"\0", "is 73 bytes long, but its 4 tokens take 72"),
        Seed("count_beyond_the_file", shard(ids, 5), "5 tokens take"),
        Seed("count_whose_size_wraps", shard(ids, (1 << 63) + 4), "tokens take 18446744073709551688"),
        Seed("vocabulary_0", shard(ids, 4, vocab=0), "a vocabulary of 0"),
        Seed("vocabulary_beyond_its_width", shard(ids, 4, vocab=65537), "a vocabulary of 65537"),
        Seed("id_beyond_the_vocabulary", shard(ids, 4, vocab=99), "vocabulary has 99"),
        Seed("valid_documents", shard(ids + b"\x0a\x0e", 4, version=2), None),
        Seed("valid_documents_with_bits_beyond_them", shard(ids + b"\xfa\xff", 4, version=2), None),
        Seed("valid_no_documents", shard(b"", 0, version=2), None),
        Seed("documents_without_bits", shard(ids, 4, version=2), "is 72 bytes long, but its 4 tokens take 74"),
        Seed("documents_with_half_the_bits", shard(ids + b"\x0a", 4, version=2), "4 tokens take 74"),
        Seed("documents_whose_size_wraps", shard(ids, (1 << 64) - 1, version=2), "18446744073709551615 tokens take"),
        Seed("document_of_one_token", shard(ids + b"\x0e\x0e", 4, version=2), "the document at token 2 has one token"),
        Seed("first_document_of_one_token", shard(ids + b"\x09\x00", 4, version=2), "the document at token 0 has one"),
        Seed(
            "document_without_an_end", shard(ids + b"\x02\x0e", 4, version=2), "its last token does not end a document"
        ),
    ]
