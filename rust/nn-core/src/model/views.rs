//! Layers, made of views of a model's arenas.

use std::sync::Arc;

use super::arenas::Arenas;
use super::config::MoEConfig;
use super::precision::Precision;
use crate::error::Result;
use crate::layer::{
    AllRows, DenseLayer, DenseNetwork, ExpertExchange, ExpertParallel, FeedForward, HeadNorms, Linear, MQAttention,
    MoELayer, Product, Projection, RMSNorm, Router, SwiGLU, TernaryLinear, TernaryNetwork, TransformerBlock, Weight,
};

/// The arenas that layers take their views from.
pub(super) struct Views<'a> {
    pub(super) arenas: &'a Arenas,
    pub(super) precision: Precision,
    pub(super) experts: Option<&'a Arc<ExpertParallel>>,
    /// For dense networks.
    pub(super) rows: &'a Arc<AllRows>,
}

impl Views<'_> {
    pub(super) fn weight(&self, name: &str) -> Result<Weight> {
        let value = self.arenas.weights().get(name)?;
        let grad = self.arenas.gradient(name, value.shape())?;
        Ok(Weight::new(value, grad))
    }

    fn fused(&self, first: &str, shape: &[usize]) -> Result<Weight> {
        Ok(Weight::new(self.arenas.weights().fused(first, shape)?, self.arenas.gradient(first, shape)?))
    }

    pub(super) fn block(&self, config: &MoEConfig, layer: usize) -> Result<TransformerBlock> {
        let prefix = format!("model.layers.{layer}");
        let hidden = config.hidden_size;
        let qkv_rows = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim;
        let qkv = if config.ternary {
            let heights = [config.num_heads, config.num_kv_heads, config.num_kv_heads].map(|n| n * config.head_dim);
            let product = self.ternary(&format!("{prefix}.self_attn.q_proj.weight"), &heights, hidden, None)?;
            Projection::Fused(Box::new(Product::Ternary(product)))
        } else if config.qk_norm {
            Projection::Normed(Box::new(self.head_norms(config, &format!("{prefix}.self_attn"))?))
        } else {
            let weight = self.fused(&format!("{prefix}.self_attn.q_proj.weight"), &[qkv_rows, hidden])?;
            let bias = || self.fused(&format!("{prefix}.self_attn.q_proj.bias"), &[qkv_rows]);
            let product = Linear::with_bias(weight, config.qkv_bias.then(bias).transpose()?);
            Projection::Fused(Box::new(Product::Plain(product)))
        };
        let norm = |name: &str| -> Result<_> {
            Ok(RMSNorm::new(self.weight(&format!("{prefix}.{name}.weight"))?, config.norm_eps))
        };
        let output = format!("{prefix}.self_attn.o_proj.weight");
        let attention = MQAttention {
            qkv,
            output: if config.ternary {
                let columns = config.num_heads * config.head_dim;
                let sub_norm = norm("self_attn.attn_sub_norm")?;
                Product::Ternary(self.ternary(&output, &[hidden], columns, Some(sub_norm))?)
            } else {
                Product::Plain(Linear::new(self.weight(&output)?))
            },
            heads: config.num_heads,
            kv_heads: config.num_kv_heads,
            head_dim: config.head_dim,
        };
        Ok(TransformerBlock {
            input_norm: norm("input_layernorm")?,
            attention,
            post_norm: norm("post_attention_layernorm")?,
            feed_forward: if config.num_experts == 0 {
                FeedForward::Dense(self.dense(config, &prefix)?)
            } else {
                FeedForward::Experts(self.mixture(config, layer, &prefix)?)
            },
            name: prefix,
            recompute: false,
        })
    }

    fn ternary(&self, first: &str, heights: &[usize], columns: usize, norm: Option<RMSNorm>) -> Result<TernaryLinear> {
        let weight = self.fused(first, &[heights.iter().sum(), columns])?;
        Ok(TernaryLinear::new(weight, heights, norm))
    }

    fn head_norms(&self, config: &MoEConfig, prefix: &str) -> Result<HeadNorms> {
        let product =
            |name: &str| -> Result<_> { Ok(Linear::new(self.weight(&format!("{prefix}.{name}_proj.weight"))?)) };
        let norm = |name: &str| -> Result<_> {
            Ok(RMSNorm::new(self.weight(&format!("{prefix}.{name}_norm.weight"))?, config.norm_eps))
        };
        Ok(HeadNorms { products: [product("q")?, product("k")?, product("v")?], norms: Some([norm("q")?, norm("k")?]) })
    }

    fn dense(&self, config: &MoEConfig, prefix: &str) -> Result<DenseLayer> {
        let (hidden, ffn) = (config.hidden_size, config.ffn_size);
        if config.ternary {
            let norm = RMSNorm::new(self.weight(&format!("{prefix}.mlp.ffn_sub_norm.weight"))?, config.norm_eps);
            let network = TernaryNetwork {
                gate_up: self.ternary(&format!("{prefix}.mlp.gate_proj.weight"), &[ffn, ffn], hidden, None)?,
                down: self.ternary(&format!("{prefix}.mlp.down_proj.weight"), &[hidden], ffn, Some(norm))?,
                squared_relu: config.squared_relu,
            };
            return Ok(DenseLayer { network: DenseNetwork::Ternary(network), recompute: false });
        }
        let network = SwiGLU {
            w13: self.fused(&format!("{prefix}.mlp.gate_proj.weight"), &[1, 2 * ffn, hidden])?,
            w2: self.fused(&format!("{prefix}.mlp.down_proj.weight"), &[1, hidden, ffn])?,
            fp8: self.precision == Precision::FP8,
        };
        let network = DenseNetwork::Plain { rows: Arc::clone(self.rows), network };
        Ok(DenseLayer { network, recompute: false })
    }

    fn mixture(&self, config: &MoEConfig, layer: usize, prefix: &str) -> Result<MoELayer> {
        let (hidden, ffn, experts) = (config.hidden_size, config.ffn_size, config.num_experts);
        let moe = format!("{prefix}.block_sparse_moe");
        let router = Router {
            gate: Linear::new(self.weight(&format!("{moe}.gate.weight"))?),
            k: config.experts_per_token,
            norm: config.norm_topk_prob,
            alpha: config.aux_alpha,
        };
        let exchange = self.experts.map(|parallel| ExpertExchange::new(parallel, layer));
        let own = self.experts.map_or(0..experts, |parallel| parallel.own());
        let of_experts = |part: &str, shape: &[usize]| {
            let first = format!("{moe}.experts.{}.{part}.weight", own.start);
            // Those of shared experts are not the arena's.
            if exchange.is_none() {
                self.fused(&first, shape)
            } else {
                Ok(Weight::new(self.arenas.weights().fused(&first, shape)?, None))
            }
        };
        let experts = SwiGLU {
            w13: of_experts("w1", &[own.len(), 2 * ffn, hidden])?,
            w2: of_experts("w2", &[own.len(), hidden, ffn])?,
            fp8: self.precision == Precision::FP8,
        };
        Ok(MoELayer { router, experts, exchange, recompute: false })
    }
}
