//! The forward pass over a stored model: weights multiplied as their file has them, keys and values in pages.
//!
//! Activations are f32. A token's result depends on the tokens before it in its own sequence alone, to the bit: not on who else
//! is in the call, on the pieces that a prompt is cut into, nor on whether pages were shared, since every kernel that is called
//! here gives a row the same bits in any company (`bindings.h`, sections quant and attention).

use std::ops::Range;
use std::sync::Arc;

use nn_ffi::{Context, DType, Tensor, kernels};

use super::low_rank::{Run, runs_of};
use super::paged_cache::{CacheFormat, CacheSizes, CachedSequence, PAGE, PagedCache};
use super::pooling::Pool;
use super::scores::{Scores, TokenLogprobs, check_alternatives};
use super::stored_layers::{Heads, StoredLayers, product, scale};
use super::ternary_layers::TernaryLayers;
use super::weight_reader::Place;
use super::weights::{Layers, Weights};
use crate::error::{Error, Result};
use crate::layer::RopeTables;
use crate::model::{Adapter, LlamaConfig, StoredModel};

/// Rows of the rotary embedding's tables at first; they double when a sequence goes beyond, with or without a window.
const FIRST_POSITIONS: usize = 4096;

/// Tokens of a sequence unless more are asked for: what many models were trained for, and what a cache is cheap for.
pub const USUAL_CONTEXT: usize = 8192;

/// Sequences of full length that the cache has room for by default; shorter ones may be more.
const USUAL_SEQUENCES: usize = 4;

/// Rows normed at a time, and rows of logits made, when those of all tokens are wanted.
const LOGITS_ROWS: usize = 64;

/// How a model is run.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Most tokens of a sequence that see one another; by default the model's, at most 8192. A sequence that continues beyond
    /// it drops its oldest tokens, a page of 128 at a time.
    pub context: Option<usize>,
    /// In which keys and values are kept.
    pub cache_format: CacheFormat,
    /// Room of the cache for all sequences together; by default four sequences of full length.
    pub cache_tokens: Option<usize>,
    /// Most sequences that are decoded together.
    pub max_batch: usize,
    /// Most tokens of a prefill call; any number gives the same bits.
    pub piece: usize,
    /// Where the weights lie on a CPU; the bits are the same.
    pub weights: Place,
    /// Whether decoding may start a step before the host has read the one before; by default on a GPU: on a CPU there is no
    /// time to win, and steps for nothing cost some. The tokens are the same.
    pub ahead: Option<bool>,
    /// What is added to the weights, which stay as they are stored, for sequences that name no adapter.
    pub adapter: Option<Arc<Adapter>>,
    /// Those that a sequence may name; each has the bits that it has alone, whoever else is in a call.
    pub adapters: Vec<(String, Arc<Adapter>)>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            context: None,
            cache_format: CacheFormat::default(),
            cache_tokens: None,
            max_batch: 32,
            piece: 512,
            weights: Place::default(),
            ahead: None,
            adapter: None,
            adapters: Vec::new(),
        }
    }
}

/// What a prefill call runs of one sequence: its next ids, and whether the logits after the last are wanted.
#[derive(Debug)]
pub(super) struct Part<'s> {
    pub(super) sequence: &'s mut CachedSequence,
    pub(super) ids: &'s [i32],
    pub(super) wanted: bool,
}

/// A call's tokens on the device: of sequence b those from offsets\[b\] to offsets\[b+1\]-1, the last of its lengths\[b\] rows.
/// All are i32.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    /// `[tokens]`.
    pub(super) ids: Tensor,
    /// `[tokens]`.
    pub(super) positions: Tensor,
    /// `[batch + 1]`.
    pub(super) offsets: Tensor,
    /// `[batch]`.
    pub(super) lengths: Tensor,
    /// `[batch, max_pages]`.
    pub(super) table: Tensor,
}

impl Inputs {
    /// The same places, of the first tokens and sequences only.
    pub(super) fn first(&self, tokens: usize, batch: usize) -> Result<Self> {
        Ok(Self {
            ids: self.ids.narrow(0, 0, tokens)?,
            positions: self.positions.narrow(0, 0, tokens)?,
            offsets: self.offsets.narrow(0, 0, batch + 1)?,
            lengths: self.lengths.narrow(0, 0, batch)?,
            table: self.table.narrow(0, 0, batch)?,
        })
    }
}

