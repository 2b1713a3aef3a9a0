"""What a transformer does, whatever its weights are: training, evaluation, prefill and decode by its blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import kernels
from ..device import Comm, Context, DeviceBound, Tensor, one_thread
from ..errors import StateError
from ..layers import (
    AllRows,
    BlockKept,
    Documents,
    Embedding,
    ExpertParallel,
    ExpertUse,
    FrozenEmbedding,
    FrozenLinear,
    KVCache,
    Linear,
    RMSNorm,
    RopeTables,
    TransformerBlock,
)
from ..layers.expert_parallel import Add, Rounding
from ..token_ids import IdRows, Ids, prompt_ids, token_ids
from .config import MoEConfig, Precision
from .held import HeldElements
from .parameters import Layout, ParameterArena

IGNORE_INDEX = -100

# Logits are made and used up in chunks of rows of about this many values, so that they never all exist at once. Sums
# over tokens are cut here, so the number is part of the promise that every language computes the same bits.
_LOGITS_PER_CHUNK = 1 << 21
_MIN_CHUNK_ROWS = 256

#: A longer prompt runs through the model in parts of that many tokens, so that its activations take no more memory than
#: theirs. Tokens in its last part may so share an expert with fewer others, which shows in the last bits of products:
#: the number, too, is part of that promise.
PREFILL_PART = 6144


class Transformer(DeviceBound):
    """Embedding, blocks, norm, head, and the passes through them. What makes one says which of its numbers are trained:
    all of them (`MoETransformer`), or those of an adapter beside weights that stay (`LowRankTransformer`).

    `layout` has the places of what is trained, `gradients` is f32 of that layout, or None for a model that only infers;
    `weights` is what it computes with, of the layout, too.
    """

    ctx: Context
    config: MoEConfig
    precision: Precision
    #: Of weights and activations.
    dtype: Any
    layout: Layout
    weights: ParameterArena
    gradients: ParameterArena | None
    #: Rank of the adapter that is trained, 0 where all weights are.
    lora_rank = 0
    #: Which experts this rank holds; None: all.
    experts: ExpertParallel | None = None
    #: The ranks that hold this model together, and what of it this one does; None: all.
    held_with: Comm | None = None
    held: HeldElements | None = None
    #: Whether all of `parameters` is up to date: ranks that train in 16 bits update each its own alone.
    whole: bool
    rope: RopeTables
    embedding: Embedding | FrozenEmbedding
    blocks: list[TransformerBlock]
    norm: RMSNorm
    head: Linear | FrozenLinear
    #: How each layer used its experts in the last forward call that was not a prefill or decode.
    expert_uses: list[ExpertUse] | None = None
    _parameters: ParameterArena
    _rows: AllRows
    _separator: int | None = None
    _stretched: RopeTables | None = None  # for sequences beyond `context`

    @property
    def parameters(self) -> ParameterArena:
        """What is trained and saved. StateError while this rank has only its own part of it."""
        if self.experts is not None:
            raise self.experts.partial()
        if not self.whole:
            raise StateError(
                51, "this rank has a part of the f32 parameters alone; gather_parameters of its trainer brings all"
            )
        return self._parameters

    @property
    def master_bytes(self) -> int:
        """Memory of f32 parameters behind 16-bit weights."""
        return 0 if self.weights is self._parameters else self._parameters.nbytes

    def parameters_in(self, own: range) -> Tensor:
        """So many elements of the parameters, one after the other; those that a rank owns are always up to date."""
        return self._parameters.data.narrow(0, own.start, len(own))

    def make_room(self) -> bool:
        """Takes memory for all f32 parameters where this rank has it for those that it updates alone: whether it had.
        They then lie elsewhere."""
        before = self._parameters
        if before.complete:
            return False
        self._parameters = ParameterArena(self.ctx, self.layout)
        for part in before.held:
            self.parameters_in(part).copy_(before.data.narrow(0, part.start, len(part)))
        return True

    def state_dict(self) -> dict[str, Tensor]:
        """The parameters by name: views, not copies, so they change as the model trains."""
        return dict(self.parameters)

    @one_thread
    def forward(self, input_ids: IdRows) -> Tensor:
        """Logits f32 [batch, length, vocab] of all positions. No expert drops a token."""
        ids, batch, length = self._ids(input_ids)
        return self._logits(self._normed(self._stream(ids, batch))).view(batch, length, self.config.vocab_size)

    @one_thread
    def evaluate(self, input_ids: IdRows, targets: IdRows, document_ends: IdRows | None = None) -> tuple[float, int]:
        """Sum of the cross-entropy over the targets that are not -100, and their number. No expert drops a token.
        `document_ends` as of `forward_backward`."""
        ids, batch, _ = self._ids(input_ids)
        targets, _, _ = self._ids(targets, "targets", IGNORE_INDEX)
        x = self._normed(self._stream(ids, batch, document_ends))
        sums, count = self.ctx.empty((self.loss_pieces(x.shape[0]),)), 0
        for piece, (start, rows) in enumerate(self._chunks(x.shape[0])):
            logits = self._logits(x.narrow(0, start, rows))
            _, _, valid = kernels.cross_entropy_forward(
                logits, targets.narrow(0, start, rows), loss_sum=sums.narrow(0, piece, 1), ignore_index=IGNORE_INDEX
            )
            del logits  # before the next are made
            count += int(valid)
        return kernels.weighted_mean(sums).item(), count

    @one_thread
    def forward_backward(
        self,
        input_ids: IdRows,
        targets: IdRows,
        loss_factor: Tensor,
        aux_factor: Tensor,
        losses: Tensor,
        aux: Tensor,
        accumulate: bool = False,
        completed: Callable[[], None] | None = None,
        document_ends: IdRows | None = None,
    ) -> None:
        """Gradients of loss_factor * (sum of cross-entropies) + aux_factor * (load-balancing loss), into `gradients`.

        With `accumulate` they are added to what is there. loss_factor and aux_factor are f32 [1]. The sums of
        cross-entropies go to `losses` f32 [loss_pieces(tokens)], the load-balancing loss is added to `aux` f32 [1],
        both without the factors. `completed` is called when each of `layout.backward_pieces()` is complete.

        With `document_ends`, of the shape of the ids, which is 1 at the last token of each document and 0 elsewhere,
        the documents of a sequence do not see one another, and each begins at position 0, as of `mask_documents`.
        """
        completed = completed or (lambda: None)
        ids, batch, _ = self._ids(input_ids)
        targets, _, _ = self._ids(targets, "targets", IGNORE_INDEX)
        beta = 1.0 if accumulate else 0.0
        if not accumulate:
            self._clear_gains()
        documents = self._documents(ids, batch, document_ends)
        x, kept = self.forward_keeping(ids, batch, aux, documents)
        self.ctx.label("model.norm")
        normed, rstd = self.norm.forward_keeping(x)
        dnormed = self._loss(normed, targets, loss_factor, losses, beta)
        if not self.config.tie_embeddings:
            completed()
        self.ctx.label("backward of model.norm")
        dx = self.norm.backward(dnormed, x, rstd)
        del x, normed, rstd, dnormed
        for block in reversed(self.blocks):
            dx = block.backward(dx, kept.pop(), batch, aux_factor, beta, documents)
            completed()
        self.ctx.label("backward of model.embed_tokens")
        if not accumulate and not self.config.tie_embeddings and self.embedding.grad is not None:
            kernels.zero_grad(grad=self.embedding.grad.view(-1))
        self.embedding.backward(dx, ids)
        completed()
        completed()  # the vectors' are
        self.ctx.label()

    @one_thread
    def serve_forward(self) -> None:
        """Computes for other ranks, with the experts that this one holds, while they run `evaluate`."""
        for block in self.blocks:
            block.serve_forward()

    @one_thread
    def serve_forward_backward(self, completed: Callable[[], None] | None = None) -> None:
        """The same while they run `forward_backward`. `completed` is called where that calls it."""
        completed = completed or (lambda: None)
        kept = [block.serve_forward(keeping=True) for block in self.blocks]
        completed()
        for block in reversed(self.blocks):
            block.serve_backward(kept.pop())
            completed()
        completed()
        completed()

    def add_up(self, event: Add | Rounding) -> None:
        """What becomes, in a round, of sums of the gradients of the experts that this rank holds; by itself."""
        for block in reversed(self.blocks):
            block.add_up(event)

    def forward_keeping(
        self, ids: Tensor, batch: int, aux: Tensor, documents: Documents | None = None
    ) -> tuple[Tensor, list[BlockKept]]:
        """The stream after the last block of `batch` sequences, ids i32 [tokens], and what their backward needs."""
        capacity = self.config.capacity(ids.shape[0])
        x = self._embedded(ids)
        self.expert_uses = None  # before there are others
        kept: list[BlockKept] = []
        uses: list[ExpertUse | None] = []
        for block in self.blocks:
            x, use, of_block = block.forward_keeping(x, batch, capacity, aux, documents)
            uses.append(use)
            kept.append(of_block)
        self.expert_uses = [use for use in uses if use is not None]
        return x, kept

    def recompute(self, every: int = 0, experts: bool = False, keep: int = 0) -> None:
        """Chooses what `forward_backward` does not keep but computes twice, with the same bits.

        Of every `every`-th block (0: of none) all but its input; with `experts`, of the other blocks what the experts'
        products take in and give between, but not of the last `keep` of all, which backward comes to first.
        """
        for number, block in enumerate(self.blocks, start=1):
            block.recompute = every > 0 and number % every == 0
            block.moe.recompute = experts and number <= len(self.blocks) - keep

    def mask_documents(self, separator: int | None) -> None:
        """From now on the documents of a sequence, each of which ends with the token `separator`, do not see one
        another in `forward`, `evaluate` and `forward_backward`, and each begins at position 0. None ends that."""
        if separator is not None and not 0 <= separator < self.config.vocab_size:
            raise ValueError(f"document_mask is {separator}; this model has a vocabulary of {self.config.vocab_size}")
        self._separator = separator

    def _documents(self, ids: Tensor, batch: int, ends: IdRows | None = None) -> Documents | None:
        if ends is not None:
            marks, rows, _ = self._ids(ends, "document_ends", vocab_size=2)
            if rows != batch or marks.shape != ids.shape:
                raise ValueError(f"document_ends are {marks.shape[0]} in {rows} rows, ids {ids.shape[0]} in {batch}")
            return Documents.ended_by(1, marks, batch)
        return None if self._separator is None else Documents.ended_by(self._separator, ids, batch)

    def loss_pieces(self, tokens: int) -> int:
        """How many partial sums of the loss `forward_backward` gives for that many tokens."""
        return len(self._chunks(tokens))

    def expert_counts(self) -> np.ndarray:
        """Slots that chose each expert in the last forward call, [layers, experts]; of no layer in a dense model."""
        return _stacked([use.counts for use in self._last_uses()], 2)

    def expert_choices(self) -> np.ndarray:
        """Experts of each token in the last forward call, most likely first, [layers, tokens, experts_per_token]."""
        return _stacked([use.choices for use in self._last_uses()], 3)

    def _last_uses(self) -> list[ExpertUse]:
        if self.expert_uses is None:
            raise StateError(51, "there was no forward call yet")
        return self.expert_uses

    def cache(self, batch: int, capacity: int) -> KVCache:
        """An empty cache of keys and values for `batch` sequences of up to `capacity` tokens.

        With a capacity beyond `context` the base of its rotary embedding grows by `ntk_alpha`. Raises ValueError when
        the model does not reach that far.
        """
        config = self.config
        if capacity > config.extended_context:
            raise ValueError(f"{capacity} tokens are more than this model takes ({config.extended_context})")
        if capacity <= config.context:
            rope = self.rope
        else:
            if self._stretched is None:
                self._stretched = RopeTables(
                    self.ctx, config.head_dim, config.rope_base, config.ntk_alpha, divisors=config.rope_divisors()
                )
            rope = self._stretched
        self._rows.offsets(batch)  # before a step is captured
        return KVCache(rope, config.num_layers, batch, capacity, config.num_kv_heads, self.dtype)

    @one_thread
    def prefill(self, prompt: Ids, cache: KVCache, row: int, logits: Tensor | None = None) -> Tensor:
        """Runs a prompt, ids [length], into row `row` of a cache, which must be empty; a long one in parts.

        Gives the logits f32 [1, vocab] of its last token, which may be given a place.
        """
        prompt = prompt_ids(prompt, self.config.vocab_size)
        if cache.used[row]:
            raise ValueError(f"sequence {row} has {cache.used[row]} tokens; a prompt needs an empty one")
        cache.require_room(len(prompt), row)
        for start in range(0, len(prompt), PREFILL_PART):
            part = prompt[start : start + PREFILL_PART]
            x = self._embedded(self.ctx.tensor(part))
            for layer, block in enumerate(self.blocks):
                x = block.prefill(x, cache, layer, row)
            cache.advance(len(part), row)
        logits = self._logits(self._normed(x.narrow(0, len(part) - 1, 1)), logits)
        self.ctx.label()
        return logits

    @one_thread
    def decode(self, ids: Tensor, cache: KVCache, logits: Tensor | None = None) -> Tensor:
        """Appends one token to each sequence of the cache, ids i32 [batch].

        Gives the logits f32 [batch, vocab], which may be given a place. All that changes from step to step is on the
        device, so the calls can be captured and replayed. On the host they count one step, the graph's first launch;
        whoever launches it again counts that (`KVCache.count`).
        """
        cache.require_room(1)
        x = self._embedded(ids)
        for layer, block in enumerate(self.blocks):
            x = block.decode(x, cache, layer)
        cache.advance(1)
        logits = self._logits(self._normed(x), logits)
        self.ctx.label()
        return logits

    # What is around the blocks, under the names that a trace shows.

    def _embedded(self, ids: Tensor) -> Tensor:
        self.ctx.label("model.embed_tokens")
        return self.embedding.forward(ids)

    def _normed(self, x: Tensor) -> Tensor:
        self.ctx.label("model.norm")
        return self.norm.forward(x)

    def _logits(self, x: Tensor, logits: Tensor | None = None) -> Tensor:
        self.ctx.label("lm_head")
        return self.head.forward(x, logits, "f32")

    def _stream(self, ids: Tensor, batch: int, document_ends: IdRows | None = None) -> Tensor:
        documents = self._documents(ids, batch, document_ends)
        x = self._embedded(ids)
        uses = []
        for block in self.blocks:
            x, use = block.forward(x, batch, documents=documents)
            uses.append(use)
        self.expert_uses = [use for use in uses if use is not None]
        return x

    def _loss(self, normed: Tensor, targets: Tensor, loss_factor: Tensor, losses: Tensor, beta: float) -> Tensor:
        """Cross-entropy and its gradient, chunk by chunk; the gradient of `normed` takes its place.

        The logits and their gradient are f32; only where it enters the products is the gradient rounded to 16 bits.
        """
        for piece, (start, rows) in enumerate(self._chunks(normed.shape[0])):
            x = normed.narrow(0, start, rows)
            wanted = targets.narrow(0, start, rows)
            logits = self._logits(x)
            lse, _, _ = kernels.cross_entropy_forward(
                logits, wanted, ignore_index=IGNORE_INDEX, loss_sum=losses.narrow(0, piece, 1)
            )
            self.ctx.label("backward of lm_head")
            kernels.cross_entropy_backward(logits, wanted, lse, loss_factor, ignore_index=IGNORE_INDEX, dlogits=logits)
            dlogits = logits if self.precision == "f32" else kernels.cast(logits, dtype_y=self.dtype)
            del logits
            self.head.backward(dlogits, x, dx=x, beta=beta if piece == 0 else 1.0)
            del dlogits  # before the next are made
        return normed

    def base_record(self) -> dict[str, object] | None:
        """What a checkpoint says of the model beside which an adapter is trained; None where all weights are."""
        return None

    def _clear_gains(self) -> None:
        """Sets to zero the gradients to which layers add from the beginning."""
        assert self.gradients is not None
        gains = self.layout.num_decayed
        kernels.zero_grad(grad=self.gradients.data.narrow(0, gains, self.layout.size - gains))

    def _chunks(self, tokens: int) -> list[tuple[int, int]]:
        rows = logits_rows(self.config.vocab_size)
        return [(start, min(rows, tokens - start)) for start in range(0, tokens, rows)]

    def _ids(
        self, ids: IdRows, name: str = "input_ids", also: int | None = None, vocab_size: int | None = None
    ) -> tuple[Tensor, int, int]:
        """Ids on the device, flat, and their two sizes. Those of a tensor are checked there, by the kernels."""
        if not isinstance(ids, Tensor):
            ids = self.ctx.tensor(token_ids(ids, vocab_size or self.config.vocab_size, name, also))
        if len(ids.shape) != 2:
            raise ValueError(f"{name} has shape {list(ids.shape)}; it must be [batch, length]")
        batch, length = ids.shape
        return ids.view(batch * length), batch, length


def _stacked(tensors: list[Tensor], dimensions: int) -> np.ndarray:
    """Arrays of i32 as one, with so many dimensions; empty of none."""
    return np.stack([one.numpy() for one in tensors]) if tensors else np.zeros((0,) * dimensions, np.int32)


def logits_rows(vocab_size: int) -> int:
    """Tokens whose logits are there at once."""
    return max(_MIN_CHUNK_ROWS, _LOGITS_PER_CHUNK // vocab_size)


def on_host(array: np.ndarray | Tensor) -> np.ndarray:
    if not isinstance(array, Tensor):
        return array
    return np.asarray(array) if array.ctx.device == "cpu" else array.numpy()


def check_names(given: Mapping[str, object], expected: Mapping[str, object]) -> None:
    """Raises ValueError when names are missing or too many."""
    missing = [name for name in expected if name not in given]
    extra = [name for name in given if name not in expected]
    for names, problem in ((missing, "missing"), (extra, "not part of this model")):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise ValueError(f"tensors {problem}: {', '.join(names[:3])}{more}")


def check_finite(name: str, array: np.ndarray, first: int = 0) -> None:
    """Raises ValueError for the first value that is not finite; `array` is what begins at row `first` of the tensor of
    that name."""
    wrong = ~np.isfinite(array)
    if wrong.any():
        at = np.unravel_index(int(wrong.argmax()), array.shape)
        place = [first + int(at[0]), *map(int, at[1:])]
        raise ValueError(f"tensor {name} is not finite, first at {place} ({array[at]:g})")
