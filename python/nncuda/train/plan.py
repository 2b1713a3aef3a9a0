"""The memory of a run before there is one: every allocation of a step and its end, walked through without any memory.

The plan follows `MoETransformer.forward_backward`, the layers, `CapturedStep` and `TrainingRun` call by call, so what
is kept, what is transient and when the most is in use comes out of the shapes; nothing is fitted to measurements. Bytes
are those that `Context.bytes_peak` counts: memory of tensors as it was asked for, and the chunks of scratch.

A captured step keeps each piece of memory that it ever took, and takes it again only for what has the same size, so it
needs more than the same calls one by one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..models import MoEConfig
from ..models.moe import PREFILL_PART, logits_rows
from . import scratch
from .config import TrainConfig
from .moments import moments_bytes
from .scratch import Machine, Product

#: What memory is for, in the order of a report.
KINDS = {
    "weights": "weights that the model computes with",
    "master": "f32 parameters behind 16-bit weights",
    "gradients": "gradients",
    "moments": "moments of AdamW",
    "cache": "cache of keys and values",
    "kept": "activations kept for backward",
    "transient": "activations, the largest transient",
    "logits": "logits of a chunk of tokens",
    "evaluation": "evaluation on held-out data",
    "fixed": "inputs, tables and counters",
    "scratch": "scratch of kernels",
}


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by kind at the moment when the most is in use, which add up to `peak`.

    Memory of a captured step that is kept for backward at any time counts as kept, other memory of it as what it was
    last taken for. `held` is what a device gives for the same
    memory: a GPU gives whole pages.
    """

    bytes: dict[str, int]
    peak: int
    held: int


@dataclass
class _Block:
    size: int
    kind: str
    captured: bool


@dataclass
class _Memory:
    """What is in use while calls are walked through, and the most that was."""

    machine: Machine
    used: Counter[str] = field(default_factory=Counter)
    peak: int = 0
    at_peak: dict[str, int] = field(default_factory=dict)
    held: int = 0
    most_held: int = 0
    arena: scratch.Arena = field(default_factory=scratch.Arena)
    graph_arena: scratch.Arena = field(default_factory=lambda: scratch.Arena(lasting=True))
    capturing: bool = False
    free: dict[int, list[str]] = field(default_factory=dict)  # of a capture: the kinds of free pieces by their size
    late: list[_Block] = field(default_factory=list)  # cannot be given back before the capture ends
    calls: list[tuple[int, ...]] = field(default_factory=list)

    def take(self, size: int, kind: str) -> _Block:
        found = self.free.get(size)
        if self.capturing and found:
            before = kind if kind in found else min(found, key="kept".__eq__)
            found.remove(before)
            kind = before if before == "kept" else kind
            self.used[before] -= size
            self.used[kind] += size
            self._note()
            return _Block(size, kind, True)
        self.used[kind] += size
        self.held += _rounded(size, self.machine.engine)
        self._note()
        return _Block(size, kind, self.capturing)

    def give(self, *blocks: _Block | None) -> None:
        for block in blocks:
            if block is None:
                continue
            if block.captured:
                self.free.setdefault(block.size, []).append(block.kind)
            elif self.capturing:
                self.late.append(block)
            else:
                self.used[block.kind] -= block.size
                self.held -= _rounded(block.size, self.machine.engine)

    def call(self, takes: tuple[int, ...]) -> None:
        """A kernel that takes scratch. While capturing nothing runs; the device may note it behind the end."""
        if self.capturing:
            self.calls.append(takes)
        elif takes:
            self._note(self.arena.call(takes))

    def end_capture(self) -> None:
        self.capturing = False
        if self.machine.engine != "cpu":  # scratch of a graph stays where the device noted it
            for takes in self.calls:
                self.graph_arena.call(takes)
            self._note()
        self.give(*self.late)
        self.late.clear()

    def _note(self, arena: int = 0) -> None:
        chunks = max(arena, self.arena.capacity) + self.graph_arena.capacity
        total = sum(self.used.values()) + chunks
        self.most_held = max(self.most_held, self.held + chunks)
        if total >= self.peak:
            self.peak, self.at_peak = total, {**self.used, "scratch": chunks}

    def plan(self) -> MemoryPlan:
        return MemoryPlan({kind: self.at_peak.get(kind, 0) for kind in KINDS}, self.peak, self.most_held)


