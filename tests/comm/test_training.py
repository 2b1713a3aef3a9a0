"""Training on several ranks: checkpoints, metrics and what a step tells are those of one rank, to the bit."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import job, outcomes
from small_models import TINY, random_batch

import nncuda
from nncuda.formats import write_documents, write_shard
from nncuda.formats.safetensors import SafetensorsLayout
from nncuda.models import MoEConfig, MoETransformer, ParameterLayout
from nncuda.train import Checkpoint, TrainConfig, Trainer, TrainingRun, list_checkpoints, read_metrics
from nncuda.train.chain import CHAIN_FILE
from nncuda.train.replicas import one_micro_batch_each

RANKS = [1, 2, 3, 4, 5, 8]
LENGTH = 12
#: Nothing divides anything and experts drop tokens. Parameters are shared out in four pieces, so of eight ranks some
#: have none; those of TINY are one piece.
RAGGED = dataclasses.replace(
    TINY, vocab_size=211, hidden_size=40, num_experts=5, ffn_size=61, capacity_factor=0.9, init_std=0.1
)
OPTIONS: dict[str, Any] = {
    "steps": 6, "warmup_steps": 2, "batch_size": 8, "micro_batch_size": 1, "replicas": 8, "sequence_length": LENGTH,
    "learning_rate": 0.01, "clip_norm": 0.5, "eval_every": 2, "eval_batches": 5, "save_every": 2, "keep_checkpoints": 9,
    "hash_every": 2, "seed": 7,
}  # fmt: skip
#: Models and options that are trained by all numbers of ranks.
CASES: dict[str, tuple[MoEConfig, dict[str, Any]]] = {
    "f32": (RAGGED, {}),
    "bf16, moments in bf16": (RAGGED, {"precision": "bf16", "moments": "bf16"}),
    "f16, moments in 8 bits": (RAGGED, {"precision": "f16", "moments": "f8", "loss_scale": 2.0**24}),  # which overflows
    "f32, moments in 8 bits": (RAGGED, {"moments": "f8"}),
    "accumulated": (RAGGED, {"batch_size": 21, "micro_batch_size": 2}),
    "recomputed": (RAGGED, {"activation_checkpointing": 2, "recompute_experts": True, "precision": "bf16"}),
    "one piece": (TINY, {"precision": "bf16", "clip_norm": None}),
    "sums in bf16": (RAGGED, {"reduce_dtype": "bf16", "batch_size": 9}),
    "sums in f16": (RAGGED, {"precision": "f16", "reduce_dtype": "f16", "loss_scale": 2.0**24}),
}


def options(**changes: Any) -> TrainConfig:
    return TrainConfig.from_dict({**OPTIONS, **changes})


def share(comm: nncuda.Comm | None, trainer: Trainer, batch: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
    """The rows of a batch that this rank takes."""
    return [ids if comm is None or comm.ranks == 1 else ids[trainer.rows()] for ids in batch]


def trained(ctx: nncuda.Context, comm: nncuda.Comm | None, config: MoEConfig, train: TrainConfig, capture: bool) -> Any:
    """What four steps tell, and the parameters behind them. Where steps are captured, the f32 parameters of a model in
    16 bits are one rank's each from the beginning, and the gradients of a rank that has one micro-batch."""
    model = MoETransformer(
        ctx,
        config,
        seed=2,
        precision=train.precision,
        comm=comm if capture else None,
        partition_gradients=capture and comm is not None and comm.ranks > 1 and one_micro_batch_each(train, comm.ranks),
    )
    trainer = Trainer(model, train, capture=capture, comm=comm)
    told = []
    for seed in range(4):
        batch = random_batch(config, train.batch_size, LENGTH, seed)
        batch[1][0, :3] = -100  # so that ranks have other numbers of targets
        done = trainer.train_step(*share(comm, trainer, batch))
        values = done.step, done.tokens, done.loss, done.aux_loss, done.grad_norm, done.skipped, done.loss_scale
        told.append(repr(values))  # in which NaN is NaN
        told.append(trainer.expert_counts().tolist())
    assert trainer.eager_reason is None or not capture
    trainer.gather_parameters()
    return told, model.parameters.data.numpy().tobytes(), model.weights.data.numpy().tobytes()


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", CASES)
def test_steps_have_the_bits_of_one_rank(name: str, ranks: int) -> None:
    config, changes = CASES[name]
    train = options(**changes)
    (expected,) = job(1, lambda comm: trained(comm.ctx, None, config, train, capture=False))
    for capture in (False, True):
        found = job(ranks, lambda comm, capture=capture: trained(comm.ctx, comm, config, train, capture))
        assert all(one == expected for one in found), capture


