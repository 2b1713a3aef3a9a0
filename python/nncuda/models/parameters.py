"""All parameters of a MoE transformer in one arena: their names, shapes, places, and initial values.

The order is part of the promise that every language trains the same bits: sums over the whole arena (the gradient norm)
run in it, and the initial values of tensor number i come from random stream i. Matrices come first, since weight decay
takes a prefix of the arena, then vectors, the gains of the norms and biases:

    model.embed_tokens.weight                            [vocab, hidden]
    for each layer L:
      model.layers.L.self_attn.{q,k,v,o}_proj.weight     q, k, v side by side: one product serves all three
      model.layers.L.block_sparse_moe.gate.weight        [experts, hidden]
      for each expert E: ...experts.E.w1.weight, w3      gate and up, so that all experts are [experts, 2*ffn, hidden]
      for each expert E: ...experts.E.w2.weight          so that all are [experts, hidden, ffn]
    lm_head.weight                                       [vocab, hidden]
    for each layer L: model.layers.L.{input,post_attention}_layernorm.weight
    model.norm.weight

With `tie_embeddings` there is no lm_head.weight. With `qkv_bias`, model.layers.L.self_attn.{q,k,v}_proj.bias, side by
side, follow the gains of layer L, with `qk_norm` model.layers.L.self_attn.{q,k}_norm.weight, [head_dim], with
`ternary` model.layers.L.self_attn.attn_sub_norm.weight, [heads * head_dim], and model.layers.L.mlp.ffn_sub_norm.weight,
[ffn]; the matrices of such a layer are the master weights.

A dense model has, in place of gate and experts, model.layers.L.mlp.gate_proj.weight and up_proj, [ffn, hidden], and
down_proj, [hidden, ffn], where one expert would have w1, w3 and w2.

Names are those of Mixtral, Llama, Qwen2, Qwen3 or BitNet in Hugging Face transformers, so a checkpoint needs no
translation.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import kernels
from ..device import Context, Tensor
from ..dtypes import DTYPES, DTypeName
from ..errors import StateError
from .config import MoEConfig

#: Elements of an arena that stay on one rank: a multiple of the pieces in which the norm of gradients is summed up, and
#: of the blocks of moments in 8 bits.
GRAIN = 32768

_INITIAL = 1 << 20  # values that are made at once where only parts of a parameter are there; a multiple of 4


@dataclass(frozen=True)
class ParameterSpec:
    """One parameter tensor and its place in the arena, in elements."""

    name: str
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Layout:
    """Where each of some tensors lies in an arena. `size` elements in all, of which the first `num_decayed` decay.

    `experts` are the elements of each layer's experts: those of all w1 and w3, and those of all w2; none of a dense
    model.
    """

    num_decayed: int

    def __init__(self) -> None:
        self.specs: list[ParameterSpec] = []
        self.experts: list[tuple[range, range]] = []
        self._by_name: dict[str, ParameterSpec] = {}
        self.size = 0

    def backward_pieces(self) -> list[range]:
        """The elements whose gradients a backward pass completes at a time, in its order."""
        raise NotImplementedError

    def _add(self, name: str, *shape: int) -> None:
        spec = ParameterSpec(name, shape, self.size)
        self.specs.append(spec)
        self._by_name[name] = spec
        self.size += spec.size

    def __getitem__(self, name: str) -> ParameterSpec:
        return self._by_name[name]

    def __iter__(self) -> Iterator[ParameterSpec]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each parameter by name, in the order of the arena."""
        return {spec.name: spec.shape for spec in self.specs}


