//! The transformer over a cache of keys and values: a prompt runs into it, and tokens follow one by one.

use nn_ffi::Tensor;

use super::transformer::{MoETransformer, rope_tables};
use crate::error::{Error, Result};
use crate::layer::KVCache;

/// A longer prompt runs through the model in parts of so many tokens, so that its activations take no more memory than
/// theirs. Tokens in its last part may so share an expert with fewer others, which shows in the last bits of products:
/// the number, too, is part of that promise.
const PREFILL_PART: usize = 6144;

impl MoETransformer {
    /// An empty cache of keys and values for `batch` sequences of up to `capacity` tokens.
    ///
    /// With a capacity beyond `context` the base of its rotary embedding grows by `ntk_alpha`. `Error::Value` when the
    /// model does not reach that far.
    pub fn cache(&self, batch: usize, capacity: usize) -> Result<KVCache> {
        self.require_all()?;
        let config = &self.config;
        if capacity > config.extended_context {
            let most = config.extended_context;
            return Err(Error::value(format!("{capacity} tokens are more than this model takes ({most})")));
        }
        let rope = if capacity <= config.context {
            &self.rope
        } else {
            match self.stretched.get() {
                Some(made) => made,
                None => {
                    let made = rope_tables(&self.ctx, config, config.ntk_alpha)?;
                    self.stretched.get_or_init(|| made)
                }
            }
        };
        KVCache::new(rope, config.num_layers, batch, capacity, config.num_kv_heads, self.precision.dtype())
    }

    /// Runs a prompt into row `row` of a cache, which must be empty, a long one in parts; the logits of its last token
    /// go to `logits` f32 `[1, vocab]`.
    pub fn prefill(&self, prompt: &[i32], cache: &mut KVCache, row: usize, logits: &Tensor) -> Result<()> {
        let used = cache.used(row)?;
        if used > 0 {
            return Err(Error::value(format!("sequence {row} has {used} tokens; a prompt needs an empty one")));
        }
        if prompt.is_empty() {
            return Err(Error::value("a prompt must have at least one token; the one that begins a text is enough"));
        }
        cache.require_room(prompt.len(), Some(row))?;
        for part in prompt.chunks(PREFILL_PART) {
            let ids = self.ctx.tensor(part, &[part.len()])?;
            let mut x = self.embed(&ids)?;
            for (layer, block) in self.blocks.iter().enumerate() {
                x = block.prefill(&x, cache, layer, row)?;
            }
            cache.advance(part.len(), Some(row))?;
            if cache.used(row)? == prompt.len() {
                self.predict(&x.narrow(0, part.len() - 1, 1)?, logits)?;
            }
        }
        Ok(())
    }

    /// Appends one token to each sequence of the cache, ids i32 `[batch]`; the logits go to `logits` f32
    /// `[batch, vocab]`.
    ///
    /// All that changes from step to step is on the device, so the calls can be captured and replayed. On the host they
    /// count one step, the graph's first launch; whoever launches it again counts that (`KVCache::count`).
    pub fn decode(&self, ids: &Tensor, cache: &mut KVCache, logits: &Tensor) -> Result<()> {
        cache.require_room(1, None)?;
        let mut x = self.embed(ids)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            x = block.decode(&x, cache, layer)?;
        }
        cache.advance(1, None)?;
        self.predict(&x, logits)
    }

    /// The logits of tokens from the stream after the last block.
    fn predict(&self, x: &Tensor, logits: &Tensor) -> Result<()> {
        self.label("model.norm")?;
        let normed = self.norm.forward(x)?;
        self.label("lm_head")?;
        self.head.forward_into(&normed, logits)?;
        self.label("")
    }
}
