//! The names of a model's tensors in GGUF files. (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>)

const OF_MODEL: [(&str, &str); 3] = [
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("output.weight", "lm_head.weight"),
];
const OF_LAYER: [(&str, &str); 25] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_sinks", "self_attn.sinks"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("post_attention_norm", "self_attn.post_norm"),
    ("post_ffw_norm", "mlp.post_norm"),
    ("attn_sub_norm", "self_attn.attn_sub_norm"),
    ("ffn_sub_norm", "mlp.ffn_sub_norm"),
    ("ffn_gate_inp", "block_sparse_moe.gate"),
    ("ffn_gate_exps", "block_sparse_moe.w1"),
    ("ffn_up_exps", "block_sparse_moe.w3"),
    ("ffn_down_exps", "block_sparse_moe.w2"),
    ("ffn_gate_inp_shexp", "block_sparse_moe.shared_gate"),
    ("ffn_gate_shexp", "block_sparse_moe.shared.gate_proj"),
    ("ffn_up_shexp", "block_sparse_moe.shared.up_proj"),
    ("ffn_down_shexp", "block_sparse_moe.shared.down_proj"),
];
/// The divisors of the rotary embedding's frequencies: Llama 3's, and LongRoPE's two.
pub(super) const ROPE_FREQUENCIES: &str = "rope_freqs.weight";
pub(super) const SHORT_FACTORS: &str = "rope_factors_short.weight";
pub(super) const LONG_FACTORS: &str = "rope_factors_long.weight";

/// A name in parts: its layer's number, what it is of the layer, and "weight" or "bias".
pub(super) fn of_layer<'n>(name: &'n str, prefix: &str) -> Option<(usize, &'n str, &'n str)> {
    let (number, rest) = name.strip_prefix(prefix)?.split_once('.')?;
    let (part, kind) = rest.rsplit_once('.')?;
    Some((layer_number(number)?, part, kind)).filter(|_| matches!(kind, "weight" | "bias"))
}

/// The number in a name: one to five digits.
pub(super) fn layer_number(text: &str) -> Option<usize> {
    let digits = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// What GGUF files call a tensor of `LlamaConfig::shapes`.
pub(super) fn gguf_name(name: &str) -> String {
    if let Some((layer, part, kind)) = of_layer(name, "model.layers.")
        && let Some((theirs, _)) = OF_LAYER.iter().find(|(_, ours)| *ours == part)
    {
        return format!("blk.{layer}.{theirs}.{kind}");
    }
    OF_MODEL.iter().find(|(_, ours)| *ours == name).map_or(name, |(theirs, _)| theirs).to_owned()
}

/// The name in `LlamaConfig::shapes` of a tensor of a GGUF file; `None` of one that is none of a model.
pub(super) fn name_of_gguf(name: &str) -> Option<String> {
    if let Some((layer, part, kind)) = of_layer(name, "blk.")
        && let Some((_, ours)) = OF_LAYER.iter().find(|(theirs, _)| *theirs == part)
    {
        return Some(format!("model.layers.{layer}.{ours}.{kind}"));
    }
    OF_MODEL.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| (*ours).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for (theirs, ours) in OF_LAYER {
            let name = format!("model.layers.12.{ours}.weight");
            assert_eq!(gguf_name(&name), format!("blk.12.{theirs}.weight"));
            assert_eq!(name_of_gguf(&gguf_name(&name)), Some(name));
        }
        for (theirs, ours) in OF_MODEL {
            assert_eq!((gguf_name(ours).as_str(), name_of_gguf(theirs).as_deref()), (theirs, Some(ours)));
        }
        for name in [
            "blk.0.attn_q",
            "blk.x.attn_q.weight",
            "blk.123456.attn_q.weight",
            "blk.0.attn_q.scale",
            "blk.+1.attn_q.bias",
        ] {
            assert_eq!(name_of_gguf(name), None, "{name}");
        }
    }
}
