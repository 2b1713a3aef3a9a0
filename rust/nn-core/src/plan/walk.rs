//! The calls of a model, walked through for what they take and give back.

use super::memory::{Block, Kind, Ledger};
use super::product::{Product, Ragged};
use super::scratch::{Heads, routing, rows_apart};
use crate::model::{MoEConfig, Precision};
use crate::train::TrainConfig;

/// What a block keeps, by what becomes of it in backward.
struct Kept {
    /// Norm's input and output, rstd, qkv, heads, lse.
    attention: Vec<Block>,
    middle: Block,
    post_normed: Block,
    post_rstd: Block,
    routing: Vec<Block>,
    inside: Option<Inside>,
    y: Block,
}

/// What lies inside the experts: rows, gate and up, what W2 takes in.
struct Inside {
    rows: Block,
    gate_up: Block,
    active: Block,
}

/// What attention leaves: what it keeps, the stream behind it, its norm, and that one's rstd.
struct Attended {
    kept: Vec<Block>,
    middle: Block,
    post_normed: Block,
    post_rstd: Option<Block>,
}

/// The counts and choices of each layer, which whoever watches the routing sees.
pub(super) type Watched = Vec<Vec<Block>>;

/// The calls of a model on `tokens` tokens of `batch` sequences.
pub(super) struct Walk<'a> {
    config: &'a MoEConfig,
    precision: Precision,
    /// Bytes of an activation.
    width: usize,
    batch: usize,
    tokens: usize,
    /// Of the cache that one token a sequence looks at; 0: sequences look at themselves.
    capacity: usize,
    slots: usize,
    /// Bytes of the residual stream.
    pub(super) stream: usize,
    q: usize,
    qkv: usize,
    shape: Heads,
}

