"""The weights of a stored model by the layers that they are of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..device import Context, Tensor
from .low_rank import Adapters
from .ternary_weights import TernaryLayer, ternary_layers
from .weight_reader import Experts, Weight, WeightReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..models.adapter import Adapter
    from ..models.stored import StoredModel


@dataclass(frozen=True)
class Gated:
    """A feed-forward network: down (act(gate x) * (up x))."""

    gate: Weight
    up: Weight
    down: Weight


@dataclass(frozen=True)
class SharedExpert:
    """The expert that every token goes to; `gate` has a second row of zeros, and is None where nothing weighs it."""

    ffn: Gated
    gate: Weight | None

    @property
    def matrices(self) -> list[Weight]:
        gates = [] if self.gate is None else [self.gate]
        return [self.ffn.gate, self.ffn.up, self.ffn.down, *gates]


class ExpertBiases(NamedTuple):
    """What the products of a mixture have added, f32: of the router [experts], of gate and up [experts, ffn] each, and
    of down [experts, hidden]."""

    router: Tensor
    w1: Tensor
    w3: Tensor
    w2: Tensor


@dataclass(frozen=True)
class Mixture:
    """A mixture of experts, of which these are all, or those that this rank holds; clipped where it has biases."""

    router: Weight
    experts: Experts
    shared: SharedExpert | None
    biases: ExpertBiases | None


@dataclass(frozen=True)
class Layer:
    """A block's weights; the norms, the biases and the sinks of heads are f32. `attention_norm` and `ffn_norm` are
    behind these parts."""

    input_norm: Tensor
    q: Weight
    k: Weight
    v: Weight
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    sinks: Tensor | None
    o: Weight
    o_bias: Tensor | None
    attention_norm: Tensor | None
    post_norm: Tensor
    ffn: Gated | Mixture
    ffn_norm: Tensor | None

    @property
    def matrices(self) -> list[Weight]:
        ffn = self.ffn
        if isinstance(ffn, Gated):
            inner = [ffn.gate, ffn.up, ffn.down]
        else:
            inner = [ffn.router, *ffn.experts, *(ffn.shared.matrices if ffn.shared is not None else ())]
        return [self.q, self.k, self.v, self.o, *inner]


class Weights:
    """All weights of a model.

    `place` and `in_memory` are those of `WeightReader`; `adapter` and `adapters` are those of `Engine`. Ternary weights
    are always packed into the context's memory, so of such a model this is about the embedding and the head alone.
    """

    def __init__(
        self,
        ctx: Context,
        model: StoredModel,
        place: str = "auto",
        adapter: Adapter | None = None,
        adapters: Mapping[str, Adapter] | None = None,
    ):
        read = WeightReader(ctx, model, place)
        self.adapters = Adapters(ctx, model.config, read.order, adapter, adapters or {})
        self.in_memory = read.in_memory
        self._config = model.config
        tied = model.config.tie_embeddings
        table = "model.embed_tokens.weight"
        self.embedding = read.table(table, tied)
        self.layers: list[Layer] | list[TernaryLayer]
        if model.config.ternary:
            self.layers = list(ternary_layers(ctx, model, self.adapters))
            ctx.trim()  # what was needed to pack them
        else:
            self.layers = [self._layer(read, number) for number in range(model.config.num_layers)]
        self.norm = read.vector("model.norm.weight")
        self.head = read.tied_head(table, self.embedding) if tied else read.matrix("lm_head.weight")
        mixtures = [layer.ffn for layer in self.layers if isinstance(layer, Layer) and isinstance(layer.ffn, Mixture)]
        self._expert_bytes = sum(ffn.experts.nbytes for ffn in mixtures)
        every = sum(weight.nbytes for layer in self.layers for weight in layer.matrices)
        self._common_bytes = every - self._expert_bytes + self.head.data.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices, of a tied embedding once, and of all adapters."""
        embedding = 0 if self._config.tie_embeddings else self.embedding.data.nbytes
        return self._common_bytes + self._expert_bytes + embedding + sum(self.adapters.nbytes)

    def bytes_per_step(self, tokens: int, adapters: Iterable[int] = (0,)) -> int:
        """Bytes that so many tokens need at least in one call: a row of the embedding each, and every matrix, of the
        experts' as many as the tokens meet if none meets another's; and the adapters with these numbers."""
        config, embedding = self._config, self.embedding.data
        met = min(1.0, tokens * config.experts_per_token / config.num_experts) if config.num_experts else 0.0
        added = sum(self.adapters.nbytes[number] for number in set(adapters))
        return self._common_bytes + int(met * self._expert_bytes) + tokens * embedding.shape[1] + added

    def _layer(self, read: WeightReader, number: int) -> Layer:
        block = f"model.layers.{number}"
        attention, dense = f"{block}.self_attn", f"{block}.mlp"
        config = self._config
        qkv_bias = o_bias = q_norm = k_norm = attention_norm = ffn_norm = None
        if config.qkv_bias:
            qkv_bias = read.vector(*(f"{attention}.{name}_proj.bias" for name in "qkv"))
        if config.o_bias:
            o_bias = read.vector(f"{attention}.o_proj.bias")
        if config.qk_norm != "none":
            q_norm, k_norm = (read.vector(f"{attention}.{name}_norm.weight") for name in "qk")
        if config.post_norms:
            attention_norm, ffn_norm = (read.vector(f"{part}.post_norm.weight") for part in (attention, dense))
        ffn: Gated | Mixture
        if config.num_experts:
            mixture = f"{block}.block_sparse_moe"
            shared = None
            if config.shared_ffn_size:
                gate = read.beside_zeros(f"{mixture}.shared_gate.weight") if config.shared_gate else None
                shared = SharedExpert(self._gated(read, f"{mixture}.shared"), gate)
            biases = None
            if config.biased_experts:
                added = [read.vector(f"{mixture}.{name}.bias") for name in ("gate", "w1", "w3", "w2")]
                biases = ExpertBiases(added[0], *(one.view(config.num_experts, -1) for one in added[1:]))
            ffn = Mixture(read.matrix(f"{mixture}.gate.weight"), read.experts(number), shared, biases)
        else:
            ffn = self._gated(read, dense)
        return Layer(
            read.vector(f"{block}.input_layernorm.weight"),
            *(self._projection(read, f"{attention}.{name}_proj.weight") for name in "qkv"),
            qkv_bias,
            q_norm,
            k_norm,
            read.vector(f"{attention}.sinks.weight") if config.sinks else None,
            self._projection(read, f"{attention}.o_proj.weight"),
            o_bias,
            attention_norm,
            read.vector(f"{block}.post_attention_layernorm.weight"),
            ffn,
            ffn_norm,
        )

    def _gated(self, read: WeightReader, prefix: str) -> Gated:
        return Gated(*(self._projection(read, f"{prefix}.{name}_proj.weight") for name in ("gate", "up", "down")))

    def _projection(self, read: WeightReader, name: str) -> Weight:
        """A matrix of a layer, and what the adapters add to it."""
        return read.matrix(name)._replace(low_rank=self.adapters.of(name))
