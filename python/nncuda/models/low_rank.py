"""Training an adapter: a model whose weights stay as they are stored, and low-rank factors beside some of them.

The factors are the parameters, in one arena, layer after layer, of each matrix that is adapted first A, then B:

    model.layers.L.self_attn.{q,k,v,o}_proj.lora_A.weight     [rank, in]
    model.layers.L.self_attn.{q,k,v,o}_proj.lora_B.weight     [out, rank]
    model.layers.L.mlp.{gate,up,down}_proj.lora_{A,B}.weight

All of them decay. A begins with uniform numbers from -1/sqrt(in) to 1/sqrt(in), tensor number i of the layout from
stream i of the seed, and B with zeros, so that the first step meets the model as it is: what PEFT begins with.
(Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1; He et al. 2015, eq. 7 with a slope
of sqrt(5); Dettmers et al. 2023, "QLoRA", sections 3 and 4)
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import kernels
from ..device import Context, Tensor, one_thread
from ..formats.safetensors import SafetensorsLayout
from ..layers import (
    AllRows,
    Attention,
    FrozenEmbedding,
    FrozenLinear,
    FrozenTernary,
    GatedLayer,
    HeadNorms,
    Heads,
    LowRank,
    NormedLinear,
    RMSNorm,
    TransformerBlock,
)
from .adapter import CONFIG, LORA_TARGETS, PREFIX, WEIGHTS, adapter_document, adapter_values, save_adapter
from .config import MoEConfig
from .frozen import FrozenBase
from .parameters import Layout, ParameterArena, ParameterLayout, own_parts
from .transformer import Transformer, check_names, on_host


@dataclass(frozen=True)
class LowRankOptions:
    """rank of the factors, alpha, by which their product counts alpha / rank times, and the names of the projections
    that have an adapter, of `LORA_TARGETS`."""

    rank: int
    alpha: float
    targets: tuple[str, ...] = LORA_TARGETS

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


class LowRankLayout(Layout):
    """That of the factors beside a dense model of a configuration, of its matrices in their order."""

    def __init__(self, config: MoEConfig, options: LowRankOptions):
        super().__init__()
        for spec in ParameterLayout(config):
            module = spec.name.removesuffix(".weight")
            if module.rpartition(".")[2] in options.targets:
                rows, columns = spec.shape
                self._add(f"{module}.lora_A.weight", options.rank, columns)
                self._add(f"{module}.lora_B.weight", rows, options.rank)
        self.num_decayed = self.size

    def matrices(self) -> dict[str, tuple[str, str]]:
        """Of each matrix that is adapted, by its name in `LlamaConfig.shapes`, the names of A and B."""
        firsts = [spec.name for spec in self.specs if spec.name.endswith(".lora_A.weight")]
        modules = [name.removesuffix(".lora_A.weight") for name in firsts]
        return {f"{one}.weight": (f"{one}.lora_A.weight", f"{one}.lora_B.weight") for one in modules}


def initialize_factors(arena: ParameterArena, seed: int) -> None:
    """What the factors begin with."""
    for stream, spec in enumerate(arena.layout):
        if spec.name.endswith(".lora_A.weight"):
            bound = 1 / math.sqrt(spec.shape[1])
            kernels.uniform(arena[spec.name].view(-1), low=-bound, high=bound, seed=seed, stream=stream, offset=0)


class LowRankTransformer(Transformer):
    """A stored model with an adapter beside it, of which the adapter alone is trained; activations are f32.

    `parameters` has the factors, and `weights` is the same arena.
    """

    _instead = "save(folder) writes the adapter, which Adapter.open reads"

    precision = "f32"
    dtype = "f32"
    whole = True

    def __init__(self, ctx: Context, base: FrozenBase, options: LowRankOptions, *, seed: int | None = 0):
        """Copies the base's weights to the device. With seed None all factors are zero, to be loaded."""
        self.ctx, self.base, self.options = ctx, base, options
        self.config = base.config
        self.lora_rank = options.rank
        self.layout = LowRankLayout(self.config, options)
        self._parameters = self.weights = ParameterArena(ctx, self.layout)
        self.gradients = ParameterArena(ctx, self.layout)
        if seed is not None:
            initialize_factors(self._parameters, seed)
        self.rope = base.rope(ctx)
        self._rows = AllRows(ctx)
        # Kernels of norms add to the gradient of the gain, which nobody wants of these.
        config = self.config
        self._unwanted = ctx.zeros(max(config.hidden_size, config.num_heads * config.head_dim, config.ffn_size))
        table = "model.embed_tokens.weight"
        embedding = base.matrix(ctx, table)
        head = embedding if self.config.tie_embeddings else base.matrix(ctx, "lm_head.weight")
        self.embedding = FrozenEmbedding(*embedding, self.config.hidden_size)
        self.blocks = [self._block(layer) for layer in range(self.config.num_layers)]
        self.norm = self._norm("model.norm.weight")
        self.head = FrozenLinear(*head)

    def __repr__(self) -> str:
        return (
            f"LowRankTransformer({self.base.stored.path}, rank {self.options.rank}, alpha {self.options.alpha:g}, "
            f"{', '.join(self.options.targets)}; {self.layout.size:,} parameters, {self.ctx.device})"
        )

    @one_thread
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the adapter as a PEFT folder, in one step; FileExistsError when the folder is there already."""
        arrays = self.parameters.arrays()
        factors = {name: (arrays[a], arrays[b]) for name, (a, b) in self.layout.matrices().items()}
        save_adapter(folder, factors, alpha=self.options.alpha, base=str(self.base.stored.path.resolve()))

    @one_thread
    def load_arrays(self, arrays: Mapping[str, np.ndarray | Tensor]) -> None:
        """Takes the factors from f32 arrays or tensors, by the names of the layout. ValueError, with nothing changed,
        when a name is missing or too many, or a shape is another."""
        expected = self.layout.shapes()
        check_names(arrays, expected)
        for name, shape in expected.items():
            if tuple(arrays[name].shape) != shape:
                found = list(arrays[name].shape)
                raise ValueError(f"tensor {name} has shape {found}; this adapter needs {list(shape)}")
        for name in expected:
            self._parameters[name].copy_(np.ascontiguousarray(on_host(arrays[name]), np.float32))

    def base_record(self) -> dict[str, object]:
        return self.base.record()

    def _clear_gains(self) -> None:
        self._unwanted.zero_()  # or they would add up until they are not finite

    def _block(self, layer: int) -> TransformerBlock:
        config, prefix = self.config, f"model.layers.{layer}"
        attention, dense = f"{prefix}.self_attn", f"{prefix}.mlp"
        products = tuple(self._linear(f"{attention}.{name}_proj") for name in "qkv")
        heads = Heads(products, config.head_dim)  # type: ignore[arg-type]  # three
        if config.qk_norm:
            norms = self._norm(f"{attention}.q_norm.weight"), self._norm(f"{attention}.k_norm.weight")
            heads = HeadNorms(heads.products, norms, config.head_dim)
        output = self._back(f"{attention}.o_proj", f"{attention}.attn_sub_norm")
        gate, up = (self._linear(f"{dense}.{name}_proj") for name in ("gate", "up"))
        down = self._back(f"{dense}.down_proj", f"{dense}.ffn_sub_norm")
        return TransformerBlock(
            prefix,
            self._norm(f"{prefix}.input_layernorm.weight"),
            Attention(heads, output, self.rope, config.num_heads, config.num_kv_heads),
            self._norm(f"{prefix}.post_attention_layernorm.weight"),
            GatedLayer(gate, up, down, config.squared_relu),
        )

    def _back(self, module: str, norm: str) -> FrozenLinear | NormedLinear:
        """A projection back to the stream, behind a norm where weights are ternary."""
        product = self._linear(module)
        return NormedLinear(self._norm(f"{norm}.weight"), product) if self.config.ternary else product

    def _norm(self, name: str) -> RMSNorm:
        gain = self.base.vector(self.ctx, name)
        return RMSNorm(gain, self._unwanted.narrow(0, 0, gain.shape[0]), self.config.norm_eps)

    def _linear(self, module: str) -> FrozenLinear:
        """A projection, with its bias and its adapter where it has them."""
        low_rank = None
        if module.rpartition(".")[2] in self.options.targets:
            names = f"{module}.lora_A.weight", f"{module}.lora_B.weight"
            assert self.gradients is not None  # since __init__
            factors, gradients = ([arena[name] for name in names] for arena in (self._parameters, self.gradients))
            low_rank = LowRank(*factors, self.options.scale, *gradients)
        if self.config.ternary:
            return FrozenTernary(*self.base.ternary(self.ctx, f"{module}.weight"), low_rank)
        weight, format = self.base.matrix(self.ctx, f"{module}.weight")
        bias = self.base.vector(self.ctx, f"{module}.bias") if self.base.has(f"{module}.bias") else None
        return FrozenLinear(weight, format, bias, low_rank)


class AdapterFiles:
    """The files of an adapter that is trained, in a folder that is being made, as `ModelFiles` of a whole model."""

    def __init__(self, model: LowRankTransformer):
        self._model = model
        tensors = {PREFIX + name: (np.dtype(np.float32), shape) for name, shape in model.layout.shapes().items()}
        self._tensors = SafetensorsLayout(tensors, {"format": "pt"})

    def create(self, folder: Path) -> None:
        """Makes them all, with zeros for the factors."""
        options, base = self._model.options, str(self._model.base.stored.path.resolve())
        values = adapter_values(options.rank, options.alpha, options.targets, base)
        (folder / CONFIG).write_bytes(adapter_document(values))
        self._tensors.create(folder / WEIGHTS)

    def write(self, folder: Path, own: Sequence[range]) -> None:
        """Writes these elements of the parameters."""
        model = self._model
        model.ctx.synchronize()
        parts = (part for one in own for part in own_parts(model.layout, one, model.parameters_in(one)))
        self._tensors.write(folder / WEIGHTS, ((PREFIX + name, first, on_host(part)) for name, first, part in parts))