pub(super) fn width(precision: Precision) -> usize {
    if precision == Precision::F32 { 4 } else { 2 }
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        config: &'a MoEConfig,
        precision: Precision,
        batch: usize,
        tokens: usize,
        capacity: usize,
    ) -> Self {
        let MoEConfig { num_heads: heads, num_kv_heads: kv_heads, head_dim: dim, .. } = *config;
        let (width, q) = (width(precision), heads * dim);
        Self {
            config,
            precision,
            width,
            batch,
            tokens,
            capacity,
            slots: tokens * config.experts_per_token,
            stream: width * tokens * config.hidden_size,
            q,
            qkv: q + 2 * kv_heads * dim,
            shape: Heads { batch, length: tokens / batch, heads, kv_heads, dim },
        }
    }

    /// Makes the tokens look at so many keys in all.
    pub(super) fn look_at(&mut self, keys: usize) {
        self.shape.length = keys;
    }

    /// A product of one matrix that is not transposed, over what it makes; to be changed where it is another.
    fn product(&self, m: usize, n: usize, k: usize) -> Product {
        Product {
            m,
            n,
            k,
            precision: self.precision,
            wide: self.width == 4,
            trans_a: false,
            trans_b: false,
            count: 1,
            ragged: Ragged::None,
            longest: k,
            adds: false,
        }
    }

    fn run(memory: &mut Ledger, product: &Product) {
        let takes = product.scratch(&memory.machine);
        memory.call(takes);
    }

    /// Forward call of a linear layer; `wide` when the result is f32 in every precision.
    pub(super) fn linear(&self, memory: &mut Ledger, inputs: usize, outputs: usize, rows: usize, wide: bool) {
        let product = self.product(rows, outputs, inputs);
        Self::run(memory, &Product { wide: wide || product.wide, trans_b: true, ..product });
    }

    /// Its backward call, which adds to the gradients of the weights, or of the inputs.
    fn linear_backward(
        &self,
        memory: &mut Ledger,
        (inputs, outputs, rows): (usize, usize, usize),
        adds: bool,
        accumulates: bool,
    ) {
        let product = self.product(outputs, inputs, rows);
        Self::run(memory, &Product { wide: true, trans_a: true, adds, ..product });
        Self::run(memory, &Product { adds: accumulates, ..self.product(rows, inputs, outputs) });
    }

    fn experts(&self, memory: &mut Ledger, inputs: usize, outputs: usize, trans_b: bool) {
        let product = self.product(self.slots, outputs, inputs);
        let count = self.config.num_experts;
        Self::run(memory, &Product { trans_b, count, ragged: Ragged::Rows, ..product });
    }

    fn experts_gradient(&self, memory: &mut Ledger, inputs: usize, outputs: usize, adds: bool) {
        let product = self.product(outputs, inputs, self.slots);
        let longest = match usize::try_from(self.config.capacity(self.tokens)) {
            Ok(most) if most > 0 => most.min(self.tokens),
            _ => self.tokens,
        };
        let (count, ragged) = (self.config.num_experts, Ragged::Depth);
        Self::run(memory, &Product { wide: true, trans_a: true, count, ragged, longest, adds, ..product });
    }

    /// The attention half of a block.
    fn attend(&self, memory: &mut Ledger, keep: bool, kind: Kind, lse: bool) -> Attended {
        let (hidden, tokens) = (self.config.hidden_size, self.tokens);
        let normed = memory.take(self.stream, kind);
        let rstd = keep.then(|| memory.take(4 * tokens, kind));
        let qkv = memory.take(self.width * tokens * self.qkv, kind);
        self.linear(memory, hidden, self.qkv, tokens, false);
        let heads = memory.take(self.width * tokens * self.q, kind);
        let sums = lse.then(|| memory.take(4 * tokens * self.config.num_heads, kind));
        let takes = if self.capacity > 0 {
            memory.machine.attention_decode(self.batch, self.capacity, self.config)
        } else {
            memory.machine.attention(self.precision, self.shape)
        };
        memory.call(takes);
        let middle = memory.take(self.stream, kind);
        self.linear(memory, self.q, hidden, tokens, false);
        if !keep {
            memory.give([qkv, heads].into_iter().chain(sums));
        }
        let post_normed = memory.take(self.stream, kind);
        let post_rstd = keep.then(|| memory.take(4 * tokens, kind));
        if !keep {
            memory.give([normed]);
        }
        let kept = [normed].into_iter().chain(rstd).chain([qkv, heads]).chain(sums).collect();
        Attended { kept, middle, post_normed, post_rstd }
    }

    /// The router: what backward needs of it, and the counts and choices that are watched.
    fn route(&self, memory: &mut Ledger, kind: Kind) -> (Vec<Block>, Vec<Block>) {
        let (t, k, experts) = (self.tokens, self.config.experts_per_token, self.config.num_experts);
        let logits = memory.take(4 * t * experts, Kind::Transient);
        self.linear(memory, self.config.hidden_size, experts, t, true);
        let [weights, indices, probs, counts, offsets, slots, rows] =
            [4 * t * k, 4 * t * k, 4 * t * experts, 4 * experts, 4 * (experts + 1), 4 * t * k, 4 * t * k]
                .map(|size| memory.take(size, kind));
        memory.call(routing(t, k, experts));
        memory.give([logits]);
        (vec![weights, probs, offsets, slots, rows], vec![counts, indices])
    }

    /// What is computed inside the experts.
    fn inside(&self, memory: &mut Ledger, kind: Kind) -> Inside {
        let (hidden, ffn) = (self.config.hidden_size, self.config.ffn_size);
        let rows = memory.take(self.width * self.slots * hidden, kind);
        let gate_up = memory.take(self.width * self.slots * 2 * ffn, kind);
        self.experts(memory, hidden, 2 * ffn, true);
        Inside { rows, gate_up, active: memory.take(self.width * self.slots * ffn, kind) }
    }

    /// The outputs of the experts, and what backward needs beside them.
    fn experts_forward(&self, memory: &mut Ledger, kind: Kind, keep_inside: bool) -> (Block, Option<Inside>) {
        let inside = self.inside(memory, if keep_inside { kind } else { Kind::Transient });
        let y = memory.take(self.width * self.slots * self.config.hidden_size, kind);
        self.experts(memory, self.config.ffn_size, self.config.hidden_size, true);
        if keep_inside {
            return (y, Some(inside));
        }
        memory.give([inside.rows, inside.gate_up, inside.active]);
        (y, None)
    }

    /// A block that keeps nothing, forward, prefill or decode: its output. `watched` is replaced.
    pub(super) fn forward(&self, memory: &mut Ledger, watched: &mut Vec<Block>, lse: bool, out: Kind) -> Block {
        let left = self.attend(memory, false, Kind::Transient, lse);
        let (routing, seen) = self.route(memory, Kind::Transient);
        memory.give(std::mem::replace(watched, seen));
        let (y, _) = self.experts_forward(memory, Kind::Transient, false);
        let result = memory.take(self.stream, out);
        memory.give(routing.into_iter().chain([y, left.middle, left.post_normed]));
        result
    }

    /// A block up to where its backward begins, with what that needs, and the counts and choices.
    fn keeping(&self, memory: &mut Ledger, x: Block, watched: &mut Vec<Block>, inside: bool, kind: Kind) -> Kept {
        let left = self.attend(memory, true, kind, true);
        let (routing, seen) = self.route(memory, kind);
        memory.give(std::mem::replace(watched, seen));
        let (y, inside) = self.experts_forward(memory, kind, inside);
        let attention = [x].into_iter().chain(left.kept).collect();
        let post_rstd = left.post_rstd.unwrap_or(left.post_normed);
        Kept { attention, middle: left.middle, post_normed: left.post_normed, post_rstd, routing, inside, y }
    }

    /// The backward call of a block: the gradient of its input. The caller has that of its output.
    fn block_backward(&self, memory: &mut Ledger, kept: Kept, adds: bool) -> Block {
        let (c, transient) = (self.config, Kind::Transient);
        let (hidden, ffn, tokens) = (c.hidden_size, c.ffn_size, self.tokens);
        let Inside { rows, gate_up, active } = match kept.inside {
            Some(inside) => inside,
            None => self.inside(memory, transient),
        };
        let dweights = memory.take(4 * self.slots, transient);
        self.experts_gradient(memory, ffn, hidden, adds);
        memory.give([active]);
        let dactive = memory.take(self.width * self.slots * ffn, transient);
        self.experts(memory, hidden, ffn, false);
        memory.give([kept.y, dactive]);
        self.experts_gradient(memory, hidden, 2 * ffn, adds);
        self.experts(memory, 2 * ffn, hidden, false);
        let dx = memory.take(self.stream, transient);
        let dprobs = memory.take(4 * tokens * c.num_experts, transient);
        let dlogits = memory.take(self.width * tokens * c.num_experts, transient);
        self.linear_backward(memory, (hidden, c.num_experts, tokens), adds, true);
        memory.give([dprobs, dlogits].into_iter().chain(kept.routing));
        memory.give([rows, gate_up, dweights, kept.post_normed]);
        memory.call(rows_apart(tokens, hidden));
        memory.give([kept.middle, kept.post_rstd]);
        let dheads = memory.take(self.width * tokens * self.q, transient);
        self.linear_backward(memory, (self.q, hidden, tokens), adds, false);
        let dqkv = memory.take(self.width * tokens * self.qkv, transient);
        let takes = memory.machine.attention_backward(self.precision, self.shape);
        memory.call(takes);
        let dnormed = memory.take(self.stream, transient);
        self.linear_backward(memory, (hidden, self.qkv, tokens), adds, false);
        memory.give([dheads, dqkv].into_iter().chain(kept.attention).chain([dx]));
        dnormed
    }

    /// Rows of each chunk of logits that is walked.
    fn chunks(&self) -> Vec<usize> {
        pieces(self.tokens, self.config.logits_rows())
    }

    /// Cross-entropy and its gradient, chunk by chunk.
    fn loss(&self, memory: &mut Ledger, adds: bool) {
        let (vocab, hidden) = (self.config.vocab_size, self.config.hidden_size);
        let mut lse = None;
        for (piece, rows) in self.chunks().into_iter().enumerate() {
            let mut logits = memory.take(4 * rows * vocab, Kind::Logits);
            self.linear(memory, hidden, vocab, rows, true);
            let made = memory.take(4 * rows, Kind::Logits);
            memory.give(lse.replace(made));
            memory.call(vec![8 * rows]);
            if self.width == 2 {
                let rounded = memory.take(2 * rows * vocab, Kind::Logits);
                memory.give([logits]);
                logits = rounded;
            }
            self.linear_backward(memory, (hidden, vocab, rows), adds || piece > 0, false);
            memory.give([logits]);
        }
        memory.give(lse);
    }

    /// The forward and the backward call of a micro-batch, the first of an update or not.
    pub(super) fn forward_backward(
        &self,
        memory: &mut Ledger,
        options: &TrainConfig,
        watched: &mut Watched,
        first: bool,
    ) {
        let (every, transient) = (options.activation_checkpointing, Kind::Transient);
        let mut x = memory.take(self.stream, Kind::Kept);
        let mut stack = Vec::with_capacity(watched.len());
        for (at, seen) in watched.iter_mut().enumerate() {
            if every > 0 && (at + 1).is_multiple_of(every) {
                stack.push((x, None));
                x = self.forward(memory, seen, true, Kind::Kept);
            } else {
                let kept = self.keeping(memory, x, seen, !options.recompute_experts, Kind::Kept);
                stack.push((x, Some(kept)));
                x = memory.take(self.stream, Kind::Kept);
            }
        }
        let mut dx = memory.take(self.stream, transient);
        let rstd = memory.take(4 * self.tokens, transient);
        self.loss(memory, !first);
        memory.call(rows_apart(self.tokens, self.config.hidden_size));
        memory.give([rstd, x]);
        for (start, kept) in stack.into_iter().rev() {
            let mut unseen = Vec::new();
            let kept = match kept {
                Some(kept) => kept,
                None => self.keeping(memory, start, &mut unseen, true, transient),
            };
            let below = self.block_backward(memory, kept, !first);
            memory.give([dx].into_iter().chain(unseen));
            dx = below;
        }
        let takes = memory.machine.scattered(self.tokens);
        memory.call(takes);
        memory.give([dx]);
    }

    /// An evaluation, whose inputs come from the host.
    pub(super) fn evaluate(&self, memory: &mut Ledger, watched: &mut Watched) {
        let (vocab, hidden) = (self.config.vocab_size, self.config.hidden_size);
        let ids = [4 * self.tokens; 2].map(|size| memory.take(size, Kind::Evaluation));
        let mut x = memory.take(self.stream, Kind::Evaluation);
        for seen in watched {
            let out = self.forward(memory, seen, true, Kind::Transient);
            memory.give([x]);
            x = out;
        }
        let normed = memory.take(self.stream, Kind::Transient);
        memory.give([x]);
        let mut lse = None;
        for rows in self.chunks() {
            let logits = memory.take(4 * rows * vocab, Kind::Evaluation);
            self.linear(memory, hidden, vocab, rows, true);
            let made = memory.take(4 * rows, Kind::Evaluation);
            memory.give(lse.replace(made));
            memory.call(vec![8 * rows]);
            memory.give([logits]);
        }
        memory.give(lse.into_iter().chain([normed]).chain(ids));
    }
}

/// Sizes of the pieces of at most `most` that are walked: from the third on, all find what they take in place, unless
/// the last one is smaller.
pub(super) fn pieces(whole: usize, most: usize) -> Vec<usize> {
    let count = whole.div_ceil(most);
    let last = whole - (count - 1) * most;
    let mut sizes = vec![most; (count - 1).min(2)];
    if count < 3 || last != most {
        sizes.push(last);
    }
    sizes
}