/// The layers around attention, of either kind of weights.
#[derive(Debug)]
enum LayerCalls {
    Stored(Box<StoredLayers>),
    Ternary(Box<TernaryLayers>),
}

/// Runs a stored model on a context.
#[derive(Debug)]
pub struct Engine {
    ctx: Context,
    config: LlamaConfig,
    context: usize,
    max_batch: usize,
    piece: usize,
    weights: Weights,
    rope: RopeTables,
    /// Of layers with a window, where these have tables of their own.
    local_rope: Option<RopeTables>,
    pub(super) cache: PagedCache,
    // Where the steps of a call put their results: made once for the most rows of a call, so that no call allocates.
    layers: LayerCalls,
    x: Tensor,
    heads: Tensor,
    logits: Tensor,
    normed: Tensor,
    last: Tensor,
    rows: Tensor,
    inputs: Inputs,
    row_bytes: usize,
}

impl Engine {
    /// A model with its weights on a context.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for an option that does not fit the model, [`Error::Format`] for ternary weights whose bytes are wrong,
    /// and as [`Context::empty`].
    pub fn new(model: &StoredModel, ctx: &Context, options: &EngineOptions) -> Result<Self> {
        let config = model.config().clone();
        let EngineOptions { max_batch, piece, .. } = *options;
        for (name, value) in [("max_batch", max_batch), ("piece", piece)] {
            if value < 1 {
                return Err(Error::value(format!("{name} is {value}; it must be at least 1")));
            }
        }
        let context = options.context.unwrap_or_else(|| config.context.min(USUAL_CONTEXT));
        let most = config.extended_context;
        if !(1..=most).contains(&context) {
            return Err(Error::value(format!("context is {context}; this model takes 1 to {most} tokens")));
        }
        let usual = max_batch.min(USUAL_SEQUENCES) * context.div_ceil(PAGE) * PAGE;
        let cache_tokens = options.cache_tokens.unwrap_or(usual);
        if cache_tokens < 1 {
            return Err(Error::value(format!("cache_tokens is {cache_tokens}; it must be at least 1")));
        }
        let rows = piece.max(max_batch);
        let weights = Weights::new(ctx, model, options.weights, options.adapter.as_deref(), &options.adapters)?;
        let (divisors, magnitude) = (config.rope_divisors(context), (config.rope.magnitude(), config.rotated()));
        let rope = RopeTables::scaled(ctx, config.head_dim, config.rope_options(context)?, &divisors, magnitude)?;
        let local = (config.local_rope_base > 0.0).then_some(config.local_rope_base);
        let local_rope = local.map(|base| RopeTables::new(ctx, config.head_dim, base, 1.0));
        let sizes = CacheSizes {
            layers: config.num_layers,
            kv_heads: config.num_kv_heads,
            head_dim: config.head_dim,
            pages: cache_tokens.div_ceil(PAGE),
            context,
        };
        let cache = PagedCache::new(ctx, sizes, options.cache_format)?;
        let rank = weights.adapters.rank();
        let layers = if config.ternary {
            LayerCalls::Ternary(Box::new(TernaryLayers::new(ctx, &config, rows, rank)?))
        } else {
            LayerCalls::Stored(Box::new(StoredLayers::new(ctx, &config, rows, rank)?))
        };
        let floats = |shape: &[usize]| ctx.empty(shape, DType::F32);
        let (hidden, vocab) = (config.hidden_size, config.vocab_size);
        let engine = Self {
            layers,
            x: floats(&[rows, hidden])?,
            heads: floats(&[rows, config.num_heads, config.head_dim])?,
            logits: floats(&[max_batch, vocab])?,
            normed: floats(&[max_batch.max(LOGITS_ROWS), hidden])?,
            last: floats(&[max_batch, hidden])?,
            rows: ctx.empty(&[max_batch], DType::I32)?,
            inputs: inputs(ctx, &cache, piece, max_batch)?,
            row_bytes: 2 * config.num_layers * cache.page_bytes() / PAGE,
            ctx: ctx.clone(),
            config,
            context,
            max_batch,
            piece,
            weights,
            rope,
            local_rope,
            cache,
        };
        engine.reach(FIRST_POSITIONS - 1)?;
        Ok(engine)
    }

    /// The device.
    pub fn ctx(&self) -> &Context {
        &self.ctx
    }

    /// Sizes and options of the model.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// Most tokens of a sequence that see one another.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Most sequences that are decoded together.
    pub fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// Most tokens of a prefill call.
    pub fn piece(&self) -> usize {
        self.piece
    }

