//! All parameters of a MoE transformer in one arena: their names, shapes, places, and initial values.
//!
//! The order is part of the promise that every language trains the same bits: sums over the whole arena (the gradient
//! norm) run in it, and the initial values of tensor number i come from random stream i. Matrices come first, since
//! weight decay takes a prefix of the arena, then vectors, the gains of the norms and biases:
//!
//! ```text
//! model.embed_tokens.weight                            [vocab, hidden]
//! for each layer L:
//!   model.layers.L.self_attn.{q,k,v,o}_proj.weight     q, k, v side by side: one product serves all three
//!   model.layers.L.block_sparse_moe.gate.weight        [experts, hidden]
//!   for each expert E: ...experts.E.w1.weight, w3      gate and up, so that all experts are [experts, 2*ffn, hidden]
//!   for each expert E: ...experts.E.w2.weight          so that all are [experts, hidden, ffn]
//! lm_head.weight                                       [vocab, hidden]
//! for each layer L: model.layers.L.{input,post_attention}_layernorm.weight
//! model.norm.weight
//! ```
//!
//! With `tie_embeddings` there is no lm_head.weight. With `qkv_bias`, model.layers.L.self_attn.{q,k,v}_proj.bias, side by
//! side, follow the gains of layer L, with `qk_norm` model.layers.L.self_attn.{q,k}_norm.weight, `[head_dim]`, with `ternary`
//! model.layers.L.self_attn.attn_sub_norm.weight, `[heads * head_dim]`, and model.layers.L.mlp.ffn_sub_norm.weight, `[ffn]`;
//! the matrices of such a layer are the master weights.
//!
//! A dense model has, in place of gate and experts, model.layers.L.mlp.gate_proj.weight and up_proj, `[ffn, hidden]`, and
//! down_proj, `[hidden, ffn]`, where one expert would have w1, w3 and w2.
//!
//! Names are those of Mixtral, Llama, Qwen2, Qwen3 or BitNet in Hugging Face transformers, so a checkpoint needs no
//! translation.

use std::collections::HashMap;
use std::ops::Range;
use std::{iter, mem};

use super::config::MoEConfig;
use crate::error::{Error, Result};

/// More tensors than any model that fits into a machine has: a limit for what a file may ask for.
const MOST_TENSORS: usize = 10_000_000;

/// One parameter tensor and its place in the arena, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterSpec {
    /// Its name.
    pub name: String,
    /// Its sizes, outermost first.
    pub shape: Vec<usize>,
    /// Place of its first element.
    pub offset: usize,
}