class ParameterLayout(Layout):
    """That of all parameters of a configuration."""

    def __init__(self, config: MoEConfig):
        super().__init__()
        hidden, ffn = config.hidden_size, config.ffn_size
        q_rows, kv_rows = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self._add("model.embed_tokens.weight", config.vocab_size, hidden)
        for layer in range(config.num_layers):
            prefix = f"model.layers.{layer}"
            self._add(f"{prefix}.self_attn.q_proj.weight", q_rows, hidden)
            self._add(f"{prefix}.self_attn.k_proj.weight", kv_rows, hidden)
            self._add(f"{prefix}.self_attn.v_proj.weight", kv_rows, hidden)
            self._add(f"{prefix}.self_attn.o_proj.weight", hidden, q_rows)
            if not config.num_experts:
                self._add(f"{prefix}.mlp.gate_proj.weight", ffn, hidden)
                self._add(f"{prefix}.mlp.up_proj.weight", ffn, hidden)
                self._add(f"{prefix}.mlp.down_proj.weight", hidden, ffn)
                continue
            self._add(f"{prefix}.block_sparse_moe.gate.weight", config.num_experts, hidden)
            begin = self.size
            for expert in range(config.num_experts):
                self._add(f"{prefix}.block_sparse_moe.experts.{expert}.w1.weight", ffn, hidden)
                self._add(f"{prefix}.block_sparse_moe.experts.{expert}.w3.weight", ffn, hidden)
            middle = self.size
            for expert in range(config.num_experts):
                self._add(f"{prefix}.block_sparse_moe.experts.{expert}.w2.weight", hidden, ffn)
            self.experts.append((range(begin, middle), range(middle, self.size)))
        self.tied = config.tie_embeddings
        if not self.tied:
            self._add("lm_head.weight", config.vocab_size, hidden)
        self.num_decayed = self.size
        for layer in range(config.num_layers):
            prefix = f"model.layers.{layer}"
            self._add(f"{prefix}.input_layernorm.weight", hidden)
            self._add(f"{prefix}.post_attention_layernorm.weight", hidden)
            if config.qkv_bias:
                for name, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows)):
                    self._add(f"{prefix}.self_attn.{name}_proj.bias", rows)
            for name in "qk" if config.qk_norm else ():
                self._add(f"{prefix}.self_attn.{name}_norm.weight", config.head_dim)
            if config.ternary:
                self._add(f"{prefix}.self_attn.attn_sub_norm.weight", q_rows)
                self._add(f"{prefix}.mlp.ffn_sub_norm.weight", ffn)
        self._add("model.norm.weight", hidden)

    def backward_pieces(self) -> list[range]:
        """The elements whose gradients a backward pass completes at a time, in its order: the head's, unless it is the
        embedding, each layer's matrices from the last on, the embedding's, and all vectors."""
        head = [] if self.tied else [self["lm_head.weight"].offset]
        layers = [spec.offset for spec in self.specs if spec.name.endswith(".self_attn.q_proj.weight")]
        ends = [self.num_decayed, *head, *reversed(layers), 0]
        matrices = [range(begin, end) for end, begin in itertools.pairwise(ends)]
        return [*matrices, range(self.num_decayed, self.size)]