    /// The weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The names of the adapters that a sequence may name.
    pub fn adapters(&self) -> &[String] {
        self.weights.adapters.names()
    }

    /// The number of an adapter by its name, 0 without one. `Error::Value` for a name that there is not.
    pub(super) fn adapter_number(&self, name: Option<&str>) -> Result<usize> {
        self.weights.adapters.number(name)
    }

    /// Keys and values.
    pub fn cache(&self) -> &PagedCache {
        &self.cache
    }

    /// Positions that the rotary tables reach now.
    pub(super) fn positions(&self) -> usize {
        self.rope.length()
    }

    /// Has rotary tables with a row for this position: those in use, or others twice as long.
    pub(super) fn reach(&self, position: usize) -> Result<()> {
        if position >= self.rope.length() {
            let length = (position + 1).max(2 * self.rope.length());
            self.rope.tables(length)?;
            if let Some(local) = &self.local_rope {
                local.tables(length)?;
            }
        }
        Ok(())
    }

    // Prefill

    /// Runs the next ids of one or several sequences, at most `piece` ids and `max_batch` sequences.
    ///
    /// Gives the logits f32 `[wanted parts, vocab]` after the last id of each part that wants them, which the next call
    /// overwrites; `None` when none does.
    ///
    /// # Errors
    ///
    /// [`Error::CacheFull`] or [`Error::Value`] when a sequence has no room, and [`Error::OutOfRange`] for an id outside the
    /// vocabulary, all before anything is run.
    pub(super) fn prefill(&mut self, parts: &mut [Part<'_>]) -> Result<Option<Tensor>> {
        for part in &*parts {
            self.check_ids(part.ids)?;
        }
        self.forward_parts(parts)?;
        let (mut end, mut last) = (0, Vec::new());
        for part in parts {
            end += part.ids.len();
            if part.wanted {
                last.push(end as i32 - 1);
            }
        }
        if last.is_empty() {
            return Ok(None);
        }
        let (rows, of_last) = (self.rows.narrow(0, 0, last.len())?, self.last.narrow(0, 0, last.len())?);
        rows.copy_from_slice(&last)?;
        kernels::embedding(&self.x.narrow(0, 0, end)?, &rows, &of_last)?;
        Ok(Some(self.head(&of_last, &self.logits)?))
    }

    /// The logits after each of the ids, f32 `[ids, vocab]`; `adapter` is the name of one of the engine's.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] when there is no id or more than the context has room for, and for a name that there is not,
    /// [`Error::OutOfRange`] for an id outside the vocabulary, [`Error::CacheFull`] while other sequences have the pages.
    pub fn logits(&mut self, ids: &[i32], adapter: Option<&str>) -> Result<Vec<f32>> {
        self.check_whole(ids)?;
        let mut sequence = self.open(ids.len(), adapter)?;
        let found = self.logits_of(&mut sequence, ids);
        self.cache.close(sequence);
        found
    }

    fn logits_of(&mut self, sequence: &mut CachedSequence, ids: &[i32]) -> Result<Vec<f32>> {
        let vocab = self.config.vocab_size;
        let mut found = vec![0.0; ids.len() * vocab];
        // Of its own: with a large vocabulary these are tens of megabytes, which drawing tokens has no use for.
        let block = self.ctx.empty(&[ids.len().min(LOGITS_ROWS), vocab], DType::F32)?;
        let mut targets = found.chunks_mut(vocab);
        for piece in ids.chunks(self.piece) {
            self.forward_parts(&mut [Part { sequence, ids: piece, wanted: false }])?;
            for first in (0..piece.len()).step_by(block.shape()[0]) {
                let rows = block.shape()[0].min(piece.len() - first);
                let logits: Vec<f32> = self.head(&self.x.narrow(0, first, rows)?, &block)?.to_vec()?;
                for (row, target) in logits.chunks(vocab).zip(&mut targets) {
                    target.copy_from_slice(row);
                }
            }
        }
        Ok(found)
    }

    /// The log-probability of each of the ids after those before it, with so many alternatives; none for the first. The bits
    /// are those that a request has for its prompt.
    ///
    /// # Errors
    ///
    /// As of [`logits`](Self::logits), but that there may be no id at all.
    pub fn logprobs(
        &mut self,
        ids: &[i32],
        alternatives: usize,
        adapter: Option<&str>,
    ) -> Result<Vec<Option<TokenLogprobs>>> {
        self.check_ids(ids)?;
        check_alternatives("alternatives", Some(alternatives))?;
        if ids.len() > self.context {
            let (count, room) = (ids.len(), self.context);
            return Err(Error::value(format!("there are {count} ids; the context has room for {room}")));
        }
        let mut sequence = self.open(ids.len(), adapter)?;
        let found = self.logprobs_of(&mut sequence, ids, alternatives);
        self.cache.close(sequence);
        found
    }

    fn logprobs_of(
        &mut self,
        sequence: &mut CachedSequence,
        ids: &[i32],
        alternatives: usize,
    ) -> Result<Vec<Option<TokenLogprobs>>> {
        let mut found = vec![None; ids.len().min(1)];
        for (number, piece) in ids.chunks(self.piece).enumerate() {
            self.forward_parts(&mut [Part { sequence, ids: piece, wanted: false }])?;
            let next = number * self.piece + 1;
            let following = &ids[next.min(ids.len())..(next + piece.len()).min(ids.len())];
            found.extend(self.scores(0, following, alternatives)?.into_iter().map(Some));
        }
        Ok(found)
    }

    /// The log-probabilities of the ids that follow the tokens of the last prefill call from number `first` on.
    pub(super) fn scores(&self, first: usize, following: &[i32], alternatives: usize) -> Result<Vec<TokenLogprobs>> {
        let mut found = Vec::new();
        let rows = following.len().min(LOGITS_ROWS);
        if rows == 0 {
            return Ok(found);
        }
        let block = self.ctx.empty(&[rows, self.config.vocab_size], DType::F32)?;
        let (scores, ids) = (Scores::new(&self.ctx, rows)?, self.ctx.empty(&[rows], DType::I32)?);
        for (number, part) in following.chunks(rows).enumerate() {
            let logits = self.head(&self.x.narrow(0, first + number * rows, part.len())?, &block)?;
            let ids = ids.narrow(0, 0, part.len())?;
            ids.copy_from_slice(part)?;
            scores.take(&logits, &ids)?;
            found.extend(scores.read(&vec![alternatives; part.len()])?);
        }
        Ok(found)
    }

    /// The vector of a text, f32 `[hidden_size]`: the mean of the hidden states after the final norm, of all of its tokens,
    /// brought to length 1. The bits are those that a request has for its prompt.
    ///
    /// # Errors
    ///
    /// As of [`logits`](Self::logits).
    pub fn embed(&mut self, ids: &[i32], adapter: Option<&str>) -> Result<Vec<f32>> {
        self.check_whole(ids)?;
        let pool = self.pool()?;
        let mut sequence = self.open(ids.len(), adapter)?;
        let run = ids.chunks(self.piece).try_for_each(|piece| {
            self.forward_parts(&mut [Part { sequence: &mut sequence, ids: piece, wanted: false }])?;
            self.add_to(&pool, 0, piece.len())
        });
        self.cache.close(sequence);
        run.and_then(|()| pool.vector())
    }

    /// A sequence of so many rows that an adapter of this name computes, which looks for nothing in the cache.
    fn open(&mut self, rows: usize, adapter: Option<&str>) -> Result<CachedSequence> {
        let number = self.adapter_number(adapter)?;
        self.cache.open_beside(&[], rows, &[], number)
    }

    /// Where the hidden states of a text are gathered.
    pub(super) fn pool(&self) -> Result<Pool> {
        Pool::new(&self.ctx, self.config.hidden_size)
    }

    /// Adds the hidden states of so many tokens of the last prefill call, from number `first` on.
    pub(super) fn add_to(&self, pool: &Pool, first: usize, tokens: usize) -> Result<()> {
        (0..tokens).step_by(LOGITS_ROWS).try_for_each(|start| {
            let rows = LOGITS_ROWS.min(tokens - start);
            pool.add(&self.final_norm(&self.x.narrow(0, first + start, rows)?)?)
        })
    }

    /// Refuses ids that cannot be run as a whole.
    fn check_whole(&self, ids: &[i32]) -> Result<()> {
        self.check_ids(ids)?;
        if ids.is_empty() {
            return Err(Error::value("ids is empty; there must be at least one"));
        }
        if ids.len() > self.context {
            let (count, room) = (ids.len(), self.context);
            return Err(Error::value(format!("there are {count} ids; the context has room for {room}")));
        }
        Ok(())
    }

    /// Refuses an id outside the vocabulary.
    pub(super) fn check_ids(&self, ids: &[i32]) -> Result<()> {
        check_ids(ids, self.config.vocab_size, "ids")
    }

    fn forward_parts(&mut self, parts: &mut [Part<'_>]) -> Result<()> {
        let lengths: Vec<usize> = parts.iter().map(|part| part.ids.len()).collect();
        let tokens = lengths.iter().sum();
        if tokens > self.piece || parts.len() > self.max_batch || lengths.contains(&0) {
            return Err(Error::value(format!(
                "a call of {} parts with {lengths:?} tokens; there may be {} parts of at least one token each and {} tokens \
                 in all",
                parts.len(),
                self.max_batch,
                self.piece
            )));
        }
        for part in &mut *parts {
            self.cache.extend(part.sequence, part.ids.len())?;
        }
        let spans: Vec<Range<usize>> =
            parts.iter().map(|part| part.sequence.position()..part.sequence.position() + part.ids.len()).collect();
        self.reach(spans.iter().map(|span| span.end).max().unwrap_or(1) - 1)?;
        let inputs = self.inputs.first(tokens, parts.len())?;
        inputs.ids.copy_from_slice(&parts.iter().flat_map(|part| part.ids).copied().collect::<Vec<i32>>())?;
        let positions: Vec<i32> = spans.into_iter().flatten().map(|position| position as i32).collect();
        inputs.positions.copy_from_slice(&positions)?;
        let mut offsets = vec![0];
        offsets.extend(lengths.iter().scan(0, |end, length| {
            *end += *length as i32;
            Some(*end)
        }));
        inputs.offsets.copy_from_slice(&offsets)?;
        let rows = parts.iter().map(|part| (part.sequence.length() + part.ids.len()) as i32);
        inputs.lengths.copy_from_slice(&rows.collect::<Vec<i32>>())?;
        let table = parts.iter().flat_map(|part| self.cache.table_row(part.sequence));
        inputs.table.copy_from_slice(&table.collect::<Vec<i32>>())?;
        let runs = runs_of(parts.iter().map(|part| (part.sequence.adapter(), part.ids.len())));
        self.forward(&inputs, false, &runs)?;
        for part in parts {
            self.cache.advance(part.sequence, part.ids);
        }
        Ok(())
    }

    // Decode

    /// Places on the device for a call's tokens.
    pub(super) fn inputs(&self, tokens: usize, batch: usize) -> Result<Inputs> {
        inputs(&self.ctx, &self.cache, tokens, batch)
    }

    /// Logits f32 `[batch, vocab]` after one new token of each sequence, whose adapters `runs` says. The calls read nothing on
    /// the host, so they can be captured; pages and rotary tables must reach as far as the rows and positions do.
    pub(super) fn decode(&mut self, inputs: &Inputs, runs: &[Run]) -> Result<Tensor> {
        self.forward(inputs, true, runs)?;
        self.head(&self.x.narrow(0, 0, inputs.ids.shape()[0])?, &self.logits)
    }

    // The model

    /// Runs all layers; the residual stream is in `x` then.
    fn forward(&mut self, inputs: &Inputs, decode: bool, runs: &[Run]) -> Result<()> {
        match &mut self.layers {
            LayerCalls::Stored(calls) => calls.runs = runs.to_vec(),
            LayerCalls::Ternary(calls) => calls.runs = runs.to_vec(),
        }
        let x = self.x.narrow(0, 0, inputs.ids.shape()[0])?;
        let table = &self.weights.embedding;
        kernels::embedding_quant(&table.data, &inputs.ids, &x, table.format)?;
        scale(&x, self.config.embedding_scale)?;
        match (&self.layers, &self.weights.layers) {
            (LayerCalls::Stored(calls), Layers::Stored(layers)) => {
                for (number, layer) in layers.iter().enumerate() {
                    let sinks = layer.sinks.as_ref();
                    let heads = self.attention(number, calls.qkv(layer, &x)?, sinks, inputs, decode)?;
                    calls.attended(layer, &heads, &x)?;
                    calls.feed_forward(layer, &x)?;
                }
            }
            (LayerCalls::Ternary(calls), Layers::Ternary(layers)) => {
                for (number, layer) in layers.iter().enumerate() {
                    let heads = self.attention(number, calls.qkv(layer, &x)?, None, inputs, decode)?;
                    calls.attended(layer, &heads, &x)?;
                    calls.feed_forward(layer, &x)?;
                }
            }
            _ => unreachable!("both are of the kind that the configuration says"),
        }
        Ok(())
    }

    /// Puts a layer's keys and values into the cache; what attention gives, f32 `[tokens, heads * head_dim]`.
    fn attention(
        &self,
        number: usize,
        qkv: Heads,
        sinks: Option<&Tensor>,
        inputs: &Inputs,
        decode: bool,
    ) -> Result<Tensor> {
        let Heads { q, k, v } = qkv;
        let (tokens, dim) = (q.shape()[0], self.config.head_dim);
        let (heads, kv_heads) = (self.config.num_heads, self.config.num_kv_heads);
        let local = self.local_rope.as_ref().filter(|_| self.config.window_of(number) > 0);
        let (cosine, sine) = local.unwrap_or(&self.rope).tables(1)?;
        let (positions, layout) = (&inputs.positions, self.config.rope.layout);
        let ((keys, values), format) = (self.cache.layer(number), self.cache.format());
        let (offsets, lengths, table) = (&inputs.offsets, &inputs.lengths, &inputs.table);
        let out = self.heads.narrow(0, 0, tokens)?;
        let scale = match self.config.attention_scale {
            0.0 => (1.0 / (dim as f64).sqrt()) as f32,
            scale => scale as f32,
        };
        let (window, cap) = (self.config.window_of(number) as i64, self.config.scores_cap as f32);
        if decode {
            kernels::attention_step_paged(
                &q, &k, &v, &cosine, &sine, positions, lengths, table, sinks, keys, values, &out, scale, window, cap,
                layout, format,
            )?;
        } else {
            kernels::rope_qk(&q, &k, &cosine, &sine, positions, layout)?;
            kernels::kv_append_paged(&k, &v, offsets, lengths, table, keys, values, format)?;
            kernels::flash_attention_paged(
                &q, keys, values, offsets, lengths, table, sinks, &out, kv_heads, scale, window, cap, format,
            )?;
        }
        Ok(out.view(&[tokens, heads * dim])?)
    }

    /// Logits of rows of the residual stream, in the first rows of `target`.
    fn head(&self, x: &Tensor, target: &Tensor) -> Result<Tensor> {
        let logits = target.narrow(0, 0, x.shape()[0])?;
        product(&self.final_norm(x)?, &self.weights.head, None, None, None, &logits)?;
        scale(&logits, 1.0 / self.config.logits_scaling)?;
        if self.config.logits_cap > 0.0 {
            kernels::softcap(&logits, &logits, self.config.logits_cap as f32)?;
        }
        Ok(logits)
    }

    /// Normed rows of the residual stream, which the next call overwrites.
    fn final_norm(&self, x: &Tensor) -> Result<Tensor> {
        let normed = self.normed.narrow(0, 0, x.shape()[0])?;
        kernels::rmsnorm(x, &self.weights.norm, &normed, None, self.config.norm_eps as f32)?;
        Ok(normed)
    }

    /// Bytes that one decode step of sequences with these rows and adapters must read at least: each weight once, the
    /// adapters, and the rows of each sequence's cache.
    pub(super) fn bytes_per_step(&self, lengths: &[usize], adapters: &[usize]) -> usize {
        self.weights.bytes_per_step(adapters) + self.row_bytes * lengths.iter().sum::<usize>()
    }
}

fn inputs(ctx: &Context, cache: &PagedCache, tokens: usize, batch: usize) -> Result<Inputs> {
    let wholes = |shape: &[usize]| ctx.zeros(shape, DType::I32);
    Ok(Inputs {
        ids: wholes(&[tokens])?,
        positions: wholes(&[tokens])?,
        offsets: wholes(&[batch + 1])?,
        lengths: wholes(&[batch])?,
        table: wholes(&[batch, cache.max_pages()])?,
    })
}

/// Refuses an id outside the vocabulary; the error calls the ids `name`.
pub(super) fn check_ids(ids: &[i32], vocab: usize, name: &str) -> Result<()> {
    let wrong = ids.iter().position(|id| usize::try_from(*id).map_or(true, |id| id >= vocab));
    match wrong {
        None => Ok(()),
        Some(at) => Err(Error::OutOfRange(format!("{name}[{at}] is {}; it must be 0 to {}", ids[at], vocab - 1))),
    }
}
