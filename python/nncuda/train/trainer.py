"""One training step: gradients over micro-batches, clipping, schedule, AdamW."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .. import kernels
from ..device import Comm, Context, DeviceBound, Tensor, one_thread
from ..errors import StateError
from ..formats.run_folder import last_checkpoint
from ..models import ParameterArena
from ..models.held import HeldElements
from ..models.partitioned import PartitionedGradients
from ..models.transformer import IGNORE_INDEX, Transformer
from ..token_ids import IdRows, token_ids
from ..tokenizer import Tokenizer
from .aborting import aborting
from .backward_sums import BackwardSums
from .captured import CapturedStep
from .config import TrainConfig, canonical
from .divergence import Watch
from .expert_gradients import ExpertGradients
from .moments import CodedMoments, Moments, MomentShard
from .replicas import Replicas, one_micro_batch_each
from .scaling import LossScaling, LossScalingState


@dataclass(frozen=True, eq=False, repr=False)
class StepResult:
    """What a step did. Values stay on the device until they are asked for; each lasts until the next step."""

    step: int
    tokens: int
    _losses: Tensor
    _aux: Tensor
    _sizes: Tensor
    _batch: int
    _norm: Tensor
    _lr: Tensor
    _skip: Tensor
    _scaling: LossScaling | None

    @property
    def loss(self) -> float:
        """Mean cross-entropy over the targets of the whole batch, in nats."""
        return kernels.weighted_mean(self._losses, divisor=self.tokens).item()

    @property
    def aux_loss(self) -> float:
        """Load-balancing loss, the mean over the micro-batches by their tokens."""
        return kernels.weighted_mean(self._aux, self._sizes, divisor=self._batch).item()

    @property
    def grad_norm(self) -> float:
        """Global norm of the gradients before clipping, the loss scale divided out; not finite in a skipped step."""
        return self._norm.item() / (1.0 if self._scaling is None else self._scaling.scale.item())

    @property
    def learning_rate(self) -> float:
        """Rate of this update; NaN in a skipped step, which makes none."""
        return math.nan if self.skipped else self._lr.item()

    @property
    def loss_scale(self) -> float | None:
        """What the losses of this step were multiplied by; None in another precision than f16."""
        return None if self._scaling is None else self._scaling.scale.item()

    @property
    def skipped(self) -> bool:
        """Whether nothing was updated: the gradients were not finite, or, in f32 and bf16, those of an earlier step."""
        return self._skip.item() != 0

    @property
    def skipped_steps(self) -> int:
        """Steps in f16 that were skipped so far, this one included."""
        return 0 if self._scaling is None else self._scaling.state.skipped


class Trainer(DeviceBound):
    """Trains a model with AdamW.

    The state besides the model's parameters: first and second moments in what the option `moments` says, the step, and
    the loss scale of a model in f16. One thread at a time may use it: a second one gets StateError.

    The ranks of `comm` train together: each makes a trainer of the same model and options and calls the same methods.
    A rank has the moments of its part of the parameters, and runs the micro-batches of its part of the replicas; what
    they train has the bits of one rank alone.
    """

    _instead = "save_checkpoint(folder) writes it, and Trainer.load(folder) makes another"

    def __init__(
        self,
        model: Transformer,
        config: TrainConfig | None = None,
        *,
        capture: bool = True,
        comm: Comm | None = None,
    ):
        """With `capture`, steps of one shape of batch are captured as a graph and replayed: the same bits, sooner."""
        config = config or TrainConfig()
        if model.gradients is None:
            raise ValueError("this model was made for inference: it has no gradients")
        if config.sequence_length > model.config.context:
            raise ValueError(
                f"sequence_length is {config.sequence_length}; this model's context is {model.config.context}"
            )
        if config.activation_checkpointing > model.config.num_layers:
            raise ValueError(
                f"activation_checkpointing is {config.activation_checkpointing}; this model has "
                f"{model.config.num_layers} blocks"
            )
        if config.keep_experts > model.config.num_layers:
            raise ValueError(f"keep_experts is {config.keep_experts}; this model has {model.config.num_layers} blocks")
        if config.precision != model.precision:
            raise ValueError(f"precision is {config.precision}; this model computes in {model.precision}")
        if config.lora_rank != model.lora_rank:
            trained = f"an adapter of rank {model.lora_rank}" if model.lora_rank else "all weights"
            raise ValueError(f"lora_rank is {config.lora_rank}; this model trains {trained}")
        model.recompute(config.activation_checkpointing, config.recompute_experts, config.keep_experts)
        model.mask_documents(config.document_mask)
        self.model = model
        self.config = config
        ctx = model.ctx
        if model.lora_rank:
            check_alone(comm)
        #: What the ranks train together with; None for a rank alone.
        self.comm = comm if comm is not None and comm.ranks > 1 else None
        experts = model.experts
        if experts is not None and experts.comm is not comm:
            raise ValueError("the ranks that share out this model's experts must be those that train it")
        if model.held_with is not None and model.held_with is not comm:
            raise ValueError("the ranks that share out this model's parameters must be those that train it")
        partitioned = isinstance(model.gradients, PartitionedGradients)
        if partitioned and comm is not None and not one_micro_batch_each(config, comm.ranks):
            raise ValueError("this model's gradients are partitioned: each rank must run one micro-batch of an update")
        if self.comm is not None:
            self.comm.agree("configuration", canonical(model.config, config))
            self.comm.agree("expert parallel", str(1 if experts is None else experts.size))
        if experts is not None:
            experts.join()
        ranks, rank = (1, 0) if self.comm is None else (self.comm.ranks, self.comm.rank)
        held = model.held or HeldElements(model.layout, ranks, rank)
        self._held = held
        self._weight_moves = held.weight_moves(4 if config.precision == "f32" else 2)
        dense = None if experts is None else held.dense
        self.replicas = Replicas(ctx, model.layout.size, config.replicas, ranks, rank, dense, config.reduce_dtype)
        #: Of a rank that holds only some of the experts.
        self.expert_gradients: ExpertGradients | None = None
        if experts is not None:
            options = config.replicas, config.micro_batches, config.reduce_dtype
            self.expert_gradients = ExpertGradients(ctx, experts, held, *options)
        #: Of a rank that is one of several. Rows of experts travel beside them, and two communicators of NCCL that are
        #: busy at a time may wait for each other's place on a GPU: there these sums are made after the last pass.
        self.backward_sums: BackwardSums | None = None
        if self.comm is not None and (experts is None or ctx.device == "cpu"):
            self.backward_sums = BackwardSums(self.comm, model.gradients, held, self.replicas)
        self.moments = Moments(ctx, model.layout, config.moments, held.updated)
        self._calls: CapturedStep | None = None
        self._scaling = LossScaling(ctx, config) if config.precision == "f16" else None
        self._watch = Watch(ctx)
        self._uncaptured = None if capture else "capture is off"  # why no step of this trainer is captured
        self._eager_reason: str | None = None
        #: On a context that measures: of micro-batches that make the same calls, run the first alone.
        self.each_kind = False
        self._done = 0  # known here, without waiting for the device
        self._step = ctx.zeros((1,), "i32")  # updates, which is steps without those that were skipped
        self._lr = ctx.zeros((1,))
        self._norm = ctx.zeros((1,))
        self._clip = ctx.zeros((1,))

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        ctx: Context | None = None,
        *,
        comm: Comm | None = None,
        expert_parallel: int = 1,
    ) -> Trainer:
        """A trainer that continues where `save_checkpoint`, or a run, left off: to the same bits.

        Of a run the last checkpoint is taken. Without `ctx` it is on that of `comm`, else on the CPU, on a context of
        its own. Any number of ranks may continue what any other number saved, and so many of them share the experts
        out. Raises FormatError for a folder that holds no checkpoint.
        """
        from .adapter import open_checkpoint

        checkpoint = open_checkpoint(last_checkpoint(folder))
        if ctx is None:
            ctx = Context() if comm is None else comm.ctx
        return checkpoint.trainer(ctx, comm=comm, expert_parallel=expert_parallel)

    @one_thread
    def save_checkpoint(self, folder: str | os.PathLike[str], tokenizer: Tokenizer | None = None) -> None:
        """Writes model, moments, step and options, in one step, as a new folder, which `load` continues from.

        It is a folder as `MoETransformer.save` writes it, too. Of the data it says what a run would: `step` batches
        were read. FileExistsError when the folder is there already. Of several ranks all call it, with the same folder.
        """
        from .checkpoint import TrainingState, write_checkpoint

        position = self.step * self.config.batch_size
        base = self.model.base_record()
        state = TrainingState(self.step, position, 1, 0.0, self.config, None, self.loss_scaling, base)
        write_checkpoint(folder, self, state, tokenizer)

    def __repr__(self) -> str:
        return f"Trainer(step {self.step} of {self.config.steps}, {self.model!r})"

    @property
    def ctx(self) -> Context:
        """The context of the model."""
        return self.model.ctx

    @property
    def step(self) -> int:
        """Steps done, those that were skipped included."""
        return self._done

    @property
    def first_moments(self) -> ParameterArena | MomentShard | CodedMoments:
        """The running mean of the gradients; of several ranks, of the part that this one owns."""
        return self.moments.first

    @property
    def second_moments(self) -> ParameterArena | MomentShard | CodedMoments:
        """The running mean of their squares; of codes, its root."""
        return self.moments.second

    @property
    def loss_scaling(self) -> LossScalingState | None:
        """The loss scale and its counters, read from the device; None in another precision than f16."""
        return None if self._scaling is None else self._scaling.state

    @property
    def updates(self) -> int:
        """Steps that updated the parameters, read from the device."""
        return int(self._step)

    def counters(self) -> dict[str, Tensor]:
        """The numbers that the next step depends on, on the device, each of one element."""
        return {"updates": self._step, **({} if self._scaling is None else self._scaling.counters())}

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sent to others so far."""
        experts = self.model.experts
        comms = self.comm, None if self.backward_sums is None else self.backward_sums.comm
        return sum(comm.bytes_sent for comm in (*comms, experts) if comm is not None)

    @property
    def eager_reason(self) -> str | None:
        """Why the last step ran call by call; None when it was replayed, or there was none."""
        return self._eager_reason

    def rows(self) -> list[int]:
        """Which sequences of an update this rank gives to `train_step`, in this order: those of its micro-batches."""
        micro = self.config.micro_batch_size or self.config.batch_size
        starts = (number * micro for number in self.replicas.micro_batches(self.config.micro_batches))
        return [row for start in starts for row in range(start, min(start + micro, self.config.batch_size))]

    @one_thread
    def gather_parameters(self) -> None:
        """Brings the f32 parameters of all ranks to this one: with a 16-bit precision, a rank updates its own alone.
        All ranks call it. StateError where they share the experts out."""
        if self.model.experts is not None:
            raise self.model.experts.partial()
        with aborting(self.comm):  # there may be memory for all on another rank
            if self.model.make_room():
                self.forget_capture()  # whose calls update the old place
        if self.comm is not None:
            self.comm.move(self.model.parameters_in(range(self.model.layout.size)), self._held.weight_moves(4))
        self.model.whole = True

    @one_thread
    def gather_gradients(self) -> None:
        """The same for the gradients of the last step. StateError where they are partitioned, too."""
        if self.model.experts is not None:
            raise self.model.experts.partial()
        assert self.model.gradients is not None  # as __init__ found
        if isinstance(self.model.gradients, PartitionedGradients):
            raise StateError(51, "this rank keeps the gradients of the parameters that it updates alone")
        if self.comm is not None:
            self.comm.move(self.model.gradients.data, self._held.weight_moves(4))

    @one_thread
    def expert_counts(self) -> np.ndarray:
        """Slots that chose each expert in the last micro-batch of the last replica, [layers, experts], on all ranks."""
        if self.comm is None or not self.model.config.num_experts:
            return self.model.expert_counts()
        config, last = self.model.config, self.comm.ranks - 1
        counts = self.ctx.zeros((config.num_layers, config.num_experts), "i32")
        if self.comm.rank == last:
            counts.copy_(self.model.expert_counts())
        return self.comm.broadcast(counts, last).numpy()

    def left_out(self) -> Iterator[tuple[Callable[[], None], int]]:
        """What the last step left out with `each_kind`: calls, and how many times more a step makes them."""
        return iter(()) if self._calls is None else self._calls.left_out()

    def forget_capture(self) -> None:
        """Lets the captured step go, with its memory; the next two steps are as the first two."""
        self._calls = None

    @one_thread
    def restore(self, step: int, loss_scaling: LossScalingState | None = None) -> None:
        """Continues after `step`, with the `loss_scaling` of that moment when the precision is f16."""
        if (loss_scaling is None) != (self._scaling is None):
            raise ValueError("a loss-scaling state is required with precision f16, and allowed with no other")
        if self._scaling is not None and loss_scaling is not None:
            self._scaling.state = loss_scaling
        skipped = 0 if loss_scaling is None else loss_scaling.skipped
        self._watch.reset()
        self._step.copy_(np.array([step - skipped], np.int32))
        self._done = step

    @one_thread
    def train_step(self, input_ids: IdRows, targets: IdRows, document_ends: IdRows | None = None) -> StepResult:
        """One update from ids and targets [batch, length]; targets of -100 are ignored. Of several ranks each gives
        the sequences `rows` of a batch of the `batch_size`. `document_ends` as of `MoETransformer.forward_backward`.

        The gradient is that of the mean cross-entropy over all targets of the batch that count, however it is cut into
        micro-batches and shared out among ranks: one with few of them weighs little, one with none nothing. To it comes
        that of the load-balancing loss, which is the mean over micro-batches by their tokens, whatever counts.
        Raises ValueError when no target counts, TypeError for what is no whole number, and OutOfRangeError when an id
        is outside the vocabulary; the parameters then stay.
        """
        # On the host, before the device is given anything: an id that is wrong leaves everything as it was.
        with aborting(self.comm):
            inputs = token_ids(input_ids, self.model.config.vocab_size, "input_ids")
            wanted = token_ids(targets, self.model.config.vocab_size, "targets", IGNORE_INDEX)
            if inputs.shape != wanted.shape or inputs.ndim != 2:
                raise ValueError(
                    f"input_ids {list(inputs.shape)} and targets {list(wanted.shape)} must have the same shape, "
                    "[batch, length]"
                )
            ends = None if document_ends is None else token_ids(document_ends, 2, "document_ends")
            if ends is not None and ends.shape != inputs.shape:
                raise ValueError(
                    f"document_ends {list(ends.shape)} must have the shape {list(inputs.shape)}, as the ids"
                )
            if self.comm is not None and len(inputs) != len(self.rows()):
                raise ValueError(f"a batch of {len(inputs)}; of this rank it must have its rows, {len(self.rows())}")
        tokens = int(np.count_nonzero(wanted != IGNORE_INDEX))
        if self.comm is not None:
            tokens = self.comm.sum(tokens)
        if tokens == 0:
            raise ValueError("no target counts: all are -100")
        batch, length = inputs.shape
        if self.comm is not None:
            batch = self.config.batch_size
        reason = f"the first step of batches {list(inputs.shape)} runs call by call"
        with aborting(self.comm):
            kind = inputs.shape, ends is not None
            if self._calls is None or (self._calls.shape, self._calls.has_documents) != kind:
                if self._calls is not None and self._calls.captured:
                    reason = f"the batch is {list(inputs.shape)}, the captured step was for {list(self._calls.shape)}"
                micro = self.config.micro_batch_size or batch
                if batch <= micro * (self.replicas.total - 1):
                    raise ValueError(
                        f"a batch of {batch} has fewer micro-batches of {micro} than there are replicas, "
                        f"{self.replicas.total}"
                    )
                self._calls = None  # its memory first
                self._calls = CapturedStep(
                    self.model,
                    batch,
                    length,
                    micro,
                    self.replicas,
                    self.comm,
                    self._uncaptured is None,
                    self._scaling,
                    self.expert_gradients,
                    self.each_kind,
                    self.backward_sums,
                    ends is not None,
                )
            calls = self._calls
            calls.run(inputs, wanted, ends, tokens, self._update)
        self._done += 1
        if self.comm is not None and self.model.weights.data.dtype != "f32":
            self.model.whole = False
        if calls.failure is not None:
            self._uncaptured = f"the step could not be captured: {calls.failure}"
        self._eager_reason = None if calls.captured else self._uncaptured or reason
        values = calls.losses, calls.aux, calls.sizes, batch, self._norm, self._lr
        return StepResult(self._done, tokens, *values, self._skip, self._scaling)

    @property
    def _skip(self) -> Tensor:
        return self._watch.skip if self._scaling is None else self._scaling.skip

    def _update(self) -> None:
        config, model, scaling, skip = self.config, self.model, self._scaling, self._skip
        assert model.gradients is not None  # as __init__ found
        gradients = model.gradients.data
        if self.comm is None:
            kernels.grad_norm(gradients, norm=self._norm)
        else:
            if self.backward_sums is not None:
                self.backward_sums.finish()
            elif self.expert_gradients is not None:
                self.expert_gradients.reduce_dense(self.comm, self.replicas.aside, gradients)
            if self.expert_gradients is not None:
                self.expert_gradients.reduce(self.comm, gradients)
            self.comm.grad_norm(gradients, self._norm, self._held.shards)
        limit = math.inf if config.clip_norm is None else config.clip_norm
        kernels.grad_clip(self._norm, None if scaling is None else scaling.scale, scale=self._clip, max_norm=limit)
        if scaling is None:
            self._watch.update(self._norm)
        else:
            scaling.update(self._norm)
        advance_schedule(config, skip, self._step, self._lr)
        copied = model.weights.data.dtype != "f32"
        for number, own in enumerate(self.moments.own):
            self.moments.step(
                number,
                gradients.narrow(0, own.start, len(own)),
                self._lr,
                self._step,
                self._clip,
                skip,
                parameters=model.parameters_in(own),
                n_decay=min(max(model.layout.num_decayed - own.start, 0), len(own)),
                beta1=config.beta1,
                beta2=config.beta2,
                eps=config.eps,
                weight_decay=config.weight_decay,
                param_copy=model.weights.data.narrow(0, own.start, len(own)) if copied else None,
            )
        if self.comm is not None:
            self.comm.move(model.weights.data, self._weight_moves)


def check_alone(comm: Comm | None, expert_parallel: int = 1) -> None:
    """ValueError where several ranks are to train an adapter."""
    if expert_parallel != 1 or (comm is not None and comm.ranks > 1):
        raise ValueError(f"an adapter is trained by one rank; there are {1 if comm is None else comm.ranks}")


def advance_schedule(config: TrainConfig, skip: Tensor | None, step: Tensor, rate: Tensor) -> None:
    """Counts an update, unless it is skipped, and gives its rate."""
    warmup, total = config.schedule_steps
    kernels.lr_schedule(
        skip,
        step,
        lr=rate,
        warmup=warmup,
        total=total,
        max_lr=config.learning_rate,
        min_lr=config.learning_rate * config.min_rate_share,
    )