class ParameterArena(Mapping[str, Tensor]):
    """One buffer of a layout: the parameters themselves, their gradients, or a moment of the optimiser.

    A mapping from names to views of `data`, which is the whole; calling it gives the pairs: ``for name, tensor in
    model.parameters():``. Where a rank holds the elements `held` alone, nothing may touch the others.
    """

    def __init__(self, ctx: Context, layout: Layout, dtype: DTypeName = "f32", held: Sequence[range] | None = None):
        self.ctx = ctx
        self.layout = layout
        self.held = (range(layout.size),) if held is None else tuple(held)
        shape = (layout.size,)
        ends = [(own.start, own.stop) for own in self.held]
        self.data = ctx.zeros(shape, dtype) if held is None else ctx.zeros_parts(shape, dtype, ends)

    @property
    def complete(self) -> bool:
        """Whether all elements are held."""
        return sum(map(len, self.held)) == self.layout.size

    @property
    def nbytes(self) -> int:
        """Memory of what is held."""
        return sum(map(len, self.held)) * DTYPES[self.data.dtype].itemsize

    def held_parts(self) -> Iterator[tuple[str, int, Tensor]]:
        """Of each parameter, each run of elements that is held: its name, the first of them, and they."""
        for own in self.held:
            yield from own_parts(self.layout, own, self.data.narrow(0, own.start, len(own)))

    def __getitem__(self, name: str) -> Tensor:
        """A view of one parameter. StateError where this rank does not hold it, or not whole."""
        spec = self.layout[name]
        return self._view(spec.offset, spec.shape)

    def __iter__(self) -> Iterator[str]:
        return (spec.name for spec in self.layout)

    def __len__(self) -> int:
        return len(self.layout)

    def __call__(self) -> ItemsView[str, Tensor]:
        """Names and tensors, in the order of the arena."""
        return self.items()

    # Two arenas are never compared by their values.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"ParameterArena({len(self)} tensors, {self.layout.size:,} elements of {self.data.dtype})"

    def fused(self, first: str, *shape: int) -> Tensor:
        """A view of neighbouring parameters as one tensor of `shape`, from parameter `first` on, as of one."""
        return self._view(self.layout[first].offset, shape)

    def in_pass(self, first: str, *shape: int) -> Tensor:
        """The same for a backward pass, which may put them elsewhere for a while."""
        return self.fused(first, *shape)

    def _view(self, start: int, shape: tuple[int, ...]) -> Tensor:
        size = math.prod(shape)
        if not any(own.start <= start and start + size <= own.stop for own in self.held):
            raise StateError(51, "other ranks hold these parameters; save_checkpoint of the trainer writes all")
        return self.data.narrow(0, start, size).view(*shape)

    def find(self, address: int) -> tuple[str, tuple[int, ...]] | None:
        """The parameter that an address of the device lies in, and the index of the element; None when none does."""
        element, within = divmod(address - self.data.ptr, self.data.nbytes // self.layout.size)
        if within or not 0 <= element < self.layout.size:
            return None
        spec = self.layout.specs[bisect.bisect_right(self.layout.specs, element, key=lambda spec: spec.offset) - 1]
        return spec.name, tuple(map(int, np.unravel_index(element - spec.offset, spec.shape)))

    def arrays(self) -> dict[str, np.ndarray]:
        """Each parameter as an array by name: views of this memory on the CPU, of one copy of it on a GPU. StateError
        where this rank holds a part alone."""
        self._view(0, (self.layout.size,))
        flat = np.asarray(self.data) if self.ctx.device == "cpu" else self.data.numpy()
        return {spec.name: flat[spec.offset : spec.offset + spec.size].reshape(spec.shape) for spec in self.layout}


def own_parts(layout: Layout, own: range, data: Tensor) -> Iterator[tuple[str, int, Tensor]]:
    """Of each parameter that reaches into the elements `own` of a layout, which are `data`: its name, the first of its
    elements that lies there, and the elements from there on."""
    for spec in layout:
        start, stop = max(own.start, spec.offset), min(own.stop, spec.offset + spec.size)
        if start < stop:
            yield spec.name, start - spec.offset, data.narrow(0, start - own.start, stop - start)


def initialize(arena: ParameterArena, config: MoEConfig, seed: int) -> None:
    """Initial values: matrices from Normal(0, init_std), tensor i of the layout from stream i of `seed`; gains 1, and
    biases 0."""
    for stream, spec in enumerate(arena.layout):
        view = arena.data.narrow(0, spec.offset, spec.size)
        if len(spec.shape) == 1:
            kernels.fill(y=view, value=initial_of_vector(spec.name))
        else:
            kernels.normal(y=view, mean=0.0, std=config.init_std, seed=seed, stream=stream, offset=0)


def initial_of_vector(name: str) -> float:
    """What a gain, or a bias, begins with."""
    return 0.0 if name.endswith(".bias") else 1.0


def initialize_held(arena: ParameterArena, config: MoEConfig, seed: int) -> None:
    """The same values for what is held, rounded to the dtype of the arena."""
    streams = {spec.name: stream for stream, spec in enumerate(arena.layout)}
    for name, first, part in arena.held_parts():
        if len(arena.layout[name].shape) == 1:
            kernels.fill(y=part, value=initial_of_vector(name))
            continue
        for start in range(0, part.size, _INITIAL):
            count = min(_INITIAL, part.size - start)
            block, within = divmod(first + start, 4)  # numbers come in blocks of four
            values = kernels.normal(
                mean=0.0, std=config.init_std, seed=seed, stream=streams[name], offset=block, n=within + count,
                ctx=arena.ctx,
            )  # fmt: skip
            take(values.narrow(0, within, count), part.narrow(0, start, count))


def take(values: Tensor, y: Tensor) -> None:
    """y = values, which are f32, rounded to the dtype of y."""
    if y.dtype == "f32":
        y.copy_(values)
    else:
        kernels.cast(values, y=y)
