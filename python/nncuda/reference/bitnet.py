"""The forward pass of a BitNet b1.58, in the precision of its parameters but for what is rounded to 8 bits.

The blocks of a Llama whose products have weights -1, 0 and 1 times the mean magnitude of their matrix, and rows rounded
to 8 bits; with norms of their own in front of both projections back to the residual stream, and a squared ReLU, in the
first such models a SiLU, in the gate (Ma et al. 2025, "BitNet b1.58 2B4T Technical Report", section 2).
Parameters carry the names and shapes of `nncuda.models.llama.LlamaConfig.shapes`; matrices are master weights.
"""

from collections.abc import Callable

import numpy as np

from nncuda.models.llama import LlamaConfig
from nncuda.reference import elementwise, llama, rmsnorm, ternary
from nncuda.reference.arithmetic import Array, Outputs
from nncuda.reference.layers import Parameters, linear

__all__ = ["forward"]

#: Rounds normed rows, given with the name that `nncuda dump` has for them, to "codes" and "scale".
Rounding = Callable[[str, Array], Outputs]


def _act_quant(name: str, rows: Array) -> Outputs:
    return ternary.act_quant_i8(rows)


def forward(params: Parameters, config: LlamaConfig, ids: Array, rounding: Rounding = _act_quant) -> Array:
    """Logits [length, vocab] of one sequence of ids, f64 or f32 as the parameters are.

    With `rounding` a test compares two passes that took the same codes: where a value lies in the middle between two,
    the least difference in front of it decides, and a code is 1/127 of a row's largest value.
    """
    dtype = params["model.norm.weight"].dtype
    cosine, sine = llama.tables(config, len(ids), dtype)
    gate = elementwise.relu2_gate if config.activation == "relu2" else elementwise.swiglu
    x = params["model.embed_tokens.weight"][ids]
    for layer in range(config.num_layers):
        block = f"model.layers.{layer}"
        attention, mlp = f"{block}.self_attn", f"{block}.mlp"

        def rounded(rows: Array, gain: str, name: str, prefix: str = f"layers.{layer}.") -> Outputs:
            if gain in params:
                rows = rmsnorm.rmsnorm(rows, params[gain], config.norm_eps)["y"]
            return rounding(prefix + name, rows)

        h = rounded(x, f"{block}.input_layernorm.weight", "attn_norm")
        q, k, v = (product(h, params[f"{attention}.{name}_proj.weight"]) for name in "qkv")
        heads = llama.attended(q, k, v, config, cosine, sine)
        h = rounded(heads, f"{attention}.attn_sub_norm.weight", "attn_sub_norm")
        x = x + product(h, params[f"{attention}.o_proj.weight"])
        h = rounded(x, f"{block}.post_attention_layernorm.weight", "ffn_norm")
        inner = gate(*(product(h, params[f"{mlp}.{name}_proj.weight"]) for name in ("gate", "up")))["y"]
        h = rounded(inner, f"{mlp}.ffn_sub_norm.weight", "ffn_sub_norm")
        x = x + product(h, params[f"{mlp}.down_proj.weight"])
    return linear(rmsnorm.rmsnorm(x, params["model.norm.weight"], config.norm_eps)["y"], params["lm_head.weight"])


def product(rows: Outputs, weight: Array) -> Array:
    """Rounded rows times a matrix of master weights rounded to -1, 0 and 1. Ma et al. 2024, section 2."""
    matrix = ternary.ternary_quantize(weight)
    whole = rows["codes"].astype(np.int64) @ matrix["codes"].astype(np.int64).T
    dtype = weight.dtype
    return whole.astype(dtype) * (rows["scale"].astype(dtype)[:, None] * matrix["scale"].astype(dtype))
