"""Options of training."""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from typing import Literal, get_args

from ..formats.errors import shown
from ..models.adapter import LORA_TARGETS
from ..models.config import Precision, check_count, check_number, check_precision
from ..nearest import unknown_option

#: What the moments of AdamW are kept in.
MomentsKind = Literal["f32", "bf16", "f8"]

#: What gradients are rounded to between replicas.
ReduceDtype = Literal["f32", "bf16", "f16"]

#: Loss scales that the library takes.
LEAST_LOSS_SCALE, LARGEST_LOSS_SCALE = 2.0**-24, 2.0**24

#: The least and the largest value of each number; tests/bounds.json has the reasons.
BOUNDS: dict[str, tuple[float, float]] = {
    "learning_rate": (0.0, 1e30),
    "min_rate_share": (0.0, 1.0),
    "beta1": (0.0, 0.999999),
    "beta2": (0.0, 0.999999),
    "eps": (1e-30, 1.0),
    "weight_decay": (0.0, 1e30),
    "clip_norm": (1e-30, 1e30),
    "max_loss": (1e-30, 1e38),
    "loss_scale": (LEAST_LOSS_SCALE, LARGEST_LOSS_SCALE),
    "loss_scale_growth": (1.0, LARGEST_LOSS_SCALE),
    "loss_scale_backoff": (LEAST_LOSS_SCALE, 1.0),
    "lora_alpha": (1e-6, 1e6),
}

#: The largest rank of an adapter; tests/bounds.json has the reason.
LARGEST_RANK = 65536

#: Options that checkpoints did not have from the beginning. Files have them where they are not at their defaults, so a
#: run that uses none of them is the same file as ever, which programs from before them open too.
_ADDED = (
    "activation_checkpointing",
    "recompute_experts",
    "keep_experts",
    "precision",
    "loss_scale",
    "loss_scale_growth",
    "loss_scale_backoff",
    "loss_scale_interval",
    "max_loss",
    "moments",
    "replicas",
    "reduce_dtype",
    "document_mask",
    "hash_every",
    "lora_rank",
    "lora_alpha",
    "lora_targets",
)

#: Options that a run may continue with other values of. Micro-batches and what is computed twice change how a step is
#: reached, not what is trained; the rest decides when the run looks at itself.
CHANGEABLE = (
    "micro_batch_size",
    "activation_checkpointing",
    "recompute_experts",
    "keep_experts",
    "eval_every",
    "eval_batches",
    "save_every",
    "keep_checkpoints",
    "log_every",
    "hash_every",
    "max_loss",
)

#: Options that a run may be extended with other values of, beside those: together, the learning rate of each step.
SCHEDULE = ("steps", "learning_rate", "min_rate_share", "warmup_steps")

#: What the presets of models are trained with, where it is not the default.
PRESETS: dict[str, dict[str, object]] = {
    "6.9b": {
        "steps": 100000,
        "batch_size": 64,
        "micro_batch_size": 1,
        "sequence_length": 4096,
        "learning_rate": 3e-4,
        "activation_checkpointing": 1,
        "precision": "bf16",
    },
    "small": {"steps": 2000, "learning_rate": 2e-3},
    "demo": {"steps": 1000, "learning_rate": 2e-3},
}

#: What a run that begins with trained weights is trained with, where it is not the default: few steps, with a low rate.
FINE_TUNING: dict[str, object] = {"steps": 1000, "learning_rate": 5e-5}

#: The same of an adapter, whose few parameters take larger steps (Dettmers et al. 2023, "QLoRA", appendix B).
ADAPTER_TUNING: dict[str, object] = {**FINE_TUNING, "learning_rate": 2e-4}


def canonical(*options: object) -> str:
    """Options as lines of text, the same in every language: numbers that are not whole by the bits of their f64."""
    lines = []
    for table in options:
        for field in dataclasses.fields(table):  # type: ignore[arg-type]
            value = getattr(table, field.name)
            if isinstance(value, bool) or value is None:
                text = str(value).lower()
            elif str(field.type).startswith("float"):
                text = struct.pack(">d", value).hex()
            else:
                text = str(value)
            lines.append(f"{field.name}={text}\n")
    return "".join(lines)


