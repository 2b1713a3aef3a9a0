"""The MoE transformer, all of whose weights may be trained: how it is made, loaded and saved."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from .. import kernels
from ..device import Comm, Context, Tensor, one_thread
from ..dtypes import to_numpy
from ..layers import (
    AllRows,
    Attention,
    DenseLayer,
    Embedding,
    ExpertParallel,
    ExpertProducts,
    Fp8Products,
    HeadNorms,
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
from .config import MoEConfig, Precision, check_precision, check_ternary_precision, dtype_of
from .held import HeldElements
from .parameters import ParameterArena, ParameterLayout, initialize, initialize_held, take
from .partitioned import PartitionedGradients
from .transformer import Transformer, check_names, on_host

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer


class MoETransformer(Transformer):
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
        self.precision = precision
        self.dtype = dtype_of(precision)
        self.layout = ParameterLayout(config)
        self.experts = experts
        if experts is not None:
            self.held_with = experts.comm
            self.held = HeldElements(self.layout, experts.comm.ranks, experts.comm.rank, experts.size)
        elif comm is not None and comm.ranks > 1 and copied:
            self.held_with, self.held = comm, HeldElements(self.layout, comm.ranks, comm.rank)
        computes = None if self.held is None or experts is None else self.held.computes
        updated = self.held.updated if self.held is not None and copied else computes
        self._parameters = ParameterArena(ctx, self.layout, "f32" if training else self.dtype, updated)
        self.whole = self._parameters.complete
        self.gradients = None
        if partition_gradients and comm is not None:
            held = self.held or HeldElements(self.layout, comm.ranks, comm.rank)
            self.held_with, self.gradients = comm, PartitionedGradients(ctx, self.layout, held)
        elif training:
            self.gradients = ParameterArena(ctx, self.layout, held=computes)
        self.weights = ParameterArena(ctx, self.layout, self.dtype, computes) if copied else self._parameters
        if seed is not None:
            self._initialize(seed)
        self.rope = RopeTables(ctx, config.head_dim, config.rope_base, divisors=config.rope_divisors())
        self._rows = AllRows(ctx)
        self.embedding = Embedding(*self._pair("model.embed_tokens.weight"))
        self.blocks = [self._block(layer) for layer in range(config.num_layers)]
        self.norm = RMSNorm(*self._pair("model.norm.weight"), eps=config.norm_eps)
        self.head = Linear(*self._pair("model.embed_tokens.weight" if config.tie_embeddings else "lm_head.weight"))

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
