"""The names of a model's tensors in GGUF files. (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)"""

from __future__ import annotations

import re

_OF_MODEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_OF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_sinks": "self_attn.sinks",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_attention_norm": "self_attn.post_norm",
    "post_ffw_norm": "mlp.post_norm",
    "attn_sub_norm": "self_attn.attn_sub_norm",
    "ffn_sub_norm": "mlp.ffn_sub_norm",
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.w1",
    "ffn_up_exps": "block_sparse_moe.w3",
    "ffn_down_exps": "block_sparse_moe.w2",
    "ffn_gate_inp_shexp": "block_sparse_moe.shared_gate",
    "ffn_gate_shexp": "block_sparse_moe.shared.gate_proj",
    "ffn_up_shexp": "block_sparse_moe.shared.up_proj",
    "ffn_down_shexp": "block_sparse_moe.shared.down_proj",
}
_GGUF_OF_LAYER = {ours: theirs for theirs, ours in _OF_LAYER.items()}
_GGUF_OF_MODEL = {ours: theirs for theirs, ours in _OF_MODEL.items()}
#: Divisors of the rotary embedding's frequencies: Llama 3's, and LongRoPE's two.
ROPE_FREQUENCIES = "rope_freqs.weight"
SHORT_FACTORS, LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"
_GGUF_NAME = re.compile(r"blk\.(\d{1,5})\.(\w+)\.(weight|bias)")
_NAME = re.compile(r"model\.layers\.(\d{1,5})\.(.+)\.(weight|bias)")


def gguf_name(name: str) -> str:
    """What GGUF files call a tensor of `LlamaConfig.shapes`."""
    match = _NAME.fullmatch(name)
    return f"blk.{match[1]}.{_GGUF_OF_LAYER[match[2]]}.{match[3]}" if match else _GGUF_OF_MODEL[name]


def name_of_gguf(name: str) -> str | None:
    """The name in `LlamaConfig.shapes` of a tensor of a GGUF file; None of one that is none of a model."""
    match = _GGUF_NAME.fullmatch(name)
    if match and match[2] in _OF_LAYER:
        return f"model.layers.{int(match[1])}.{_OF_LAYER[match[2]]}.{match[3]}"
    return _OF_MODEL.get(name)
