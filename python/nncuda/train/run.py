"""A training run: the loop of steps, evaluations, metrics and checkpoints in one folder."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TextIO

import numpy as np

from .. import kernels
from ..device import Comm, Context
from ..formats.atomic import remove_leftovers
from ..formats.errors import missing_file, told_of
from ..formats.regular import present
from ..formats.run_folder import list_checkpoints
from ..layers.expert_parallel import Round, Run
from ..models import MoEConfig
from ..tokenizer import Tokenizer
from ..tokenizer.carried import CarriedTokenizer
from .aborting import aborting
from .adapter import FrozenOrigin, open_checkpoint
from .chain import CHAIN_FILE, Chain, state_digests, state_names
from .checkpoint import Checkpoint, TrainingState, prune_checkpoints, save_checkpoint
from .config import CHANGEABLE, SCHEDULE, TrainConfig
from .data import Batch, TokenWindows, open_shards
from .divergence import check_convergence
from .extension import check_extension, extended, extension_text, record_extension
from .metrics import MetricsLog
from .origin import Origin, random_weights
from .record import check_digest, write_record
from .trainer import Trainer


@dataclass(frozen=True)
class Progress:
    """Where a run stands after a step. Losses, in nats per token, and skipped steps are those of the last report."""

    step: int
    loss: float
    held_out_loss: float | None
    tokens_per_second: float
    seconds: float
    skipped_steps: int = 0


class TrainingRun:
    """Trains in a folder: `run.json`, `checkpoints/`, `metrics.jsonl`, `chain.jsonl`, `tensorboard/`.

    The order of the data is a function of seed and position, and a checkpoint holds all that a step depends on, so a
    run that was stopped anywhere and taken up again passes through the same bits as one that was not.

    The ranks of a communicator make the same run, each with the same folder, and call the same methods; the first of
    them writes what one rank would. Any number of them may take it up again.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        trainer: Trainer,
        data: TokenWindows,
        held_out: TokenWindows | None = None,
        tokenizer: Tokenizer | CarriedTokenizer | None = None,
        position: int = 0,
        seconds: float = 0.0,
    ):
        for windows, name in ((data, "training"), (held_out, "held-out")):
            if windows is not None and windows.vocab_size != trainer.model.config.vocab_size:
                raise ValueError(
                    f"the {name} data has a vocabulary of {windows.vocab_size}, "
                    f"the model one of {trainer.model.config.vocab_size}"
                )
            if windows is not None and windows.has_documents and trainer.config.document_mask is not None:
                raise ValueError(
                    f"document_mask is {trainer.config.document_mask}, but the {name} data knows where its documents "
                    "end: leave it out"
                )
        self.folder = Path(folder)
        self.checkpoints = self.folder / "checkpoints"
        self.trainer = trainer
        self.data = data
        self.held_out = held_out
        self.tokenizer = tokenizer
        self.position = position
        self.seconds = seconds
        self.notice: str | None = None
        self._stop = False

    @classmethod
    def start(
        cls,
        folder: str | os.PathLike[str],
        ctx: Context,
        model: MoEConfig,
        train: TrainConfig,
        data: str | os.PathLike[str],
        held_out: str | os.PathLike[str] | None = None,
        tokenizer: Tokenizer | None = None,
        note: dict[str, object] | None = None,
        comm: Comm | None = None,
        expert_parallel: int = 1,
        origin: Origin | FrozenOrigin | None = None,
    ) -> TrainingRun:
        """A new run, with its `run.json`, to which `note` is added, on the ranks of `comm`, of which so many share the
        experts out. It begins with random weights, or at `origin`, whose tokenizer it takes unless one is given.

        Raises FileExistsError when the folder holds checkpoints already, ValueError when the steps end in the warm-up.
        """
        with aborting(comm):
            if list_checkpoints(Path(folder) / "checkpoints"):
                raise FileExistsError(f"{folder} already holds a run: resume it, or choose another folder")
            train.check_schedule()
            windows = _windows(data, train.sequence_length)
            rest = None if held_out is None else _windows(held_out, train.sequence_length)
            if train.lora_rank and not isinstance(origin, FrozenOrigin):
                raise ValueError(
                    f"lora_rank is {train.lora_rank}, but there is no model beside which an adapter is trained: give "
                    "--from"
                )
            if origin is None:
                trainer = random_weights(ctx, model, train, comm, expert_parallel)
            else:
                trainer = origin.trainer(ctx, model, train, comm, expert_parallel)
                note = {"from": origin.record(), **(note or {})}
            run = cls(folder, trainer, windows, rest, tokenizer or (None if origin is None else origin.tokenizer))
            run.notice = None if origin is None else origin.notice
            if run._first:
                evaluated = None if held_out is None or rest is None else (held_out, rest)
                write_record(folder, ctx, model, train, (data, windows), evaluated, note)
            return run

    @classmethod
    def resume(
        cls,
        folder: str | os.PathLike[str],
        ctx: Context,
        data: str | os.PathLike[str],
        held_out: str | os.PathLike[str] | None = None,
        admit: Callable[[MoEConfig, TrainConfig], None] | None = None,
        changes: Mapping[str, object] | None = None,
        comm: Comm | None = None,
        expert_parallel: int = 1,
    ) -> TrainingRun:
        """Resumes a run from its last checkpoint, with the options that it was started with, but for `changes`.

        `changes` are other values of the training options `CHANGEABLE`. `admit` is given the options when the files
        have been checked, and may refuse, by raising, before memory is taken.
        """
        with aborting(comm):
            return cls._take_up(folder, ctx, data, held_out, admit, changes, CHANGEABLE, comm, expert_parallel)

    @classmethod
    def extend(
        cls,
        folder: str | os.PathLike[str],
        ctx: Context,
        data: str | os.PathLike[str],
        held_out: str | os.PathLike[str] | None = None,
        admit: Callable[[MoEConfig, TrainConfig], None] | None = None,
        changes: Mapping[str, object] | None = None,
        comm: Comm | None = None,
        expert_parallel: int = 1,
    ) -> TrainingRun:
        """The same for more `steps` than it has, which may be done: `changes` has them, and may have other values of
        the options `SCHEDULE`. `run.json` records it; `notice` says what it does to the learning rate."""
        with aborting(comm):
            changeable = (*SCHEDULE, *CHANGEABLE)
            return cls._take_up(folder, ctx, data, held_out, admit, changes, changeable, comm, expert_parallel)

    @classmethod
    def _take_up(
        cls,
        folder: str | os.PathLike[str],
        ctx: Context,
        data: str | os.PathLike[str],
        held_out: str | os.PathLike[str] | None,
        admit: Callable[[MoEConfig, TrainConfig], None] | None,
        changes: Mapping[str, object] | None,
        changeable: tuple[str, ...],
        comm: Comm | None,
        expert_parallel: int,
    ) -> TrainingRun:
        for name in changes or {}:
            if name not in changeable:
                raise ValueError(f"a run goes on with the {name} it has; it takes others of {', '.join(changeable)}")
        root = Path(folder) / "checkpoints"
        found = list_checkpoints(root)
        if not found:
            raise missing_file(root, "holds no checkpoint to resume from")
        checkpoint = open_checkpoint(found[-1])
        state = checkpoint.training
        if state is None:
            assert isinstance(checkpoint, Checkpoint)
            raise checkpoint.untrainable()
        before = extended(folder, state.step, state.train)
        after = replace(before, **(changes or {}))  # type: ignore[arg-type]
        extends = changeable != CHANGEABLE
        if extends:
            check_extension(before, after)
        windows = _windows(data, state.train.sequence_length)
        if windows.windows != state.data_windows:
            raise ValueError(
                f"{data} holds {windows.windows} windows; this run was started on data with {state.data_windows}"
            )
        check_digest(folder, "data", data, windows)
        rest = None if held_out is None else _windows(held_out, state.train.sequence_length)
        if rest is not None and held_out is not None:
            check_digest(folder, "held_out", held_out, rest)
        trainer = checkpoint.trainer(ctx, admit, None if after == state.train else asdict(after), comm, expert_parallel)
        tokenizer = CarriedTokenizer.of(checkpoint.path) if isinstance(checkpoint, Checkpoint) else None
        run = cls(folder, trainer, windows, rest, tokenizer, state.data_position, state.seconds)
        if extends:
            if run._first:
                record_extension(folder, state.step, after)
            run.notice = extension_text(ctx, state.step, trainer.updates, before, after)
        return run

    @property
    def _first(self) -> bool:
        """Whether this rank writes the files of the run."""
        return self.trainer.comm is None or self.trainer.comm.rank == 0

    def stop(self) -> None:
        """Makes the loop end after the step that it is in, with a checkpoint: on all ranks, when one is told. May be
        called from any thread."""
        self._stop = True

    def run(self, report: Callable[[Progress], None] | None = None) -> Progress | None:
        """Trains until all steps are done or `stop` is called; returns the last progress, None if nothing was left."""
        last = None
        for last in self.steps():
            if report is not None:
                report(last)
        return last

    def steps(self, echo: TextIO | None = None) -> Iterator[Progress]:
        """Trains, giving the progress after each step. The lines of metrics.jsonl go to `echo` too, as they come, on
        the rank that writes them."""
        with aborting(self.trainer.comm):
            self._agree()
            yield from self._steps(echo)

    def _agree(self) -> None:
        """PeerError when ranks go on from another place, or on other data."""
        comm = self.trainer.comm
        if comm is not None:
            sources = [one for one in (self.data, self.held_out) if one is not None]
            comm.agree("training data", " ".join(f"{one.windows} {one.digest}" for one in sources))
            comm.agree("step", str(self.trainer.step))

    def _log(self, step: int, echo: TextIO | None) -> contextlib.AbstractContextManager[MetricsLog | None]:
        """The metrics from `step` on, for the rank that writes them; also makes the folder ready."""
        if not self._first:
            return contextlib.nullcontext()
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.checkpoints)
        return MetricsLog(self.folder, step, echo)

    def _chain(self, step: int) -> Chain | None:
        """The chain from `step` on, for the rank that writes it; all ranks call it, once the metrics are open."""
        trainer = self.trainer
        digests = state_digests(trainer) if trainer.config.hash_every else None
        if not self._first or (digests is None and not present(self.folder / CHAIN_FILE)):
            return None
        names = state_names(trainer.model.layout, trainer.config)
        chain = Chain(self.folder, step, self.data, trainer.config, names)
        if digests is not None:
            chain.begin(names, digests, self.position)
        return chain

    def _save(self, chain: Chain | None, held_out_loss: float | None = None, digests: str | None = None) -> None:
        """Saves a checkpoint, and enters it in the chain with the digests of the state, which it takes if need be."""
        if digests is None and self.trainer.config.hash_every:
            digests = state_digests(self.trainer)
        folder = self.save(held_out_loss)
        if chain is not None and digests is not None:
            chain.add_files(self.trainer.step, digests, folder)

    def _steps(self, echo: TextIO | None) -> Iterator[Progress]:
        config, ctx, comm = self.trainer.config, self.trainer.model.ctx, self.trainer.comm
        rows = None if comm is None else self.trainer.rows()
        step = self.trainer.step
        loss, held_out_loss, speed, saved = math.nan, None, 0.0, True
        timed_steps, timed_seconds, skipped_steps = 0, 0.0, 0
        with self._log(step, echo) as log:
            chain = self._chain(step)
            while step < config.steps:
                began = time.perf_counter()
                batch = self.data.batch(ctx, config.seed, self.position, config.batch_size, rows)
                result = self.trainer.train_step(*batch)
                step, self.position = result.step, self.position + config.batch_size
                last = step == config.steps
                hashed = config.hash_every > 0 and step % config.hash_every == 0
                reported = last or step % config.log_every == 0
                evaluated = self.held_out is not None and (
                    last or (config.eval_every > 0 and step % config.eval_every == 0)
                )
                saved = last or (config.save_every > 0 and step % config.save_every == 0)
                if reported:
                    loss = result.loss
                    shares = self._expert_shares()
                digests = state_digests(self.trainer) if hashed else None
                spent = time.perf_counter() - began
                self.seconds += spent
                timed_steps, timed_seconds = timed_steps + 1, timed_seconds + spent
                link = None if chain is None or digests is None else chain.add(step, self.position, digests)
                if reported:
                    speed = timed_steps * config.batch_size * config.sequence_length / timed_seconds
                    timed_steps, timed_seconds = 0, 0.0
                    skipped_steps = result.skipped_steps
                    record = {
                        "step": step,
                        "loss": loss,
                        "aux_loss": result.aux_loss,
                        "grad_norm": result.grad_norm,
                        "learning_rate": result.learning_rate,
                        "tokens": self.position * config.sequence_length,
                        "tokens_per_second": round(speed, 1),
                        "seconds": round(self.seconds, 3),
                        "bytes_peak": ctx.bytes_peak,
                    }
                    if self.trainer.model.config.num_experts:
                        record["expert_shares"] = shares
                    if result.loss_scale is not None:
                        record |= {"loss_scale": result.loss_scale, "skipped_steps": skipped_steps}
                    if link is not None:
                        record["hash"] = link
                    if log is not None:
                        log.write(_numbers(record))
                if reported or evaluated or saved:
                    check_convergence(self.trainer, result, self._batch_of)
                measured = None
                if evaluated:
                    measured = held_out_loss = self.evaluate(config.eval_batches)
                    if log is not None:
                        log.write(_numbers({"step": step, "held_out_loss": held_out_loss}))
                if saved:
                    self._save(chain, measured, digests)
                yield Progress(step, loss, held_out_loss, speed, self.seconds, skipped_steps)
                if self._stop if comm is None else comm.sum(self._stop):
                    break
            if not saved:
                check_convergence(self.trainer, result, self._batch_of)
                self._save(chain)

    def evaluate(self, batches: int = 0) -> float:
        """Mean cross-entropy over the held-out data, all of it or so many batches, in nats per token. Ranks share the
        batches out, and all get it."""
        if self.held_out is None:
            raise ValueError("this run has no held-out data")
        config, comm = self.trainer.config, self.trainer.comm
        model, size = self.trainer.model, config.micro_batch_size or config.batch_size
        with aborting(comm):
            parts = self.held_out.spread_indices(size, batches)
            found, tokens = np.zeros(len(parts), np.float32), 0
            ranks, rank = (1, 0) if comm is None else (comm.ranks, comm.rank)
            for first in range(0, len(parts), ranks):
                number = first + rank
                with self._evaluation_round(first, len(parts), size):
                    if number < len(parts):
                        found[number], count = model.evaluate(*self.held_out.take(parts[number]))
                        tokens += count
                    elif model.experts is not None:
                        model.serve_forward()
            sums = model.ctx.tensor(found)
            if comm is not None:
                comm.all_reduce(sums)
                tokens = comm.sum(tokens)
            return kernels.weighted_mean(sums, divisor=tokens).item()

    def _evaluation_round(self, first: int, parts: int, size: int) -> contextlib.AbstractContextManager[None]:
        """That in which the ranks evaluate the parts from `first` on, one each, of at most `size` sequences."""
        experts = self.trainer.model.experts
        if experts is None:
            return contextlib.nullcontext()
        present = range(min(experts.size, max(0, parts - first - experts.first)))
        tokens = size * self.trainer.config.sequence_length
        rows = experts.most_rows(self.trainer.model.config.experts_per_token, tokens)
        return experts.in_round(Round(rows, tuple(map(Run, present))))

    def save(self, held_out_loss: float | None = None) -> Path:
        """Writes a checkpoint of this moment and removes those that are not to be kept; returns its folder."""
        config = self.trainer.config
        state = TrainingState(
            self.trainer.step,
            self.position,
            self.data.windows,
            self.seconds,
            config,
            held_out_loss,
            self.trainer.loss_scaling,
            self.trainer.model.base_record(),
        )
        folder = save_checkpoint(self.checkpoints, self.trainer, state, self.tokenizer)
        if self._first:
            prune_checkpoints(self.checkpoints, config.keep_checkpoints)
        return folder

    def _batch_of(self, step: int) -> Batch:
        """The batch of a step that was done."""
        config = self.trainer.config
        position = self.position - (self.trainer.step - step + 1) * config.batch_size
        return self.data.batch(self.trainer.model.ctx, config.seed, position, config.batch_size)

    def _expert_shares(self) -> list[list[float]]:
        counts = self.trainer.expert_counts().astype(np.float64)
        return [[round(share, 5) for share in row] for row in (counts / counts.sum(axis=1, keepdims=True)).tolist()]


def _numbers(record: dict[str, object]) -> dict[str, object]:
    """A record with null for what is no number: a step that was skipped has no learning rate, and perhaps no loss."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in record.items()
    }


def _windows(source: str | os.PathLike[str], length: int) -> TokenWindows:
    shards = open_shards(source)
    with told_of(source):
        return TokenWindows(shards, length)