@dataclass
class _Kept:
    """What a block keeps, by what becomes of it in backward."""

    attention: list[_Block]  # norm's input and output, qkv, heads, lse, rstd
    middle: _Block
    post_normed: _Block
    post_rstd: _Block | None
    routing: list[_Block]
    inside: tuple[_Block, _Block, _Block] | None  # rows, gate and up, what W2 takes in
    y: _Block


class _Walk:
    """The calls of a model on `tokens` tokens of `batch` sequences."""

    def __init__(
        self, memory: _Memory, config: MoEConfig, precision: str, batch: int, tokens: int, capacity: int = 0
    ) -> None:
        self.memory = memory
        self.config = config
        self.precision = precision
        self.width = 4 if precision == "f32" else 2
        self.batch = batch
        self.tokens = tokens
        self.capacity = capacity  # of the cache that one token a sequence looks at; 0: sequences look at themselves
        self.slots = tokens * config.experts_per_token
        self.stream = self.width * tokens * config.hidden_size
        self.q = config.num_heads * config.head_dim
        self.qkv = self.q + 2 * config.num_kv_heads * config.head_dim
        self.shape = batch, tokens // batch, config.num_heads, config.num_kv_heads, config.head_dim

    def take(self, size: int, kind: str = "transient") -> _Block:
        return self.memory.take(size, kind)

    def linear(self, inputs: int, outputs: int, rows: int | None = None, wide: bool = False) -> None:
        """Forward call of a linear layer."""
        rows = self.tokens if rows is None else rows
        wide = wide or self.width == 4
        self._product(Product(rows, outputs, inputs, self.precision, wide, trans_b=True))

    def linear_backward(self, inputs: int, outputs: int, rows: int, beta: float, accumulate: bool = False) -> None:
        self._product(Product(outputs, inputs, rows, self.precision, True, trans_a=True, beta=beta))
        self._product(Product(rows, inputs, outputs, self.precision, self.width == 4, beta=1.0 if accumulate else 0.0))

    def experts(self, inputs: int, outputs: int, trans_b: bool) -> None:
        self._product(
            Product(
                self.slots,
                outputs,
                inputs,
                self.precision,
                self.width == 4,
                trans_b=trans_b,
                count=self.config.num_experts,
                ragged="m",
            )
        )

    def experts_gradient(self, inputs: int, outputs: int, beta: float) -> None:
        self._product(
            Product(
                outputs,
                inputs,
                self.slots,
                self.precision,
                True,
                trans_a=True,
                count=self.config.num_experts,
                ragged="k",
                longest=min(self.tokens, self.config.capacity(self.tokens) or self.tokens),
                beta=beta,
            )
        )

    def _product(self, product: Product) -> None:
        self.memory.call(product.scratch(self.memory.machine))

    def attend(self, keep: bool, kind: str, lse: bool = True) -> tuple[list[_Block], _Block, _Block, _Block | None]:
        """`TransformerBlock._attend`: what attention keeps, the stream behind it, its norm, and that one's rstd."""
        memory, c = self.memory, self.config
        normed = self.take(self.stream, kind)
        rstd = [self.take(4 * self.tokens, kind)] if keep else []
        qkv = self.take(self.width * self.tokens * self.qkv, kind)
        self.linear(c.hidden_size, self.qkv)
        heads = self.take(self.width * self.tokens * self.q, kind)
        sums = [self.take(4 * self.tokens * c.num_heads, kind)] if lse else []
        if self.capacity:
            memory.call(_decoded(memory.machine, self.batch, self.capacity, c))
        else:
            memory.call(scratch.attention(memory.machine, self.precision, *self.shape))
        middle = self.take(self.stream, kind)
        self.linear(self.q, c.hidden_size)
        kept = [normed, *rstd, qkv, heads, *sums]
        if not keep:
            memory.give(qkv, heads, *sums)
        post_normed = self.take(self.stream, kind)
        post_rstd = self.take(4 * self.tokens, kind) if keep else None
        if not keep:
            memory.give(normed)
        return kept, middle, post_normed, post_rstd

    def route(self, kind: str) -> tuple[list[_Block], list[_Block]]:
        """`Router.forward`: what backward needs of it, and the counts and choices that are watched."""
        c, t, k = self.config, self.tokens, self.config.experts_per_token
        logits = self.take(4 * t * c.num_experts)
        self.linear(c.hidden_size, c.num_experts, wide=True)
        weights, indices = self.take(4 * t * k, kind), self.take(4 * t * k, kind)
        probs = self.take(4 * t * c.num_experts, kind)
        counts, offsets = self.take(4 * c.num_experts, kind), self.take(4 * (c.num_experts + 1), kind)
        places = [self.take(4 * t * k, kind) for _ in range(2)]
        self.memory.call(scratch.routing(t, k, c.num_experts))
        self.memory.give(logits)
        return [weights, probs, offsets, *places], [counts, indices]

    def inside(self, kind: str) -> tuple[_Block, _Block, _Block]:
        """`MoELayer._inside`."""
        c = self.config
        rows = self.take(self.width * self.slots * c.hidden_size, kind)
        gate_up = self.take(self.width * self.slots * 2 * c.ffn_size, kind)
        self.experts(c.hidden_size, 2 * c.ffn_size, trans_b=True)
        return rows, gate_up, self.take(self.width * self.slots * c.ffn_size, kind)

    def experts_forward(
        self, keep: bool, keep_inside: bool, kind: str
    ) -> tuple[_Block, tuple[_Block, _Block, _Block] | None]:
        """`MoELayer._experts`: the outputs, and what backward needs beside them."""
        inside = self.inside(kind if keep_inside else "transient")
        y = self.take(self.width * self.slots * self.config.hidden_size, kind if keep else "transient")
        self.experts(self.config.ffn_size, self.config.hidden_size, trans_b=True)
        if keep_inside:
            return y, inside
        self.memory.give(*inside)
        return y, None

    def block(
        self, x: _Block, watched: list[_Block], keep: bool = False, keep_inside: bool = False, lse: bool = True,
        out: str = "transient",
    ) -> tuple[_Block, _Kept | None]:  # fmt: skip
        """`TransformerBlock.forward` (or prefill, decode): its output, and what it keeps. `watched` is replaced."""
        kind = "kept" if keep else "transient"
        kept, middle, post_normed, post_rstd = self.attend(keep, kind, lse)
        routing, seen = self.route(kind)
        self.memory.give(*watched)
        watched[:] = seen
        y, inside = self.experts_forward(keep, keep_inside, kind)
        result = self.take(self.stream, out)
        if keep:
            return result, _Kept([x, *kept], middle, post_normed, post_rstd, routing, inside, y)
        self.memory.give(*routing, y, middle, post_normed)
        return result, None

    def again(self, x: _Block) -> tuple[_Kept, list[_Block]]:
        """What a recomputed block has right before its backward call, and its counts and choices, which nobody sees."""
        kept, middle, post_normed, post_rstd = self.attend(True, "transient")
        routing, seen = self.route("transient")
        y, inside = self.experts_forward(True, True, "transient")
        return _Kept([x, *kept], middle, post_normed, post_rstd, routing, inside, y), seen

    def block_backward(self, kept: _Kept, dout: _Block, beta: float) -> _Block:
        """`TransformerBlock.backward`: the gradient of its input. `dout` is the caller's."""
        memory, c = self.memory, self.config
        rows, gate_up, active = kept.inside or self.inside("transient")
        dweights = self.take(4 * self.slots)
        self.experts_gradient(c.ffn_size, c.hidden_size, beta)
        memory.give(active)
        dactive = self.take(self.width * self.slots * c.ffn_size)
        self.experts(c.hidden_size, c.ffn_size, trans_b=False)
        memory.give(kept.y, dactive)
        self.experts_gradient(c.hidden_size, 2 * c.ffn_size, beta)
        self.experts(2 * c.ffn_size, c.hidden_size, trans_b=False)
        dx = self.take(self.stream)
        dprobs = self.take(4 * self.tokens * c.num_experts)
        dlogits = self.take(self.width * self.tokens * c.num_experts)
        self.linear_backward(c.hidden_size, c.num_experts, self.tokens, beta, accumulate=True)
        memory.give(dprobs, dlogits, *kept.routing, rows, gate_up, dweights, kept.post_normed)
        memory.call(scratch.rows_apart(self.tokens, c.hidden_size))
        memory.give(kept.middle, kept.post_rstd)
        dheads = self.take(self.width * self.tokens * self.q)
        self.linear_backward(self.q, c.hidden_size, self.tokens, beta)
        dqkv = self.take(self.width * self.tokens * self.qkv)
        memory.call(scratch.attention_backward(memory.machine, self.precision, *self.shape))
        dnormed = self.take(self.stream)
        self.linear_backward(c.hidden_size, self.qkv, self.tokens, beta)
        memory.give(dheads, dqkv, *kept.attention, dx)
        return dnormed

    def chunks(self) -> list[int]:
        """Rows of each chunk of logits that is walked."""
        return _pieces(self.tokens, logits_rows(self.config.vocab_size))

    def loss(self, beta: float) -> None:
        """`MoETransformer._loss`."""
        c, lse = self.config, None
        for piece, rows in enumerate(self.chunks()):
            logits = self.take(4 * rows * c.vocab_size, "logits")
            self.linear(c.hidden_size, c.vocab_size, rows, wide=True)
            new = self.take(4 * rows, "logits")
            self.memory.give(lse)
            lse = new
            self.memory.call((8 * rows,))
            if self.width == 2:
                rounded = self.take(2 * rows * c.vocab_size, "logits")
                self.memory.give(logits)
                logits = rounded
            self.linear_backward(c.hidden_size, c.vocab_size, rows, 1.0 if piece else beta)
            self.memory.give(logits)
        self.memory.give(lse)

    def forward_backward(self, train: TrainConfig, watched: list[list[_Block]], first: bool) -> None:
        """`MoETransformer.forward_backward`."""
        memory, every = self.memory, train.activation_checkpointing
        beta = 0.0 if first else 1.0
        x, stack = self.take(self.stream, "kept"), []
        for number, seen in enumerate(watched, start=1):
            recomputed = every > 0 and number % every == 0
            inside = not recomputed and not train.recompute_experts
            out, kept = self.block(x, seen, keep=not recomputed, keep_inside=inside, out="kept")
            stack.append((x, kept))
            x = out
        dx, rstd = self.take(self.stream), self.take(4 * self.tokens)
        self.loss(beta)
        memory.call(scratch.rows_apart(self.tokens, self.config.hidden_size))
        memory.give(rstd, x)
        for start, kept in reversed(stack):
            unseen: list[_Block] = []
            if kept is None:
                kept, unseen = self.again(start)
            below = self.block_backward(kept, dx, beta)
            memory.give(dx, *unseen)
            dx = below
        memory.call(scratch.scattered(memory.machine, self.tokens))
        memory.give(dx)

    def evaluate(self, watched: list[list[_Block]]) -> None:
        """`MoETransformer.evaluate`, whose inputs come from the host."""
        ids = [self.take(4 * self.tokens, "evaluation") for _ in range(2)]
        x = self.take(self.stream, "evaluation")
        for seen in watched:
            out, _ = self.block(x, seen)
            self.memory.give(x)
            x = out
        normed = self.take(self.stream)
        self.memory.give(x)
        lse = None
        for rows in self.chunks():
            logits = self.take(4 * rows * self.config.vocab_size, "evaluation")
            self.linear(self.config.hidden_size, self.config.vocab_size, rows, wide=True)
            new = self.take(4 * rows, "evaluation")
            self.memory.give(lse)
            lse = new
            self.memory.call((8 * rows,))
            self.memory.give(logits)
        self.memory.give(lse, normed, *ids)