def usual_warmup(steps: int) -> int:
    """Steps of warm-up where none are given: a twentieth, at least 1 and at most 2000; a single step has none."""
    return min(max(steps // 20, 1), 2000, steps - 1)


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides the bits of a training run, beside the model and the data; and when it reports.

    steps               total number of updates; the schedule ends here
    batch_size          sequences per update
    micro_batch_size    sequences that run at once; the gradients of the micro-batches of an update are added up
    replicas            parts of an update that ranks share out; their gradients are added in a tree that the number of
                        ranks does not change: at most as many as there are micro-batches
    reduce_dtype        what the gradient of each replica, and each sum of them but the whole, is rounded to, so that
                        ranks send fewer bytes: f32, which rounds nothing, bf16, or f16, for precision f16
    sequence_length     tokens per sequence
    document_mask       id of the token that ends a document: documents in a sequence then do not see one another, and
                        each begins at position 0; None for one that sees all before it
    learning_rate       highest rate, reached after the warm-up
    min_rate_share      the cosine ends at this share of it
    warmup_steps        steps of linear warm-up, fewer than there are steps; None is a twentieth of them, from 1 to 2000
    beta1, beta2, eps   AdamW parameter
    weight_decay        decoupled, on matrices only
    clip_norm           largest global norm of the gradients; None never clips
    max_loss            a reported loss above it ends the run as diverged; None is 10 ln(vocab_size)
    activation_checkpointing  to save memory, every n-th block keeps only its input and recomputes the rest in
                        backward, with the same bits: 1 is every block, 0 none
    recompute_experts   the same, in the other blocks, for the inside of their experts
    keep_experts        with recompute_experts, so many blocks, the last ones, keep it, as far as memory goes
    precision           what the model computes in: f32, bf16, f16, whose losses are scaled, or fp8, which is bf16 with
                        the experts' products in 8 bits; weights and gradients are kept in f32
    moments             format of both AdamW moments, to save memory: f32, bf16, or f8, which is 8-bit codes
                        with a scale for every 256 parameters
    loss_scale          initial loss scale, with f16
    loss_scale_growth   factor of the scale after `loss_scale_interval` steps without an overflow
    loss_scale_backoff  factor of the scale after a step whose gradients overflow, which is skipped
    loss_scale_interval  steps without an overflow after which the scale grows
    lora_rank           rank of an adapter (LoRA) that is trained beside the model's weights, which stay as they are
                        stored; 0 trains the weights
    lora_alpha          by which what it adds counts lora_alpha / lora_rank times; None is lora_rank, which is once
    lora_targets        the projections of a layer that have one, separated by commas, such as q_proj,v_proj; or all
    seed                seed of the initial weights and of the data order
    eval_every          steps between evaluations on held-out text; 0 evaluates only at the end
    eval_batches        batches per evaluation, always the same ones; 0 uses all
    save_every          steps between checkpoints; 0 saves only at the end
    keep_checkpoints    how many of the newest to keep, besides the best
    log_every           steps between lines of metrics
    hash_every          steps between hashes of parameters, moments and data, by which a run can be checked; 0 makes
                        none
    """

    steps: int = 10000
    batch_size: int = 8
    micro_batch_size: int | None = None
    replicas: int = 1
    reduce_dtype: ReduceDtype = "f32"
    sequence_length: int = 256
    document_mask: int | None = None
    learning_rate: float = 3e-4
    min_rate_share: float = 0.1
    warmup_steps: int | None = None
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip_norm: float | None = 1.0
    max_loss: float | None = None
    activation_checkpointing: int = 0
    recompute_experts: bool = False
    keep_experts: int = 0
    precision: Precision = "f32"
    moments: MomentsKind = "f32"
    loss_scale: float = 65536.0
    loss_scale_growth: float = 2.0
    loss_scale_backoff: float = 0.5
    loss_scale_interval: int = 2000
    lora_rank: int = 0
    lora_alpha: float | None = None
    lora_targets: str = "all"
    seed: int = 0
    eval_every: int = 100
    eval_batches: int = 0
    save_every: int = 100
    keep_checkpoints: int = 2
    log_every: int = 1
    hash_every: int = 25

    def __post_init__(self) -> None:
        if self.warmup_steps is None:
            check_count("steps", self.steps, 1)
            object.__setattr__(self, "warmup_steps", usual_warmup(self.steps))
        for name in (
            "steps", "batch_size", "micro_batch_size", "replicas", "sequence_length", "log_every", "keep_checkpoints",
            "loss_scale_interval",
        ):  # fmt: skip
            if name != "micro_batch_size" or self.micro_batch_size is not None:
                check_count(name, getattr(self, name), 1)
        if self.replicas > self.micro_batches:
            micro = self.micro_batch_size or self.batch_size
            raise ValueError(
                f"replicas is {self.replicas}; an update of batch_size {self.batch_size} in micro-batches of {micro} "
                f"has {self.micro_batches}, so it must be 1 to {self.micro_batches}"
            )
        for name in (
            "warmup_steps",
            "activation_checkpointing",
            "keep_experts",
            "eval_every",
            "eval_batches",
            "save_every",
            "hash_every",
        ):
            check_count(name, getattr(self, name), 0)
        if self.document_mask is not None:
            check_count("document_mask", self.document_mask, 0)
        if type(self.seed) is not int or not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed is {shown(self.seed)}; it must be a whole number of 64 bits")
        for name, bounds in BOUNDS.items():
            optional = name in ("clip_norm", "max_loss", "lora_alpha")
            if not optional or getattr(self, name) is not None:
                check_number(name, getattr(self, name), bounds, optional=optional)
        if type(self.recompute_experts) is not bool:
            raise ValueError(f"recompute_experts is {shown(self.recompute_experts)}; it must be true or false")
        if self.recompute_experts and self.activation_checkpointing == 1:
            raise ValueError("recompute_experts is for blocks that activation_checkpointing leaves; 1 leaves none")
        if self.keep_experts and not self.recompute_experts:
            raise ValueError(
                f"keep_experts is {self.keep_experts}, but recompute_experts is false; then all blocks keep them"
            )
        check_precision(self.precision)
        if self.moments not in get_args(MomentsKind):
            raise ValueError(f"moments is {shown(self.moments)}; it must be one of {', '.join(get_args(MomentsKind))}")
        self._check_reduce_dtype()
        self._check_adapter()
        if self.precision != "f16":
            for name in ("loss_scale", "loss_scale_growth", "loss_scale_backoff", "loss_scale_interval"):
                if getattr(self, name) != getattr(type(self), name):
                    raise ValueError(
                        f"{name} is given, but the precision is {self.precision}; losses are scaled in f16"
                    )

    def _check_adapter(self) -> None:
        rank, targets = self.lora_rank, self.lora_targets
        if type(rank) is not int or not 0 <= rank <= LARGEST_RANK:
            raise ValueError(f"lora_rank is {shown(rank)}; it must be a whole number, from 0 to {LARGEST_RANK}")
        names = targets.split(",") if type(targets) is str and targets != "all" else ["q_proj"]
        if type(targets) is not str or any(name not in LORA_TARGETS for name in names) or len(set(names)) < len(names):
            rule = f"all, or some of {', '.join(LORA_TARGETS)}, separated by commas"
            raise ValueError(f"lora_targets is {shown(targets)}; it must be {rule}")
        if not rank:
            for name in ("lora_alpha", "lora_targets"):
                if getattr(self, name) != getattr(type(self), name):
                    raise ValueError(f"{name} is given, but lora_rank is 0; it is of an adapter")
            return
        if self.lora_alpha is None:
            object.__setattr__(self, "lora_alpha", float(rank))
        if self.precision != "f32":
            raise ValueError(f"precision is {self.precision}, but lora_rank is {rank}; adapters are trained in f32")

    def _check_reduce_dtype(self) -> None:
        found, known = self.reduce_dtype, get_args(ReduceDtype)
        if found not in known:
            raise ValueError(f"reduce_dtype is {shown(found)}; it must be one of {', '.join(known)}")
        if found == "f16" and self.precision != "f16":
            raise ValueError(
                f"reduce_dtype is f16, but the precision is {self.precision}; gradients fit into f16 only with the "
                "loss scale of precision f16"
            )
        if found != "f32" and self.replicas == 1:
            raise ValueError(f"reduce_dtype is {found}, but replicas is 1; gradients are rounded between replicas")

    @property
    def adapted(self) -> tuple[str, ...]:
        """The projections of a layer that have an adapter."""
        return LORA_TARGETS if self.lora_targets == "all" else tuple(self.lora_targets.split(","))

    @property
    def micro_batches(self) -> int:
        """Micro-batches of an update."""
        return -(-self.batch_size // (self.micro_batch_size or self.batch_size))

    @property
    def schedule_steps(self) -> tuple[int, int]:
        """Warm-up and total steps of the learning-rate schedule: a run shorter than its warm-up never leaves it."""
        assert self.warmup_steps is not None  # since __post_init__
        return self.warmup_steps, max(self.steps, self.warmup_steps)

    def check_schedule(self) -> None:
        """ValueError when the steps end before the warm-up does. Runs from when that was allowed still continue."""
        warmup, _ = self.schedule_steps
        if warmup >= self.steps:
            usual = usual_warmup(self.steps)
            raise ValueError(
                f"warmup_steps is {warmup}, but there are {self.steps} steps: the rate would never reach its highest; "
                f"give fewer, such as {usual}, or none, which is {usual} here"
            )

    @classmethod
    def preset(cls, name: str, **changes: object) -> TrainConfig:
        """The training options that go with `MoEConfig.preset(name)`, with changes."""
        if name not in PRESETS:
            raise ValueError(f"there is no preset {shown(name)}; there are {', '.join(sorted(PRESETS))}")
        return cls(**{**PRESETS[name], **changes})  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, values: dict[str, object]) -> TrainConfig:
        """From a dictionary of options; an unknown name raises ValueError."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(unknown_option("training", name, known))
        return cls(**values)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, object]:
        """All options by name, but those that were added later and are at their defaults."""
        values = dataclasses.asdict(self)
        for name in _ADDED:
            if values[name] == getattr(type(self), name):
                del values[name]
        return values
