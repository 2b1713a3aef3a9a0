//! Scratch memory of the kernels of a training step: what a call takes from the arena, derived from its sizes.
//!
//! Of the CPU engine's products and attention the cuts are followed as `cuda/cpu/gemm_plan.h` and
//! `cuda/cpu/attention_*.c` make them, since they take all but a few per cent of it; where a take depends on the data
//! (how many tokens the busiest expert gets) it is the most that it can be: all of them, or the capacity of an expert.
//! What takes little is bounded, as is what a GPU takes: there pieces of sums are limited by constants (64 MiB of a
//! product), whatever the sizes. The takes of a call are a list, since the arena rounds each.

use nn_ffi::{Context, Device};

use crate::error::Result;
use crate::model::{MoEConfig, Precision};

/// What decides how work is cut: the engine ("cpu" or "cuda"), and of the CPU its threads and instruction set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// "cpu" or "cuda".
    pub engine: &'static str,
    /// Worker threads.
    pub threads: usize,
    /// Instruction set, such as "avx2".
    pub isa: String,
}

/// Sizes of an attention call.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub(super) batch: usize,
    pub(super) length: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) dim: usize,
}

impl Machine {
    /// A GPU.
    pub fn gpu() -> Self {
        Self { engine: "cuda", threads: 1, isa: String::new() }
    }

    /// What of a context decides how much scratch its kernels take.
    pub fn of(ctx: &Context) -> Result<Self> {
        if ctx.device() != Device::Cpu {
            return Ok(Self::gpu());
        }
        let isa = ctx.isa()?.map_or("", |isa| isa.name()).to_owned();
        Ok(Self { engine: "cpu", threads: ctx.threads()?, isa })
    }

    pub(super) fn on_cpu(&self) -> bool {
        self.engine == "cpu"
    }

    /// f32 elements of a vector.
    pub(super) fn lanes(&self) -> usize {
        match self.isa.as_str() {
            "baseline" => 4,
            "avx2" => 8,
            _ => 16,
        }
    }

    /// Whether attention in this precision has products of its own: those of bf16.
    fn multiplies(&self, precision: Precision) -> bool {
        precision == Precision::BF16 && self.isa == "amx"
    }

    /// Of `flash_attention`: a worker's block of queries and scores, and packed keys and values of a round of heads.
    pub(super) fn attention(&self, precision: Precision, s: Heads) -> Vec<usize> {
        if !self.on_cpu() {
            return Vec::new();
        }
        if self.multiplies(precision) {
            const STEP: usize = 128;
            let columns = s.dim.next_multiple_of(32);
            let size = s.length.next_multiple_of(STEP) * columns / 2;
            let round = 4 * ((1 << 18) / (2 * size)).min(s.batch * s.kv_heads).max(1) * size;
            return vec![4 * 64 * (columns / 2 + STEP / 2 + STEP + columns) * self.threads, round, round];
        }
        let columns = 2 * self.lanes();
        let panels = s.dim.div_ceil(columns) * columns;
        let worker = (2 * panels * 96 + 96 * (256 + 16 + 2 + self.lanes())).next_multiple_of(16);
        let (keys, values) = (s.length.next_multiple_of(columns) * s.dim, panels * s.length);
        let pairs = ((1 << 19) / (keys + values)).min(s.batch * s.kv_heads).max(1);
        vec![4 * worker * self.threads, 4 * pairs * keys, 4 * pairs * values]
    }

    /// Of `flash_attention_backward`: a worker's panels, and partial dK and dV of what shares a key head.
    pub(super) fn attention_backward(&self, precision: Precision, s: Heads) -> Vec<usize> {
        let (group, pairs) = (s.heads / s.kv_heads, s.batch * s.kv_heads);
        if !self.on_cpu() {
            // Sums of each row; and partial dK, dV of at most 512 tiles of at most 128 keys.
            let pieces = (group * s.length / 512).min(512);
            let most = if pieces > 1 { (pieces * pairs * s.length).min(512 * 128) } else { 0 };
            return vec![16 * s.batch * s.heads * s.length, 8 * most * s.dim];
        }
        const WANTED: usize = 8;
        let (wide, columns) = (self.multiplies(precision), s.dim.next_multiple_of(32));
        // The heads of a key head in one task.
        let together = wide && pairs >= WANTED && s.length * columns <= 1 << 16;
        let (parts, block) = (if together { 1 } else { group }, if wide { 64 } else { 96 });
        let piece = s.length.div_ceil(WANTED.div_ceil(pairs * parts)).next_multiple_of(block);
        let (tasks, rows) = (parts * s.length.div_ceil(piece), piece.min(s.length));
        let worker = if wide {
            let blocks = if together && group > 1 { s.length.div_ceil(64) } else { 1 };
            let (queries, keys) = (columns * (4 * 32 + 64) + 2 * 64, columns * (3 * 32 + 2 * 64));
            (rows.div_ceil(64) * queries + 64 * (2 * 64 + 6 * 32) + blocks * keys).next_multiple_of(16)
        } else {
            let panels = s.dim.next_multiple_of(2 * self.lanes());
            let rows = rows + if self.lanes() == 16 { 12 } else { 6 };
            let up = |size: usize| size.next_multiple_of(16);
            3 * up(rows * panels) + 3 * up(rows) + 5 * up(256 * panels) + 2 * up(96 * (256 + 16))
        };
        let mut taken = vec![4 * worker * self.threads];
        if tasks > 1 {
            let pair = 2 * tasks * s.length * s.dim;
            taken.push(4 * pair * ((1 << 24) / pair).min(pairs).max(1));
        }
        taken
    }

    /// Of `attention_decode`, a bound: pieces of at least 64 keys leave their maximum, sum and output.
    pub(super) fn attention_decode(&self, batch: usize, capacity: usize, config: &MoEConfig) -> Vec<usize> {
        let (heads, dim) = (config.num_heads, config.head_dim);
        let worker = 4 * (heads * (dim + 16 + 256) + 32 * (256 + 16));
        vec![self.threads * worker, 4 * batch * heads * capacity.div_ceil(64) * (dim + 18)]
    }

    /// Of the embedding's gradient: a GPU sorts the tokens, with two copies of ids and places, and counts digits.
    pub(super) fn scattered(&self, tokens: usize) -> Vec<usize> {
        if self.on_cpu() { Vec::new() } else { vec![16 * tokens + (1 << 20)] }
    }

    /// What a device gives for so many bytes (`cuda/abi/pool.c`); pages of the host that nobody touches cost nothing.
    pub(super) fn rounded(&self, size: usize) -> usize {
        if self.on_cpu() || size == 0 {
            return size;
        }
        let mut step = 256;
        while (size - 1) / step >= 16 {
            step *= 2;
        }
        size.next_multiple_of(if size > 16 << 20 { 2 << 20 } else { step })
    }
}

/// Of the backward call of a norm, a bound: at most 64 pieces of rows (128 on a GPU) leave a sum a column.
pub(super) fn rows_apart(rows: usize, columns: usize) -> Vec<usize> {
    vec![4 * rows.min(128) * columns]
}

/// Of the plan of rows, the gathering and its check, and the balancing loss, a bound: a number a slot, and one an expert
/// for each so many slots.
pub(super) fn routing(tokens: usize, k: usize, experts: usize) -> Vec<usize> {
    vec![4 * tokens * k + 8 * experts * (1 + tokens / 64)]
}

/// Of the norm of the gradients, a bound: an f64 for each 16384 of them (32768 on a GPU).
pub(super) fn squares(parameters: usize) -> Vec<usize> {
    vec![8 * parameters.div_ceil(1 << 14)]
}