def test_several_replicas_a_rank() -> None:
    """Numbers of replicas that nothing divides, and every number of ranks for them."""
    for replicas in (3, 5, 7):
        train = options(batch_size=7, replicas=replicas)
        (expected,) = job(1, lambda comm, train=train: trained(comm.ctx, None, TINY, train, capture=True))
        for ranks in range(2, replicas + 1):
            found = job(ranks, lambda comm, train=train: trained(comm.ctx, comm, TINY, train, True))
            assert all(one == expected for one in found), (replicas, ranks)


def write_data(folder: Path, config: MoEConfig) -> tuple[Path, Path]:
    ids = np.random.default_rng(1).integers(4, config.vocab_size, 1500)
    paths = folder / "train.tokens", folder / "held-out.tokens"
    write_shard(paths[0], [ids[:1200]], config.vocab_size)
    write_shard(paths[1], [ids[1200:]], config.vocab_size)
    return paths


def run(
    folder: Path, ranks: int, config: MoEConfig, train: TrainConfig, stop: int = 0, expert_parallel: int = 1
) -> None:
    """A run on so many ranks; the last of them is told to stop after that step. It resumes what is there."""
    shared: dict[str, Any] = {"expert_parallel": expert_parallel}

    def work(comm: nncuda.Comm) -> None:
        data = folder.parent / "train.tokens", folder.parent / "held-out.tokens"
        if (folder / "run.json").exists():
            training = TrainingRun.resume(folder, comm.ctx, *data, comm=comm, **shared)
        else:
            training = TrainingRun.start(folder, comm.ctx, config, train, *data, comm=comm, **shared)
        for progress in training.steps():
            if progress.step == stop and comm.rank == comm.ranks - 1:
                training.stop()

    job(ranks, work)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of what a run left, the time and memory that it took aside."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and "tensorboard" not in path.parts):
        content = path.read_bytes()
        if path.name == "training.json":
            content = json.dumps({**json.loads(content), "seconds": 0}).encode()
        if path.name == "metrics.jsonl":
            own = ("seconds", "tokens_per_second", "bytes_peak")
            content = "".join(
                str({k: v for k, v in line.items() if k not in own}) for line in read_metrics(path)
            ).encode()
        if path.name == CHAIN_FILE:  # its seals are of what was measured, too
            lines = [json.loads(line) for line in content.splitlines()]
            content = "".join(
                f"{line['step']} {line['inputs']} {line['hash']} " for line in lines if "hash" in line
            ).encode()
        found[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return found


@pytest.mark.parametrize("name", CASES)
def test_runs_have_the_files_of_one_rank(tmp_path: Path, name: str) -> None:
    config, changes = CASES[name]
    train = options(**changes)
    write_data(tmp_path, config)
    run(tmp_path / "1", 1, config, train)
    expected = digests(tmp_path / "1")
    assert len(expected) == 3 + 3 * 4  # run.json and metrics; of three checkpoints four files each
    for ranks in RANKS[1:]:
        run(tmp_path / str(ranks), ranks, config, train)
        assert digests(tmp_path / str(ranks)) == expected, ranks


def test_a_run_may_change_its_ranks(tmp_path: Path) -> None:
    """At three places, one of them a step that no checkpoint was due at: its checkpoint is one more."""
    for name in ("bf16, moments in bf16", "f16, moments in 8 bits"):
        config, changes = CASES[name]
        folder, train = tmp_path / name, options(steps=8, **changes)
        folder.mkdir()
        write_data(folder, config)
        run(folder / "one", 1, config, train)
        for ranks, stop in ((3, 2), (8, 5), (1, 6), (5, 0)):
            run(folder / "several", ranks, config, train, stop)
        found = digests(folder / "several")
        extra = [path for path in found if "step-00000005" in path]
        assert len(extra) == 4
        assert {path: digest for path, digest in found.items() if path not in extra} == digests(folder / "one")


def errors_of(found: list[Any]) -> list[str]:
    assert all(isinstance(one, Exception) for one in found), found
    return [f"{type(one).__name__} {one}" for one in found]


def test_what_ranks_must_have_alike(tmp_path: Path) -> None:
    data = write_data(tmp_path, TINY)
    other = tmp_path / "other.tokens"
    write_shard(other, [np.arange(300) % TINY.vocab_size], TINY.vocab_size)

    def started(train: TrainConfig, source: Path, folder: Path) -> Any:
        def work(comm: nncuda.Comm) -> None:
            mine = comm.rank == 1
            config = train if mine else options()
            paths = (source if mine else data[0]), data[1]
            TrainingRun.start(folder, comm.ctx, TINY, config, *paths, comm=comm).run()

        return work

    for number, (train, source, what) in enumerate(
        [(options(clip_norm=0.25), data[0], "configuration"), (options(), other, "training data")]
    ):
        folder = tmp_path / f"run {number}"
        told = errors_of(outcomes(3, started(train, source, folder)))
        assert all(one.startswith("PeerError") and what in one for one in told), told
        assert list_checkpoints(folder / "checkpoints") == []

    def too_many(comm: nncuda.Comm) -> None:
        Trainer(MoETransformer(comm.ctx, TINY), options(replicas=2), comm=comm)

    assert (
        errors_of(outcomes(3, too_many))
        == ["ValueError 3 ranks share out replicas: replicas must be at least 3, and is 2"] * 3
    )

    def elsewhere(comm: nncuda.Comm) -> None:
        folder = tmp_path / f"run of {comm.rank}"
        TrainingRun.start(folder, comm.ctx, TINY, options(steps=3), *data).run()
        if comm.rank == 1:
            shutil.rmtree(folder / "checkpoints" / "step-00000003")
        TrainingRun.resume(folder, comm.ctx, *data, comm=comm).run()

    told = errors_of(outcomes(2, elsewhere))
    assert all(one.startswith("PeerError") and "step" in one for one in told), told


def test_a_rank_that_fails_ends_the_job(tmp_path: Path) -> None:
    """With its sentence on all ranks, and the last checkpoint in its place."""
    write_data(tmp_path, RAGGED)

    def work(comm: nncuda.Comm) -> None:
        data = tmp_path / "train.tokens", tmp_path / "held-out.tokens"
        training = TrainingRun.start(tmp_path / "run", comm.ctx, RAGGED, options(), *data, comm=comm)
        for progress in training.steps():
            if progress.step == 3 and comm.rank == 2:
                training.data.take = None  # type: ignore[method-assign]

    told = errors_of(outcomes(4, work))
    assert told[2] == "TypeError 'NoneType' object is not callable"
    assert all(told[rank].startswith("PeerError") and "rank 2: 'NoneType' object" in told[rank] for rank in (0, 1, 3))
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000002"]
    run(tmp_path / "run", 3, RAGGED, options())
    run(tmp_path / "whole", 1, RAGGED, options())
    assert digests(tmp_path / "run") == digests(tmp_path / "whole")


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_rank_that_cannot_write_leaves_the_last_checkpoint(
    tmp_path: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path, RAGGED)
    write, full = SafetensorsLayout.write, threading.local()

    def write_or_fail(layout: SafetensorsLayout, path: Path, parts: Any) -> None:
        if getattr(full, "disk", False):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(layout, path, parts)

    monkeypatch.setattr(SafetensorsLayout, "write", write_or_fail)

    def work(comm: nncuda.Comm) -> None:
        data = tmp_path / "train.tokens", tmp_path / "held-out.tokens"
        training = TrainingRun.start(tmp_path / "run", comm.ctx, RAGGED, options(), *data, comm=comm)
        for progress in training.steps():
            full.disk = comm.rank == failing and progress.step == 3

    told = errors_of(outcomes(3, work))
    for rank, one in enumerate(told):
        assert "No space left on device" in one
        assert one.startswith("OSError" if rank == failing else "PeerError")
    (left,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert left.name == "step-00000002" and Checkpoint(left).training is not None


def test_rows_are_checked() -> None:
    """A batch that is not the rank's own ends the job; one with no target that counts is refused by all, who go on."""

    def work(comm: nncuda.Comm, wrong: bool) -> Any:
        trainer = Trainer(MoETransformer(comm.ctx, TINY, seed=2), options(), comm=comm)
        ids, targets = random_batch(TINY, 8, LENGTH)
        with pytest.raises(ValueError, match="no target counts"):
            trainer.train_step(ids[trainer.rows()], np.full_like(targets[trainer.rows()], -100))
        own = ids[trainer.rows()]
        if wrong and comm.rank == 1:
            own = ids
        return trainer.train_step(own, own).loss

    assert len(set(job(3, lambda comm: work(comm, False)))) == 1
    told = errors_of(outcomes(3, lambda comm: work(comm, True)))
    assert told[1] == "ValueError a batch of 8; of this rank it must have its rows, 3"
    assert all("rank 1: a batch of 8" in told[rank] for rank in (0, 2))


def test_parameters_of_several_ranks(tmp_path: Path) -> None:
    """In 16 bits a rank has its own part of the f32 parameters, and says so before it saves or gives others."""

    def work(comm: nncuda.Comm) -> list[str]:
        train = options(precision="bf16")
        model = MoETransformer(comm.ctx, RAGGED, seed=2, precision="bf16", comm=comm)
        trainer = Trainer(model, train, comm=comm)
        first = np.concatenate([model.parameters_in(part).numpy() for part in trainer.moments.own] or [[]])
        trainer.gather_parameters()  # of which a whole model has the same
        whole = MoETransformer(comm.ctx, RAGGED, seed=2, precision="bf16")
        assert model.parameters.data.numpy().tobytes() == whole.parameters.data.numpy().tobytes()
        assert first.tobytes() == b"".join(whole.parameters_in(own).numpy().tobytes() for own in trainer.moments.own)
        trainer.train_step(*share(comm, trainer, random_batch(RAGGED, 8, LENGTH)))
        for use in (model.state_dict, lambda: model.save(tmp_path / f"model {comm.rank}")):
            with pytest.raises(nncuda.errors.StateError, match="gather_parameters of its trainer brings all"):
                use()
        trainer.save_checkpoint(tmp_path / "saved")
        again = Trainer.load(tmp_path / "saved", comm=comm)
        with pytest.raises(nncuda.errors.StateError, match="gather_parameters of its trainer brings all"):
            again.model.state_dict()
        parts = [(name, first, part.numpy().tobytes()) for name, first, part in trainer.moments.parts()]
        assert parts == [(name, first, part.numpy().tobytes()) for name, first, part in again.moments.parts()]
        trainer.gather_parameters()
        model.save(tmp_path / f"model {comm.rank}")
        again.gather_parameters()
        assert again.model.parameters.data.numpy().tobytes() == model.parameters.data.numpy().tobytes()
        return [path.name for path in sorted(tmp_path.glob(f"model {comm.rank}/*"))]

    assert job(3, work) == [["config.json", "model.safetensors"]] * 3
    assert not list(tmp_path.glob(".partial-*"))


def test_f32_parameters_are_on_one_rank() -> None:
    """Memory for them is there for what a rank updates; `gather_parameters` takes more, and training goes on there."""

    def work(comm: nncuda.Comm, gather: bool) -> tuple[int, int, int, bytes]:
        train = options(precision="bf16")
        before = comm.ctx.bytes_used
        model = MoETransformer(comm.ctx, RAGGED, seed=2, precision="bf16", comm=comm)
        used, kept = comm.ctx.bytes_used - before, model.master_bytes
        trainer = Trainer(model, train, comm=comm)
        for seed in range(5):
            trainer.train_step(*share(comm, trainer, random_batch(RAGGED, 8, LENGTH, seed)))
            if gather and seed in (0, 3):  # after a step call by call, and after one that was replayed
                trainer.gather_parameters()
                assert model.master_bytes == 4 * model.layout.size
        own = b"".join(model.parameters_in(part).numpy().tobytes() for part in trainer.moments.own)
        return used, kept, model.layout.size, own

    kept, gathered = (job(4, lambda comm, gather=gather: work(comm, gather)) for gather in (False, True))
    assert [one[3] for one in kept] == [one[3] for one in gathered]
    size = kept[0][2]
    assert sum(masters for _, masters, *_ in kept) == 4 * size
    for used, masters, *_ in kept:
        assert 0 <= used - (4 + 2) * size - masters < 3 * 4096
    assert len(b"".join(one[3] for one in kept)) == 4 * size

    def elsewhere(comm: nncuda.Comm) -> None:
        model = MoETransformer(comm.ctx, TINY, precision="bf16", comm=comm)
        with pytest.raises(ValueError, match="parameters must be those that train it"):
            Trainer(model, options(precision="bf16"))

    job(2, elsewhere)


def test_a_rank_without_room_for_the_parameters_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others learn why, and do not wait for it."""

    def no_room() -> bool:
        raise MemoryError("no room")

    def work(comm: nncuda.Comm) -> None:
        model = MoETransformer(comm.ctx, RAGGED, precision="bf16", comm=comm)
        trainer = Trainer(model, options(precision="bf16"), comm=comm)
        if comm.rank == 1:
            monkeypatch.setattr(model, "make_room", no_room)
        trainer.gather_parameters()

    found = outcomes(3, work)
    assert isinstance(found[1], MemoryError)
    for error in found[::2]:
        assert isinstance(error, nncuda.PeerError) and "rank 1: no room" in str(error)


def test_sums_in_16_bits_are_half_the_bytes() -> None:
    """Other bits than those of sums in f32, and that many fewer bytes."""

    def work(comm: nncuda.Comm, kind: str) -> tuple[bytes, int]:
        model = MoETransformer(comm.ctx, RAGGED, seed=2)
        trainer = Trainer(model, options(reduce_dtype=kind), comm=comm)
        before = trainer.bytes_sent
        trainer.train_step(*share(comm, trainer, random_batch(RAGGED, 8, LENGTH)))
        return model.parameters.data.numpy().tobytes(), trainer.bytes_sent - before

    size = ParameterLayout(RAGGED).size
    exact, rounded = (job(4, lambda comm, kind=kind: work(comm, kind)) for kind in ("f32", "bf16"))
    assert exact[0][0] != rounded[0][0]
    saved = sum(one[1] for one in exact) - sum(one[1] for one in rounded)
    assert saved == 3 * 2 * size  # of each element three of four ranks send a sum


@pytest.mark.parametrize("changes", [{"max_loss": 0.5}, {"learning_rate": 1e30, "clip_norm": None}])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_divergence_has_one_sentence(tmp_path: Path, precision: str, changes: dict[str, Any]) -> None:
    """That of one rank, which every rank finds: where it began, and the largest gradient, which each has a part of."""
    data = write_data(tmp_path, RAGGED)

    def work(comm: nncuda.Comm) -> None:
        train = options(precision=precision, **changes)
        folder = tmp_path / f"run of {comm.ranks}"
        TrainingRun.start(folder, comm.ctx, RAGGED, train, *data, comm=comm).run()

    (alone,) = errors_of(outcomes(1, work))
    assert alone.startswith("DivergedError the loss is")
    assert errors_of(outcomes(3, work)) == [alone] * 3


def test_packed_documents_on_ranks(tmp_path: Path) -> None:
    """Of whose targets some count: some micro-batches, and ranks, have few."""
    draw = np.random.default_rng(3)
    for name, count in (("train", 60), ("held-out", 20)):
        lengths = draw.integers(2, 2 * LENGTH, count)
        documents = [(draw.integers(4, TINY.vocab_size, n), np.arange(n) >= n - 1 - n // 4) for n in lengths]
        write_documents(tmp_path / f"{name}.tokens", documents, TINY.vocab_size)
    for ranks in (1, 3):
        run(tmp_path / str(ranks), ranks, TINY, options(steps=4))
    assert digests(tmp_path / "1") == digests(tmp_path / "3")
