"""The MoE transformer: embedding, blocks, norm, language-model head; training, evaluation, prefill and decode."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from .. import kernels
from ..device import Comm, Context, DeviceBound, Tensor, one_thread
from ..dtypes import to_numpy
from ..errors import StateError
from ..layers import (
    AllRows,
    Attention,
    BlockKept,
    DenseLayer,
    Documents,
    Embedding,
    ExpertParallel,
    ExpertProducts,
    ExpertUse,
    Fp8Products,
    HeadNorms,
    KVCache,
    Linear,
    MoELayer,
    ParallelMoELayer,
    RMSNorm,
    RopeTables,
    Router,
    TernaryLayer,
    TernaryLinear,
    TransformerBlock,
)
from ..layers.expert_parallel import Add, Rounding
from ..token_ids import IdRows, Ids, prompt_ids, token_ids
from .config import MoEConfig, Precision, check_precision, check_ternary_precision, dtype_of
from .held import HeldElements
from .parameters import ParameterArena, ParameterLayout, initialize, initialize_held, take
from .partitioned import PartitionedGradients

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

IGNORE_INDEX = -100

# Logits are made and used up in chunks of rows of about this many values, so that they never all exist at once. Sums
# over tokens are cut here, so the number is part of the promise that every language computes the same bits.
_LOGITS_PER_CHUNK = 1 << 21
_MIN_CHUNK_ROWS = 256

#: A longer prompt runs through the model in parts of that many tokens, so that its activations take no more memory than
#: theirs. Tokens in its last part may so share an expert with fewer others, which shows in the last bits of products:
#: the number, too, is part of that promise.
PREFILL_PART = 6144


class MoETransformer(DeviceBound):
    """A decoder-only transformer whose feed-forward networks are mixtures of experts, or dense ones.

    `weights` is the arena that it computes with (see `ParameterArena`), and its activations have the same dtype, that
    of the `precision`. `parameters` is what is trained and saved: the same arena, or, when a model trains in 16 bits,
    f32 values that `weights` is a rounded copy of. `gradients` is f32 of the same layout, or None for a model that only
    infers. Token ids are int32 arrays or tensors [batch, length]. (Micikevicius et al. 2018, section 3)

    One thread at a time may use it, and what else is on its context: a second one gets StateError.
    """

    _instead = "save(folder) writes it, and MoETransformer.from_arrays(ctx, config, model.state_dict()) makes another"

    def __init__(
        self,
        ctx: Context,
        config: MoEConfig,
        *,
        seed: int | None = 0,
        training: bool = True,
        precision: Precision = "f32",
        experts: ExpertParallel | None = None,
        comm: Comm | None = None,
        partition_gradients: bool = False,
    ):
        """Makes a model with random weights from `seed`; with seed None all weights are zero, to be loaded.

        With `experts` this rank holds only some of them, of a model that trains; and its calls belong to rounds. Where
        the ranks of `comm` are to train a model in 16 bits, this one holds the f32 parameters that it updates alone;
        with `partition_gradients` it keeps the gradients of these alone (see `PartitionedGradients`).
        """
        check_precision(precision)
        if config.ternary:
            check_ternary_precision(precision)
        if partition_gradients and config.tie_embeddings:
            raise ValueError("gradients of a tied head, which are complete with the last layer's, are not partitioned")
        if partition_gradients and (not training or experts is not None or comm is None or comm.ranks == 1):
            raise ValueError("gradients are partitioned among the ranks of a comm, which train all experts each")
        if experts is not None and not training:
            raise ValueError("a model whose experts ranks share out is for training")
        copied = training and precision != "f32"
        self.ctx = ctx
        self.config = config
        self._separator: int | None = None
        self.precision = precision
        self.dtype = dtype_of(precision)
        self.layout = ParameterLayout(config)
        #: Which experts this rank holds; None: all.
        self.experts = experts
        #: The ranks that hold this model together, and what of it this one does; None: all.
        self.held_with: Comm | None = None
        self.held: HeldElements | None = None
        if experts is not None:
            self.held_with = experts.comm
            self.held = HeldElements(self.layout, experts.comm.ranks, experts.comm.rank, experts.size)
        elif comm is not None and comm.ranks > 1 and copied:
            self.held_with, self.held = comm, HeldElements(self.layout, comm.ranks, comm.rank)
        computes = None if self.held is None or experts is None else self.held.computes
        updated = self.held.updated if self.held is not None and copied else computes
        self._parameters = ParameterArena(ctx, self.layout, "f32" if training else self.dtype, updated)
        #: Whether all of `parameters` is up to date: ranks that train in 16 bits update each its own alone.
        self.whole = self._parameters.complete
        self.gradients: ParameterArena | None = None
        if partition_gradients and comm is not None:
            held = self.held or HeldElements(self.layout, comm.ranks, comm.rank)
            self.held_with, self.gradients = comm, PartitionedGradients(ctx, self.layout, held)
        elif training:
            self.gradients = ParameterArena(ctx, self.layout, held=computes)
        self.weights = ParameterArena(ctx, self.layout, self.dtype, computes) if copied else self._parameters
        if seed is not None:
            self._initialize(seed)
        self.rope = RopeTables(ctx, config.head_dim, config.rope_base, divisors=config.rope_divisors())
        self._stretched: RopeTables | None = None  # for sequences beyond `context`
        self._rows = AllRows(ctx)
        self.embedding = Embedding(*self._pair("model.embed_tokens.weight"))
        self.blocks = [self._block(layer) for layer in range(config.num_layers)]
        self.norm = RMSNorm(*self._pair("model.norm.weight"), eps=config.norm_eps)
        self.head = Linear(*self._pair("model.embed_tokens.weight" if config.tie_embeddings else "lm_head.weight"))
        #: How each layer used its experts in the last forward call that was not a prefill or decode.
        self.expert_uses: list[ExpertUse] | None = None

    @classmethod
    def from_arrays(
        cls,
        ctx: Context,
        config: MoEConfig,
        arrays: Mapping[str, np.ndarray | Tensor],
        *,
        training: bool = True,
        precision: Precision = "f32",
        experts: ExpertParallel | None = None,
        comm: Comm | None = None,
        partition_gradients: bool = False,
    ) -> MoETransformer:
        """A model with given weights, by name; see `load_arrays`."""
        ranks = {"experts": experts, "comm": comm, "partition_gradients": partition_gradients}
        model = cls(ctx, config, seed=None, training=training, precision=precision, **ranks)  # type: ignore[arg-type]
        model.load_arrays(arrays)
        return model

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        ctx: Context | None = None,
        *,
        training: bool = False,
        precision: Precision = "f32",
    ) -> MoETransformer:
        """The model that `save` wrote, of a checkpoint or of a run (the last one), or a Mixtral from elsewhere.

        Without `ctx` it is on the CPU, on a context of its own. Raises FormatError for a folder that holds none.
        """
        from .folder import ModelFolder

        opened = ModelFolder.of(folder)
        return opened.model(Context() if ctx is None else ctx, training=training, precision=precision)

    @one_thread
    def save(self, folder: str | os.PathLike[str], tokenizer: Tokenizer | None = None) -> None:
        """Writes config.json, the parameters and the tokenizer, in one step, as a new folder.

        Hugging Face transformers opens it as a Mixtral, Go and Rust as they do a checkpoint. FileExistsError when the
        folder is there already.
        """
        from .folder import save_model

        save_model(folder, self, tokenizer)

    def __repr__(self) -> str:
        config = self.config
        experts = "dense"
        if config.num_experts:
            experts = f"{config.num_experts} experts ({config.experts_per_token} per token)"
        return (
            f"MoETransformer({config.num_layers} layers, hidden size {config.hidden_size}, {experts}, "
            f"vocabulary {config.vocab_size}; "
            f"{config.num_parameters:,} parameters, {config.num_active_parameters:,} active; "
            f"{self.precision}, {self.ctx.device}{'' if self.gradients is None else ', training'})"
        )

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

    def load_state_dict(self, state: Mapping[str, np.ndarray | Tensor]) -> None:
        """What PyTorch calls `load_arrays`."""
        self.load_arrays(state)

    @one_thread
    def load_arrays(self, arrays: Mapping[str, np.ndarray | Tensor]) -> None:
        """Takes the weights from arrays or tensors of any floating dtype, by the names of the layout.

        Raises ValueError, with nothing changed, when a name is missing or too many, or a shape is another.
        """
        expected = self.layout.shapes()
        check_names(arrays, expected)
        for name, shape in expected.items():
            array = on_host(arrays[name])  # once, since a look-up may read a file
            if tuple(array.shape) != shape:
                raise ValueError(f"tensor {name} has shape {list(array.shape)}; this model needs {list(shape)}")
            if array.dtype.kind not in "fV":  # V: bfloat16, which NumPy does not know as a float
                raise ValueError(f"tensor {name} has dtype {array.dtype}; weights are floating-point numbers")
        self.whole = self._parameters.complete
        if self.held is not None:
            self._load_held(arrays)
            return
        for name in expected:
            target, array = self.parameters[name], on_host(arrays[name])
            if target.dtype == "f32" or array.dtype == to_numpy(target.dtype):
                target.copy_(array)
            else:  # rounded by the library, so that every language rounds alike
                kernels.cast(self.ctx.tensor(array, "f32"), y=target)
        self.round_weights()

    def round_weights(self) -> None:
        """Makes `weights` of `parameters`, where they are not one: whenever something else than an update set these."""
        if self.weights is not self._parameters:
            kernels.cast(self.parameters.data, y=self.weights.data)

    def _initialize(self, seed: int) -> None:
        if self.held is None:
            initialize(self.parameters, self.config, seed)
            self.round_weights()
            return
        for arena in self._arenas():
            initialize_held(arena, self.config, seed)

    def _load_held(self, arrays: Mapping[str, np.ndarray | Tensor]) -> None:
        """Of each array what this rank holds, and no more."""
        for arena in self._arenas():
            for name, first, part in arena.held_parts():
                values = on_host(arrays[name]).reshape(-1)[first : first + part.size]
                take(self.ctx.tensor(values, "f32"), part)

    def _arenas(self) -> list[ParameterArena]:
        """Those with values of the parameters."""
        return [self._parameters] if self.weights is self._parameters else [self._parameters, self.weights]

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

    def _pair(self, name: str) -> tuple[Tensor, Tensor | None]:
        return self._fused_pair(name, *self.layout[name].shape)

    def _fused_pair(self, name: str, *shape: int) -> tuple[Tensor, Tensor | None]:
        gradient = None if self.gradients is None else self.gradients.in_pass(name, *shape)
        return self.weights.fused(name, *shape), gradient

    def _block(self, layer: int) -> TransformerBlock:
        config, prefix = self.config, f"model.layers.{layer}"
        hidden = config.hidden_size
        qkv_rows = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        if config.ternary:
            return self._ternary_block(prefix)
        biases = self._fused_pair(f"{prefix}.self_attn.q_proj.bias", qkv_rows) if config.qkv_bias else ()
        attention = Attention(
            self._head_norms(f"{prefix}.self_attn")
            if config.qk_norm
            else Linear(*self._fused_pair(f"{prefix}.self_attn.q_proj.weight", qkv_rows, hidden), *biases),
            Linear(*self._pair(f"{prefix}.self_attn.o_proj.weight")),
            self.rope,
            config.num_heads,
            config.num_kv_heads,
        )
        return TransformerBlock(
            prefix,
            RMSNorm(*self._pair(f"{prefix}.input_layernorm.weight"), eps=config.norm_eps),
            attention,
            RMSNorm(*self._pair(f"{prefix}.post_attention_layernorm.weight"), eps=config.norm_eps),
            self._mixture(layer, prefix) if config.num_experts else self._dense(prefix),
        )

    def _ternary_block(self, prefix: str) -> TransformerBlock:
        config, ffn = self.config, self.config.ffn_size
        heads = [count * config.head_dim for count in (config.num_heads, config.num_kv_heads, config.num_kv_heads)]

        def norm(name: str) -> RMSNorm:
            return RMSNorm(*self._pair(f"{prefix}.{name}.weight"), eps=config.norm_eps)

        def product(name: str, heights: list[int], columns: int, sub_norm: str | None = None) -> TernaryLinear:
            pair = self._fused_pair(f"{prefix}.{name}_proj.weight", sum(heights), columns)
            return TernaryLinear(*pair, heights, None if sub_norm is None else norm(sub_norm))

        return TransformerBlock(
            prefix,
            norm("input_layernorm"),
            Attention(
                product("self_attn.q", heads, config.hidden_size),
                product("self_attn.o", [config.hidden_size], heads[0], "self_attn.attn_sub_norm"),
                self.rope,
                config.num_heads,
                config.num_kv_heads,
            ),
            norm("post_attention_layernorm"),
            TernaryLayer(
                product("mlp.gate", [ffn, ffn], config.hidden_size),
                product("mlp.down", [config.hidden_size], ffn, "mlp.ffn_sub_norm"),
                config.squared_relu,
            ),
        )

    def _head_norms(self, prefix: str) -> HeadNorms:
        q, k, v = (Linear(*self._pair(f"{prefix}.{name}_proj.weight")) for name in "qkv")
        norms = (RMSNorm(*self._pair(f"{prefix}.{name}_norm.weight"), eps=self.config.norm_eps) for name in "qk")
        return HeadNorms((q, k, v), (next(norms), next(norms)), self.config.head_dim)

    def _dense(self, prefix: str) -> DenseLayer:
        hidden, ffn = self.config.hidden_size, self.config.ffn_size
        w13, w13_grad = self._fused_pair(f"{prefix}.mlp.gate_proj.weight", 1, 2 * ffn, hidden)
        w2, w2_grad = self._fused_pair(f"{prefix}.mlp.down_proj.weight", 1, hidden, ffn)
        return DenseLayer(self._rows, w13, w2, w13_grad, w2_grad, self._products())

    def _products(self) -> ExpertProducts:
        return Fp8Products() if self.precision == "fp8" else ExpertProducts()

    def _mixture(self, layer: int, prefix: str) -> MoELayer:
        config, moe = self.config, f"{prefix}.block_sparse_moe"
        hidden, ffn, experts = config.hidden_size, config.ffn_size, config.num_experts
        router = Router(
            Linear(*self._pair(f"{moe}.gate.weight")), config.experts_per_token, config.norm_topk_prob, config.aux_alpha
        )
        products = self._products()
        if self.experts is None:
            w13, w13_grad = self._fused_pair(f"{moe}.experts.0.w1.weight", experts, 2 * ffn, hidden)
            w2, w2_grad = self._fused_pair(f"{moe}.experts.0.w2.weight", experts, hidden, ffn)
            return MoELayer(router, w13, w2, w13_grad, w2_grad, products)
        first, count = f"{moe}.experts.{self.experts.own[0]}", len(self.experts.own)
        w13 = self.weights.fused(f"{first}.w1.weight", count, 2 * ffn, hidden)
        w2 = self.weights.fused(f"{first}.w2.weight", count, hidden, ffn)
        return ParallelMoELayer(router, w13, w2, self.experts, layer, products)


def _stacked(tensors: list[Tensor], dimensions: int) -> np.ndarray:
    """Arrays of i32 as one, with so many dimensions; empty of none."""
    return np.stack([one.numpy() for one in tensors]) if tensors else np.zeros((0,) * dimensions, np.int32)


def on_host(array: np.ndarray | Tensor) -> np.ndarray:
    if not isinstance(array, Tensor):
        return array
    return np.asarray(array) if array.ctx.device == "cpu" else array.numpy()


def logits_rows(vocab_size: int) -> int:
    """Tokens whose logits are there at once."""
    return max(_MIN_CHUNK_ROWS, _LOGITS_PER_CHUNK // vocab_size)


def check_names(given: Mapping[str, object], expected: Mapping[str, object]) -> None:
    """Raises ValueError when names are missing or too many."""
    missing = [name for name in expected if name not in given]
    extra = [name for name in given if name not in expected]
    for names, problem in ((missing, "missing"), (extra, "not part of this model")):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise ValueError(f"tensors {problem}: {', '.join(names[:3])}{more}")