impl ParameterSpec {
    /// Elements.
    pub fn size(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Where each parameter of a configuration lies.
#[derive(Clone, Debug)]
pub struct ParameterLayout {
    specs: Vec<ParameterSpec>,
    by_name: HashMap<String, usize>,
    size: usize,
    num_decayed: usize,
    experts: usize,
    /// Of each layer, those of w1 and w3 of all experts, and those of w2.
    of_experts: Vec<[Range<usize>; 2]>,
}

impl ParameterLayout {
    /// How many tensors a configuration has.
    pub fn count(config: &MoEConfig) -> usize {
        let of_layer = if config.num_experts == 0 {
            9 + 3 * usize::from(config.qkv_bias) + 2 * usize::from(config.qk_norm) + 2 * usize::from(config.ternary)
        } else {
            config.num_experts.saturating_mul(3).saturating_add(7)
        };
        config.num_layers.saturating_mul(of_layer).saturating_add(3 - usize::from(config.tie_embeddings))
    }

    /// The layout of a configuration. `Error::Value` when it has more than a machine can hold.
    pub fn new(config: &MoEConfig) -> Result<Self> {
        let count = Self::count(config);
        let bytes = config.num_parameters().saturating_mul(4);
        if count > MOST_TENSORS || bytes > i64::MAX as u128 {
            let parameters = config.num_parameters();
            return Err(Error::value(format!(
                "a model of {parameters} parameters in {count} tensors is more than this program can hold"
            )));
        }
        let mut layout = Self {
            specs: Vec::with_capacity(count),
            by_name: HashMap::with_capacity(count),
            size: 0,
            num_decayed: 0,
            experts: config.num_experts,
            of_experts: Vec::with_capacity(config.num_layers),
        };
        let (hidden, ffn) = (config.hidden_size, config.ffn_size);
        let (q_rows, kv_rows) = (config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim);
        layout.add("model.embed_tokens.weight".into(), &[config.vocab_size, hidden]);
        for layer in 0..config.num_layers {
            let prefix = format!("model.layers.{layer}");
            layout.add(format!("{prefix}.self_attn.q_proj.weight"), &[q_rows, hidden]);
            layout.add(format!("{prefix}.self_attn.k_proj.weight"), &[kv_rows, hidden]);
            layout.add(format!("{prefix}.self_attn.v_proj.weight"), &[kv_rows, hidden]);
            layout.add(format!("{prefix}.self_attn.o_proj.weight"), &[hidden, q_rows]);
            if config.num_experts == 0 {
                layout.add(format!("{prefix}.mlp.gate_proj.weight"), &[ffn, hidden]);
                layout.add(format!("{prefix}.mlp.up_proj.weight"), &[ffn, hidden]);
                layout.add(format!("{prefix}.mlp.down_proj.weight"), &[hidden, ffn]);
                continue;
            }
            layout.add(format!("{prefix}.block_sparse_moe.gate.weight"), &[config.num_experts, hidden]);
            let first = layout.size;
            for expert in 0..config.num_experts {
                layout.add(format!("{prefix}.block_sparse_moe.experts.{expert}.w1.weight"), &[ffn, hidden]);
                layout.add(format!("{prefix}.block_sparse_moe.experts.{expert}.w3.weight"), &[ffn, hidden]);
            }
            let second = layout.size;
            for expert in 0..config.num_experts {
                layout.add(format!("{prefix}.block_sparse_moe.experts.{expert}.w2.weight"), &[hidden, ffn]);
            }
            layout.of_experts.push([first..second, second..layout.size]);
        }
        if !config.tie_embeddings {
            layout.add("lm_head.weight".into(), &[config.vocab_size, hidden]);
        }
        layout.num_decayed = layout.size;
        for layer in 0..config.num_layers {
            let prefix = format!("model.layers.{layer}");
            layout.add(format!("{prefix}.input_layernorm.weight"), &[hidden]);
            layout.add(format!("{prefix}.post_attention_layernorm.weight"), &[hidden]);
            if config.qkv_bias {
                for (name, rows) in [("q", q_rows), ("k", kv_rows), ("v", kv_rows)] {
                    layout.add(format!("{prefix}.self_attn.{name}_proj.bias"), &[rows]);
                }
            }
            if config.qk_norm {
                for name in ["q", "k"] {
                    layout.add(format!("{prefix}.self_attn.{name}_norm.weight"), &[config.head_dim]);
                }
            }
            if config.ternary {
                layout.add(format!("{prefix}.self_attn.attn_sub_norm.weight"), &[q_rows]);
                layout.add(format!("{prefix}.mlp.ffn_sub_norm.weight"), &[ffn]);
            }
        }
        layout.add("model.norm.weight".into(), &[hidden]);
        Ok(layout)
    }

    /// That of matrices, one after the other, all of which decay.
    pub(super) fn of_decayed(specs: impl IntoIterator<Item = (String, [usize; 2])>) -> Self {
        let (by_name, of_experts) = (HashMap::new(), Vec::new());
        let mut layout = Self { specs: Vec::new(), by_name, size: 0, num_decayed: 0, experts: 0, of_experts };
        specs.into_iter().for_each(|(name, shape)| layout.add(name, &shape));
        layout.num_decayed = layout.size;
        layout
    }

    fn add(&mut self, name: String, shape: &[usize]) {
        let spec = ParameterSpec { name, shape: shape.to_vec(), offset: self.size };
        self.size += spec.size();
        self.by_name.insert(spec.name.clone(), self.specs.len());
        self.specs.push(spec);
    }

    /// Elements in all.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many elements, from the first, decay.
    pub fn num_decayed(&self) -> usize {
        self.num_decayed
    }

    /// The parameters in the order of the arena.
    pub fn specs(&self) -> &[ParameterSpec] {
        &self.specs
    }

    /// Their names, likewise.
    pub fn names(&self) -> Vec<&str> {
        self.specs.iter().map(|spec| spec.name.as_str()).collect()
    }

    /// A parameter by its name.
    pub fn get(&self, name: &str) -> Option<&ParameterSpec> {
        self.by_name.get(name).map(|at| &self.specs[*at])
    }

    /// The elements whose gradients a backward pass completes at a time, in its order: the head's, unless it is the embedding,
    /// each layer's matrices from the last on, the embedding's, and all vectors.
    pub fn backward_pieces(&self) -> Vec<Range<usize>> {
        let begins = |spec: &&ParameterSpec| spec.name.ends_with(".self_attn.q_proj.weight");
        let layers = self.specs.iter().filter(begins).rev();
        let starts = self.get("lm_head.weight").into_iter().chain(layers).map(|spec| spec.offset).chain([0]);
        let mut end = self.num_decayed;
        let matrices = starts.map(|start| start..mem::replace(&mut end, start));
        matrices.chain(iter::once(self.num_decayed..self.size)).collect()
    }

    pub(crate) fn experts(&self) -> usize {
        self.experts
    }

    /// Of each layer, the elements of the experts that the rank at `position` of `ranks` has: those of w1 and w3 side by
    /// side, and those of w2.
    pub(crate) fn experts_of(&self, position: usize, ranks: usize) -> impl Iterator<Item = [Range<usize>; 2]> {
        let part = move |all: &Range<usize>| {
            let each = all.len() / ranks;
            all.start + position * each..all.start + (position + 1) * each
        };
        self.of_experts.iter().map(move |parts| parts.each_ref().map(part))
    }

    /// The elements of each stack of experts, in order: of each layer those of w1 and w3, then those of w2.
    pub(crate) fn stacks(&self) -> Vec<Range<usize>> {
        self.of_experts.iter().flatten().cloned().collect()
    }

    /// The elements that are no expert's, in order.
    pub(crate) fn dense(&self) -> Vec<Range<usize>> {
        let starts = [0].into_iter().chain(self.of_experts.iter().map(|[_, second]| second.end));
        let ends = self.of_experts.iter().map(|[first, _]| first.start).chain([self.size]);
        starts.zip(ends).map(|(start, end)| start..end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The presets, a dense model, and those with parts of their own.
    fn configurations() -> impl Iterator<Item = MoEConfig> {
        let small = MoEConfig::preset("small").unwrap();
        let dense = MoEConfig { num_experts: 0, experts_per_token: 0, ..small };
        let parts = MoEConfig { qkv_bias: true, tie_embeddings: true, ..dense.clone() };
        let normed = MoEConfig { qk_norm: true, ..dense.clone() };
        ["small", "demo", "6.9b"].map(|name| MoEConfig::preset(name).unwrap()).into_iter().chain([dense, parts, normed])
    }

    #[test]
    fn the_layout_has_as_many_elements_as_the_configuration_counts() {
        for config in configurations() {
            let layout = ParameterLayout::new(&config).unwrap();
            assert_eq!(layout.size() as u128, config.num_parameters());
            assert_eq!(layout.specs().len(), ParameterLayout::count(&config));
            let vectors = layout.specs().iter().filter(|spec| spec.shape.len() == 1).map(ParameterSpec::size);
            assert_eq!(layout.num_decayed(), layout.size() - vectors.sum::<usize>());
        }
    }

    #[test]
    fn a_backward_pass_completes_each_element_once() {
        for config in configurations() {
            let layout = ParameterLayout::new(&config).unwrap();
            let pieces = layout.backward_pieces();
            let mut parts = pieces.clone();
            parts.sort_by_key(|part| part.start);
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{parts:?}");
            assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, layout.size()));
            let first = usize::from(!config.tie_embeddings); // that of the last layer
            assert_eq!(pieces.len(), first + config.num_layers + 2);
            assert_eq!(pieces[first + config.num_layers + 1], layout.num_decayed()..layout.size());
            for (number, piece) in pieces[first..first + config.num_layers].iter().enumerate() {
                let layer = format!("model.layers.{}.", config.num_layers - 1 - number);
                for spec in layout.specs().iter().filter(|spec| spec.name.starts_with(&layer)) {
                    assert_eq!(piece.contains(&spec.offset), spec.shape.len() > 1, "{}", spec.name);
                }
            }
        }
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let usual = MoEConfig::default;
        for config in [
            MoEConfig { num_layers: 1 << 40, ..usual() },
            MoEConfig { vocab_size: 1 << 62, ..usual() },
            MoEConfig { num_experts: usize::MAX / 2, ..usual() },
        ] {
            let error = ParameterLayout::new(&config).unwrap_err();
            assert!(error.to_string().ends_with("is more than this program can hold"), "{error}");
        }
    }
}