def plan_training(
    config: MoEConfig,
    train: TrainConfig,
    machine: Machine,
    *,
    capture: bool = True,
    held_out: bool = True,
) -> MemoryPlan:
    """What a run needs on one device, `held_out` with evaluation. Raises ValueError for what cannot be trained."""
    if train.sequence_length > config.context:
        raise ValueError(f"sequence_length is {train.sequence_length}; this model's context is {config.context}")
    if train.activation_checkpointing > config.num_layers:
        raise ValueError(
            f"activation_checkpointing is {train.activation_checkpointing}; this model has {config.num_layers} blocks"
        )
    batch, length = train.batch_size, train.sequence_length
    micro = min(train.micro_batch_size or batch, batch)
    _check_size(config, micro * length, batch * length)
    memory, count = _Memory(machine), config.num_parameters
    if train.precision != "f32":
        memory.take(2 * count, "weights")
        memory.take(4 * count, "master")
    else:
        memory.take(4 * count, "weights")
    memory.take(4 * count, "gradients")
    for size in moments_bytes(count, train.moments):
        memory.take(size, "moments")
    walks = [_Walk(memory, config, train.precision, size, size * length) for size in _pieces(batch, micro)]
    memory.take(
        2 * 4 * batch * length + 16 * -(-batch // micro) + 64, "fixed"
    )  # ids, targets; losses, factors, counters
    memory.take(4 * length * config.head_dim, "fixed")  # cosines and sines, head_dim / 2 each
    memory.take(4 * micro * length, "fixed")  # positions
    watched: list[list[_Block]] = [[] for _ in range(config.num_layers)]
    for captured in (False, capture):
        memory.capturing = captured
        for index, walk in enumerate(walks):
            walk.forward_backward(train, watched, index == 0)
        memory.call(scratch.squares(count))
        if captured:
            memory.end_capture()
    if held_out:
        walks[0].evaluate(watched)
    return memory.plan()


def plan_inference(
    config: MoEConfig, precision: str, machine: Machine, batch: int, capacity: int, prompt: int
) -> MemoryPlan:
    """What generation needs: `batch` sequences of up to `capacity` tokens, prompts of up to `prompt` of them.

    Raises ValueError when the model does not reach that far.
    """
    if capacity > config.extended_context:
        raise ValueError(f"{capacity} tokens are more than this model takes ({config.extended_context})")
    if capacity < 1:
        raise ValueError(f"context is {capacity}; it must be a whole number, at least 1")
    if not 1 <= prompt <= capacity:
        raise ValueError(f"a prompt has {prompt} tokens; it must have 1 to {capacity}, the tokens of a sequence")
    _check_size(config, batch * capacity, batch * (capacity + config.vocab_size))
    memory, width = _Memory(machine), 4 if precision == "f32" else 2
    memory.take(width * config.num_parameters, "weights")
    for _ in range(2 * config.num_layers):
        memory.take(width * batch * capacity * config.num_kv_heads * config.head_dim, "cache")
    memory.take(4 * capacity * config.head_dim, "fixed")  # cosines and sines
    memory.take(4 * capacity, "fixed")  # positions
    memory.take(4 * batch * config.vocab_size, "logits")
    memory.take(64 * batch, "fixed")  # lengths, ids, what sampling counts: less than this
    watched: list[list[_Block]] = [[] for _ in range(config.num_layers)]
    # A prompt after the other, then all sequences together: a token call by call, and one captured.
    for rows, tokens, seen, captured in ((1, min(prompt, PREFILL_PART), 0, False), (batch, batch, capacity, False),
                                         (batch, batch, capacity, True)):  # fmt: skip
        memory.capturing = captured
        walk = _Walk(memory, config, precision, rows, tokens, seen)
        if seen == 0:
            walk.shape = (rows, prompt, *walk.shape[2:])  # a part of a prompt looks at those before it
        x = walk.take(walk.stream)
        for layer in watched:
            out, _ = walk.block(x, layer, lse=False)
            memory.give(x)
            x = out
        memory.give(walk.take(width * batch * config.hidden_size), x)
        walk.linear(config.hidden_size, config.vocab_size, rows, wide=True)
    memory.end_capture()
    return memory.plan()


def _check_size(config: MoEConfig, together: int, total: int) -> None:
    """Refuses sizes whose bytes no number of 64 bits may hold, which other languages plan with: `together` tokens go
    through the layers at once, `total` wait on the device."""
    tensors = config.num_layers * (7 + 3 * config.num_experts)
    if tensors > 1 << 18:
        raise ValueError(f"num_layers and num_experts make {tensors} tensors; a model may have at most {1 << 18}")
    if config.num_parameters > 1 << 50:
        raise ValueError("the sizes make a model of more parameters than any machine holds")
    token = 8 * config.hidden_size + 8 * (config.num_heads + config.num_kv_heads) * (config.head_dim + 1)
    token += 8 * config.num_experts + config.experts_per_token * (8 + 4 * config.hidden_size + 8 * config.ffn_size)
    if float(4 * together * token * (config.num_layers + 2) + 16 * total) > 2.0**60:
        raise ValueError("the sizes make a run of more memory than any machine has")


def parameters_by_kind(config: MoEConfig) -> dict[str, tuple[int, int]]:
    """Parameters of each kind of layer: in all, and those that one token meets."""
    hidden, layers = config.hidden_size, config.num_layers
    expert = 3 * hidden * config.ffn_size
    attention = hidden * config.head_dim * (2 * config.num_heads + 2 * config.num_kv_heads)
    always = {
        "embedding": config.vocab_size * hidden,
        "attention": layers * attention,
        "routers": layers * config.num_experts * hidden,
        "norms": (2 * layers + 1) * hidden,
        "head": config.vocab_size * hidden,
    }
    kinds = {name: (count, count) for name, count in always.items()}
    kinds["experts"] = layers * config.num_experts * expert, layers * config.experts_per_token * expert
    return kinds


def _pieces(whole: int, most: int) -> list[int]:
    """Sizes of the pieces of at most `most` that are walked: from the third on, all find what they take in place,
    unless the last one is smaller."""
    count = -(-whole // most)
    last = whole - (count - 1) * most
    return [most] * min(count - 1, 2) + ([last] if count < 3 or last != most else [])


def _decoded(machine: Machine, batch: int, capacity: int, config: MoEConfig) -> tuple[int, ...]:
    """Of `attention_decode`, a bound: pieces of at least 64 keys leave their maximum, sum and output."""
    pieces = -(-capacity // 64)
    worker = 4 * (config.num_heads * (config.head_dim + 16 + 256) + 32 * (256 + 16))
    return machine.threads * worker, 4 * batch * config.num_heads * pieces * (config.head_dim + 18)


def _rounded(size: int, engine: str) -> int:
    """What a device gives for so many bytes (`cuda/abi/pool.c`); pages of the host that nobody touches cost nothing."""
    if engine == "cpu" or size == 0:
        return size
    step = 256
    while (size - 1) // step >= 16:
        step *= 2
    if size > 16 << 20:
        step = 2 << 20
    return -(-size // step) * step
