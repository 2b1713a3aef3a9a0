//! What Hugging Face folders call the tensors of `LlamaConfig::shapes`, family by family, and which of them hold several.
//!
//! Several matrices in one tensor lie one below the other: their rows are cut out of it where they are, without a copy.

use std::path::Path;

use super::gguf_names::layer_number;
use super::gpt_oss::experts_of_gpt_oss;
use super::llama::LlamaConfig;
use crate::error::{Error, Result};
use crate::format::StoredTensor;

/// Qwen's, OLMoE's, Granite's and gpt-oss' names of what is in a tensor of its own.
const RENAMED: [(&str, &str); 10] = [
    ("mlp.gate.weight", "block_sparse_moe.gate.weight"),
    ("block_sparse_moe.router.layer.weight", "block_sparse_moe.gate.weight"),
    ("mlp.shared_expert.gate_proj.weight", "block_sparse_moe.shared.gate_proj.weight"),
    ("mlp.shared_expert.up_proj.weight", "block_sparse_moe.shared.up_proj.weight"),
    ("mlp.shared_expert.down_proj.weight", "block_sparse_moe.shared.down_proj.weight"),
    ("shared_mlp.output_linear.weight", "block_sparse_moe.shared.down_proj.weight"),
    ("mlp.shared_expert_gate.weight", "block_sparse_moe.shared_gate.weight"),
    ("mlp.router.weight", "block_sparse_moe.gate.weight"),
    ("mlp.router.bias", "block_sparse_moe.gate.bias"),
    ("self_attn.sinks", "self_attn.sinks.weight"),
];

/// Gemma's names of its norms: those that others have in front of the feed-forward network, and those behind parts.
const NORMS_OF_GEMMA: [(&str, &str); 3] = [
    ("pre_feedforward_layernorm.weight", "post_attention_layernorm.weight"),
    ("post_attention_layernorm.weight", "self_attn.post_norm.weight"),
    ("post_feedforward_layernorm.weight", "mlp.post_norm.weight"),
];

/// Tensors by the names of `LlamaConfig::shapes`.
pub(super) type Named = Vec<(String, Vec<StoredTensor>)>;

/// Whether it is a table of the rotary embedding, which old versions of transformers saved with the weights; the
/// configuration gives it too.
pub(super) fn is_redundant(name: &str) -> bool {
    let layer = name.strip_prefix("model.layers.").and_then(|rest| rest.strip_suffix(".self_attn.rotary_emb.inv_freq"));
    layer.is_some_and(|layer| !layer.is_empty() && layer.bytes().all(|digit| digit.is_ascii_digit()))
}

/// A tensor of a folder under the names of `LlamaConfig::shapes`, that of an expert alone under Mixtral's.
///
/// # Errors
///
/// [`Error::Format`] when it holds several matrices and its shape is not the one that the configuration makes it.
pub(super) fn own_names(path: &Path, config: &LlamaConfig, name: &str, mut tensor: StoredTensor) -> Result<Named> {
    let in_layer = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
    let Some((layer, part)) = in_layer.filter(|(number, _)| layer_number(number).is_some()) else {
        return Ok(vec![(name.to_owned(), vec![tensor])]);
    };
    let block = format!("model.layers.{layer}");
    if let Some((expert, matrix)) = expert_of_qwen(part) {
        return Ok(vec![(format!("{block}.block_sparse_moe.experts.{expert}.{matrix}.weight"), vec![tensor])]);
    }
    let (experts, ffn, hidden) = (config.num_experts, config.ffn_size, config.hidden_size);
    if part == "mlp.shared_expert_gate.weight" && tensor.shape == [1, hidden] {
        tensor.shape.remove(0);
    }
    let norms = NORMS_OF_GEMMA.iter().filter(|_| config.post_norms);
    if let Some((_, own)) = norms.chain(&RENAMED).find(|(theirs, _)| *theirs == part) {
        return Ok(vec![(format!("{block}.{own}"), vec![tensor])]);
    }
    if config.biased_experts
        && let Some(named) = experts_of_gpt_oss(path, config, &block, part, &tensor)?
    {
        return Ok(named);
    }
    let mixture = format!("{block}.block_sparse_moe");
    match part {
        "mlp.experts.down_proj" | "block_sparse_moe.output_linear.weight" => {
            check_shape(path, &tensor, &[experts, hidden, ffn])?;
            Ok(vec![(format!("{mixture}.w2.weight"), vec![tensor])])
        }
        // Gate and up of each expert after the other.
        "mlp.experts.gate_up_proj" | "block_sparse_moe.input_linear.weight" => {
            check_shape(path, &tensor, &[experts, 2 * ffn, hidden])?;
            let pieces = |first: usize| {
                (first..2 * experts)
                    .step_by(2)
                    .map(|at| rows_of(path, &tensor, at * ffn, ffn))
                    .collect::<Result<Vec<_>>>()
            };
            Ok(vec![(format!("{mixture}.w1.weight"), pieces(0)?), (format!("{mixture}.w3.weight"), pieces(1)?)])
        }
        _ => cut_rows(path, config, name, tensor),
    }
}

