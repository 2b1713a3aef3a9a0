"""What a MoE transformer is made of: every option of its architecture, and presets."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal, get_args

from ..formats.errors import shown
from ..formats.limits import COUNT, MODEL_PARAMETERS, MODEL_TENSORS
from ..nearest import unknown_option
from .rope_scaling import llama3_divisors

#: What a model computes in: all in one dtype, or, with fp8, experts' products in 8 bits and the rest in bf16.
Precision = Literal["f32", "bf16", "f16", "fp8"]

#: The least and the largest value of each number; tests/bounds.json has the reasons.
BOUNDS: dict[str, tuple[float, float]] = {
    "rope_base": (1.0, 1e12),
    "ntk_alpha": (1.0, 1e6),
    "norm_eps": (0.0, 1.0),
    "capacity_factor": (1e-6, 65536.0),
    "aux_alpha": (0.0, 1000.0),
    "init_std": (0.0, 100.0),
    "rope_factor": (1.0, 1e6),
    "rope_low": (1e-6, 1.0),
    "rope_high": (1.001, 1e6),
}


#: Options of the router, which a dense model has at their defaults.
_OF_ROUTER = ("norm_topk_prob", "capacity_factor", "aux_alpha")

#: Parts of a dense model, which one with experts has not.
_OF_DENSE = ("qkv_bias", "qk_norm", "tie_embeddings", "ternary", "squared_relu")

#: Parts that a model with ternary weights has not.
_NOT_TERNARY = ("qkv_bias", "qk_norm")


def check_precision(value: object) -> None:
    """Raises ValueError for anything but one of `Precision`."""
    if value not in get_args(Precision):
        raise ValueError(f"precision is {shown(value)}; it must be one of {', '.join(get_args(Precision))}")


def check_ternary_precision(precision: Precision) -> None:
    """Raises ValueError for a precision in which a model with ternary weights is not trained."""
    if precision != "f32":
        raise ValueError(f"precision is {precision}; a model with ternary weights, which come of f32, trains in f32")


def dtype_of(precision: Precision) -> Literal["f32", "bf16", "f16"]:
    """The dtype of weights and activations in a precision: fp8 rounds them for its products alone."""
    return "bf16" if precision == "fp8" else precision


@dataclass(frozen=True)
class MoEConfig:
    """Sizes and options of a `MoETransformer`. The defaults are the configuration "6.9b".

    vocab_size          size of the vocabulary
    hidden_size         width of the residual stream
    num_layers          number of blocks
    num_heads           query heads of attention
    num_kv_heads        key and value heads: 1 is multi-query attention, num_heads multi-head
    head_dim            elements per head; a multiple of 8, at most 256
    num_experts         experts per layer; 0 makes the model dense: one network for all tokens, without a router
    experts_per_token   experts that each token goes to; 0 in a dense model
    ffn_size            inner width of an expert, or of the network of a dense model
    context             longest sequence in training, and at inference without stretching the rotary embedding
    extended_context    longest sequence at inference with `ntk_alpha`
    rope_base           base of the rotary embedding's angles
    ntk_alpha           NTK-aware factor of that base, used beyond `context` only
    norm_eps            added to the mean square in RMSNorm
    norm_topk_prob      whether a token's expert weights are divided by their sum
    capacity_factor     in training an expert takes at most ceil(factor * tokens * experts_per_token / num_experts)
                        slots of a micro-batch, in token order, and drops the rest; None drops nothing
    aux_alpha           weight of the load-balancing loss
    init_std            standard deviation of the initial weights
    qkv_bias            whether queries, keys and values have biases, as in Qwen2; in a dense model alone
    qk_norm             whether each head of queries and keys is normed before it is rotated, as in Qwen3; in a dense
                        model without those biases alone
    tie_embeddings      whether the head is the table of embeddings; in a dense model alone
    ternary             whether all blocks' products have weights -1, 0 and 1 times a number, made of the parameters
                        whenever they are used, and activations of 8 bits, with norms in front of both projections back
                        to the stream, as in BitNet b1.58; in a dense model that trains in f32
    squared_relu        whether the gate is max(x, 0)^2 in place of SiLU; with ternary weights alone
    rope_factor         what llama3's scaling of the rotary embedding stretches long waves by; 1 leaves all as they are
    rope_low            of it: waves that turn less often in the original context are stretched by the whole factor
    rope_high           of it: waves that turn more often there stay as they are
    rope_original       of it: the original context
    """

    vocab_size: int = 32000
    hidden_size: int = 768
    num_layers: int = 30
    num_heads: int = 12
    num_kv_heads: int = 1
    head_dim: int = 64
    num_experts: int = 16
    experts_per_token: int = 4
    ffn_size: int = 6144
    context: int = 32768
    extended_context: int = 262144
    rope_base: float = 10000.0
    ntk_alpha: float = 8.0
    norm_eps: float = 1e-5
    norm_topk_prob: bool = True
    capacity_factor: float | None = None
    aux_alpha: float = 0.01
    init_std: float = 0.02
    qkv_bias: bool = False
    qk_norm: bool = False
    tie_embeddings: bool = False
    ternary: bool = False
    squared_relu: bool = False
    rope_factor: float = 1.0
    rope_low: float = 1.0
    rope_high: float = 4.0
    rope_original: int = 8192

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type == "int":
                check_count(field.name, value, 0 if field.name in ("num_experts", "experts_per_token") else 1)
            elif field.type == "bool":
                _require(type(value) is bool, field.name, value, "true or false")
            elif field.type == "float" or value is not None:
                check_number(field.name, value, BOUNDS[field.name], optional=field.type != "float")
        heads, experts = self.num_heads, self.num_experts
        _require(heads % self.num_kv_heads == 0, "num_kv_heads", self.num_kv_heads, f"a divisor of num_heads ({heads})")
        dim = self.head_dim
        _require(dim % 8 == 0 and dim <= 256, "head_dim", dim, "a multiple of 8, at most 256")
        chosen, most = self.experts_per_token, min(experts, 64)
        allowed = f"1 to {most}" if experts else "0 in a dense model, whose num_experts is 0"
        _require(min(experts, 1) <= chosen <= most, "experts_per_token", chosen, allowed)
        kind = "model with experts" if experts else "dense model, whose num_experts is 0"
        for name in _OF_DENSE if experts else _OF_ROUTER:
            usual = getattr(type(self), name)
            rule = f"{usual} in a {kind}"
            _require(getattr(self, name) == usual, name, getattr(self, name), rule)
        _require(
            self.extended_context >= self.context,
            "extended_context",
            self.extended_context,
            f"at least context ({self.context})",
        )
        _require(not (self.qk_norm and self.qkv_bias), "qkv_bias", self.qkv_bias, "False with qk_norm")
        for name in _NOT_TERNARY if self.ternary else ("squared_relu",):
            rule = f"False {'with' if self.ternary else 'without'} ternary weights"
            _require(not getattr(self, name), name, getattr(self, name), rule)
        of_layer = 7 + 3 * experts if experts else 9 + 3 * self.qkv_bias + 2 * self.qk_norm + 2 * self.ternary
        tensors = self.num_layers * of_layer + 3 - self.tie_embeddings
        if tensors > MODEL_TENSORS:
            raise ValueError(
                f"num_layers and num_experts make {tensors} tensors; a model may have at most {MODEL_TENSORS}"
            )
        if self.num_parameters > MODEL_PARAMETERS:
            raise ValueError("the sizes make a model of more parameters than any machine holds")

    @classmethod
    def preset(cls, name: str, **changes: object) -> MoEConfig:
        """A named configuration, with changes: "6.9b", "small" (the benchmark's) or "demo" (that of `make run`)."""
        if name not in PRESETS:
            raise ValueError(f"there is no preset {shown(name)}; there are {', '.join(sorted(PRESETS))}")
        return cls(**{**PRESETS[name], **changes})  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, values: dict[str, object]) -> MoEConfig:
        """From a dictionary of options; an unknown name raises ValueError."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(unknown_option("model", name, known))
        return cls(**values)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, object]:
        """All options by name."""
        return dataclasses.asdict(self)

    def rope_divisors(self) -> tuple[float, ...]:
        """What llama3's scaling divides the frequencies of the rotary embedding by, a number a pair; none of plain
        ones."""
        if self.rope_factor == 1:
            return ()
        low, high, original = self.rope_low, self.rope_high, float(self.rope_original)
        return llama3_divisors(self.rope_base, self.head_dim, self.rope_factor, low, high, original)

    def capacity(self, tokens: int) -> int:
        """Most slots that an expert takes of `tokens` tokens in training; 0 means no limit."""
        if self.capacity_factor is None:
            return 0
        return math.ceil(self.capacity_factor * tokens * self.experts_per_token / self.num_experts)

    @property
    def num_parameters(self) -> int:
        """Parameters in all."""
        return sum(whole for whole, _ in self.parameters_by_kind().values())

    @property
    def num_active_parameters(self) -> int:
        """Parameters that one token meets: those of its experts alone."""
        return sum(met for _, met in self.parameters_by_kind().values())

    def parameters_by_kind(self) -> dict[str, tuple[int, int]]:
        """Parameters of each kind of layer: in all, and those that one token meets."""
        hidden, layers = self.hidden_size, self.num_layers
        expert = 3 * hidden * self.ffn_size
        sub_norms = self.num_heads * self.head_dim + self.ffn_size if self.ternary else 0
        products = hidden * self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)
        biases = self.head_dim * (self.num_heads + 2 * self.num_kv_heads) if self.qkv_bias else 0
        always = {
            "embedding": self.vocab_size * hidden,
            "attention": layers * (products + biases),
            "routers": layers * self.num_experts * hidden,
            "norms": (2 * layers + 1) * hidden + layers * (2 * self.head_dim * self.qk_norm + sub_norms),
            "head": 0 if self.tie_embeddings else self.vocab_size * hidden,
        }
        kinds = {name: (count, count) for name, count in always.items()}
        if self.num_experts:
            kinds["experts"] = layers * self.num_experts * expert, layers * self.experts_per_token * expert
        else:
            kinds["feed-forward"] = layers * expert, layers * expert
        return kinds


#: What commands begin with where no preset is named: one that trains on any machine.
USUAL_PRESET = "small"

PRESETS: dict[str, dict[str, object]] = {
    "6.9b": {},
    "small": {
        "vocab_size": 4096,
        "hidden_size": 256,
        "num_layers": 4,
        "num_heads": 4,
        "num_experts": 8,
        "experts_per_token": 2,
        "ffn_size": 512,
        "context": 256,
        "extended_context": 2048,
    },
    "demo": {
        "vocab_size": 4096,
        "hidden_size": 192,
        "num_layers": 4,
        "num_heads": 6,
        "head_dim": 32,
        "num_experts": 8,
        "experts_per_token": 2,
        "ffn_size": 384,
        "context": 256,
        "extended_context": 2048,
    },
}


def _require(condition: bool, name: str, value: object, allowed: str) -> None:
    if not condition:
        raise ValueError(f"{name} is {shown(value)}; it must be {allowed}")


def check_count(name: str, value: object, least: int) -> None:
    """Raises ValueError for anything but a whole number, from `least` to what kernels count in."""
    _require(type(value) is int and least <= value <= COUNT, name, value, f"a whole number, from {least} to {COUNT}")


def check_number(name: str, value: object, bounds: tuple[float, float], *, optional: bool = False) -> None:
    """Raises ValueError for anything but a number within bounds. `optional` says that None would do as well."""
    low, high = bounds
    allowed = f"a number, from {low:g} to {high:g}{', or none' if optional else ''}"
    _require(is_finite(value) and low <= value <= high, name, value, allowed)  # type: ignore[operator]


def is_finite(value: object) -> bool:
    """Whether a value is an int or a float, of a size that a float can have."""
    try:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:  # a whole number beyond what a float can hold
        return False