/// Number and matrix of an expert's tensor in the families that call it as Qwen does.
fn expert_of_qwen(part: &str) -> Option<(usize, &'static str)> {
    let (number, matrix) = part.strip_prefix("mlp.experts.")?.split_once('.')?;
    let matrix = match matrix {
        "gate_proj.weight" => "w1",
        "up_proj.weight" => "w3",
        "down_proj.weight" => "w2",
        _ => return None,
    };
    Some((layer_number(number)?, matrix))
}

/// A tensor with the rows of several matrices as these, any other as it is.
///
/// # Errors
///
/// As of [`own_names`].
pub(super) fn cut_rows(path: &Path, config: &LlamaConfig, name: &str, tensor: StoredTensor) -> Result<Named> {
    let (queries, keys) = (config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim);
    let rows = if let Some(layer) = name.strip_suffix("self_attn.qkv_proj.weight") {
        let counts = [("q", queries), ("k", keys), ("v", keys)];
        counts.map(|(part, rows)| (format!("{layer}self_attn.{part}_proj.weight"), rows)).to_vec()
    } else if let Some(layer) = name.strip_suffix("mlp.gate_up_proj.weight") {
        ["gate", "up"].map(|part| (format!("{layer}mlp.{part}_proj.weight"), config.ffn_size)).to_vec()
    } else if let Some(layer) = name.strip_suffix("shared_mlp.input_linear.weight") {
        let own = |part| (format!("{layer}block_sparse_moe.shared.{part}_proj.weight"), config.shared_ffn_size);
        ["gate", "up"].map(own).to_vec()
    } else {
        return Ok(vec![(name.to_owned(), vec![tensor])]);
    };
    check_shape(path, &tensor, &[rows.iter().map(|(_, count)| count).sum(), config.hidden_size])?;
    let mut first = 0;
    rows.into_iter()
        .map(|(own, count)| {
            let part = rows_of(path, &tensor, first, count)?;
            first += count;
            Ok((own, vec![part]))
        })
        .collect()
}

/// A matrix of some rows of a tensor.
fn rows_of(path: &Path, tensor: &StoredTensor, first: usize, count: usize) -> Result<StoredTensor> {
    let size = tensor.row_bytes();
    let data = tensor.data.slice(first * size..(first + count) * size);
    let data = data.ok_or_else(|| Error::format(path, format!("tensor {} is cut", tensor.name)))?;
    Ok(StoredTensor { shape: vec![count, tensor.columns()], data, ..tensor.clone() })
}

pub(super) fn check_shape(path: &Path, tensor: &StoredTensor, right: &[usize]) -> Result<()> {
    if tensor.shape == right {
        return Ok(());
    }
    let problem = format!("has shape {:?}; the configuration makes it {right:?}", tensor.shape);
    Err(Error::format(path, format!("tensor {} {problem}", tensor.name)))
}
