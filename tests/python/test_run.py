"""The loop around training steps: going on with other options, being killed, metrics, records.

What the trainers of all languages do alike is in tests/parity: resuming to the bit, the checkpoints that are kept,
data that is cut or another, torn lines.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_models import TINY

import nncuda
from nncuda.formats import FormatError, SafetensorsFile, write_shard
from nncuda.formats.atomic import TEMPORARY_PREFIX
from nncuda.infer import generate
from nncuda.train import Checkpoint, TrainConfig, TrainingRun, list_checkpoints, read_metrics, resolve_checkpoint

OPTIONS = {
    "steps": 20,
    "batch_size": 4,
    "micro_batch_size": 3,
    "sequence_length": 16,
    "warmup_steps": 5,
    "learning_rate": 0.01,
    "eval_every": 5,
    "save_every": 5,
    "keep_checkpoints": 2,
    "seed": 7,
}


def write_data(folder: Path) -> tuple[Path, Path]:
    ids = np.random.default_rng(1).integers(4, TINY.vocab_size, 1500)
    paths = folder / "train.tokens", folder / "held-out.tokens"
    write_shard(paths[0], [ids[:1200]], TINY.vocab_size)
    write_shard(paths[1], [ids[1200:]], TINY.vocab_size)
    return paths


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, Path]:
    return write_data(tmp_path)


def start(folder: Path, ctx: nncuda.Context, data: tuple[Path, Path], **changes: object) -> TrainingRun:
    return TrainingRun.start(folder, ctx, TINY, TrainConfig.from_dict({**OPTIONS, **changes}), *data)


def tensors_of(checkpoint: Path) -> dict[str, bytes]:
    return {
        f"{file.name} {name}": np.asarray(array).tobytes()
        for file in sorted(checkpoint.glob("*.safetensors"))
        for name, array in SafetensorsFile(file).items()
    }


def test_generating_between_steps_changes_nothing(tmp_path: Path, ctx: nncuda.Context, data: tuple[Path, Path]) -> None:
    """The model may be looked at while it trains, as the demo does: the run goes on to the same bits."""
    start(tmp_path / "plain", ctx, data).run()
    watched = start(tmp_path / "watched", ctx, data)
    texts = {tuple(generate(watched.trainer.model, [1, 2, 3], 8)) for _ in watched.steps()}
    assert len(texts) > 1  # it saw the weights of the moment
    first, second = (tensors_of(resolve_checkpoint(tmp_path / name)) for name in ("plain", "watched"))
    assert first == second


def test_metrics_are_complete(tmp_path: Path, ctx: nncuda.Context, data: tuple[Path, Path]) -> None:
    start(tmp_path / "run", ctx, data, steps=6, eval_every=3).run()
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    steps = [record for record in records if "loss" in record]
    assert [record["step"] for record in steps] == [1, 2, 3, 4, 5, 6]
    assert [record["step"] for record in records if "held_out_loss" in record] == [3, 6]
    assert steps[-1]["tokens"] == 6 * 4 * 16
    shares = np.array([record["expert_shares"] for record in steps])
    assert shares.shape == (6, TINY.num_layers, TINY.num_experts)
    np.testing.assert_allclose(shares.sum(axis=2), 1, atol=TINY.num_experts * 5e-6)  # rounded to five places
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))


def test_resume_with_other_micro_batches_and_habits(
    tmp_path: Path, ctx: nncuda.Context, data: tuple[Path, Path]
) -> None:
    """What may change, changes, and is in the next checkpoints; recomputation changes no bit."""
    stopped = start(tmp_path / "run", ctx, data, log_every=4)
    for progress in stopped.steps():
        if progress.step == 7:
            stopped.stop()
    shutil.copytree(tmp_path / "run", tmp_path / "same")
    changes = {"micro_batch_size": 2, "eval_every": 0, "eval_batches": 1, "save_every": 6, "keep_checkpoints": 5,
               "log_every": 1, "max_loss": 30.0, "activation_checkpointing": 2, "recompute_experts": True}  # fmt: skip
    TrainingRun.resume(tmp_path / "run", ctx, *data, changes=changes).run()
    found = list_checkpoints(tmp_path / "run" / "checkpoints")
    assert [int(folder.name[5:]) for folder in found] == [5, 7, 12, 18, 20]
    state = Checkpoint(found[-1]).training
    assert state is not None and {name: getattr(state.train, name) for name in changes} == changes
    steps = [line["step"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if "loss" in line]
    assert steps == [4, *range(8, 21)]
    again = {"activation_checkpointing": 1, "log_every": 20}
    TrainingRun.resume(tmp_path / "same", ctx, *data, changes=again).run()
    whole = start(tmp_path / "whole", ctx, data)
    whole.run()
    finals = [tensors_of(resolve_checkpoint(tmp_path / name)) for name in ("run", "same", "whole")]
    assert finals[1] == finals[2] != finals[0]
    with pytest.raises(ValueError, match="goes on with the steps it has; it takes others of micro_batch_size"):
        TrainingRun.resume(tmp_path / "run", ctx, *data, changes={"steps": 30})
    with pytest.raises(ValueError, match=r"^log_every is 0; it must be a whole number, from 1 to 2147483647$"):
        TrainingRun.resume(tmp_path / "run", ctx, *data, changes={"log_every": 0})
    with pytest.raises(ValueError, match=r"^activation_checkpointing is 3; this model has 2 blocks$"):
        TrainingRun.resume(tmp_path / "run", ctx, *data, changes={"activation_checkpointing": 3})


def test_record_of_a_run(tmp_path: Path, ctx: nncuda.Context, data: tuple[Path, Path]) -> None:
    """run.json has what it takes to repeat the run, and other tokens than those are refused."""
    start(tmp_path / "run", ctx, data, steps=2, warmup_steps=1).run()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert list(record) == ["data", "held_out", "data_sha256", "held_out_sha256", "unigram_entropy", "program",
                            "library", "abi", "device", "model", "train"]  # fmt: skip
    for name, path in zip(("data", "held_out"), data, strict=True):
        assert record[name] == str(path) and record[f"{name}_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    options = {**OPTIONS, **record["train"], "steps": 2, "warmup_steps": 1}
    assert record["model"] == TINY.to_dict() and record["train"] == options
    assert record["program"] == f"nncuda {nncuda.__version__}" and record["device"].endswith(f"; {ctx.isa}")
    assert record["library"].startswith("nncuda 0") and record["abi"].split(".")[0] == "2"
    for number, path in enumerate(data):
        good = path.read_bytes()
        path.write_bytes(good[:-2] + bytes([good[-2] ^ 1, good[-1]]))
        there, here = (hashlib.sha256(content).hexdigest()[:12] for content in (good, path.read_bytes()))
        said = f"{path}: holds different tokens from those this run was started on (SHA-256 {there}… there, "
        said += f"{here}… here)"
        with pytest.raises(FormatError, match=re.escape(said)):
            TrainingRun.resume(tmp_path / "run", ctx, *data)
        if number == 1:
            TrainingRun.resume(tmp_path / "run", ctx, data[0])  # which evaluates no more
        path.write_bytes(good)
    for old in ({"data": record["data"], "held_out": record["held_out"]}, None):
        (tmp_path / "run" / "run.json").unlink()
        if old is not None:
            (tmp_path / "run" / "run.json").write_text(json.dumps(old))
        TrainingRun.resume(tmp_path / "run", ctx, *data)


def test_hash_of_several_shards(tmp_path: Path, ctx: nncuda.Context) -> None:
    """Their bytes one after the other, in the order of the names, in which they are read."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for name in ("b", "a"):
        write_shard(folder / f"{name}.tokens", [np.full(200, ord(name) % 8)], TINY.vocab_size)
    options = TrainConfig.from_dict({**OPTIONS, "steps": 1, "warmup_steps": 0})
    TrainingRun.start(tmp_path / "run", ctx, TINY, options, folder).run()
    content = (folder / "a.tokens").read_bytes() + (folder / "b.tokens").read_bytes()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["data_sha256"] == hashlib.sha256(content).hexdigest() and record["held_out_sha256"] is None


def test_no_room_for_a_checkpoint(tmp_path: Path, ctx: nncuda.Context, data: tuple[Path, Path]) -> None:
    """One error that names the checkpoint, nothing half written, and with room again the run goes on."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    run = start(tmp_path / "run", ctx, data, hash_every=0)  # the chain would be longer, too
    try:
        with pytest.raises(OSError, match="File too large") as error:
            for progress in run.steps():
                if progress.step == 7:  # of a checkpoint the weights are the first file that is longer
                    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "step-00000010/model.safetensors" in str(error.value)
    found = [entry.name for entry in (tmp_path / "run" / "checkpoints").iterdir()]
    assert found == ["step-00000005"]
    TrainingRun.resume(tmp_path / "run", ctx, *data).run()
    start(tmp_path / "whole", ctx, data).run()
    finals = [tensors_of(resolve_checkpoint(tmp_path / name)) for name in ("run", "whole")]
    assert finals[0] == finals[1]


# Imports once, then forks a victim for each line it reads, kills it when it has written so many checkpoints and so many
# seconds have passed since, and says so. Counting checkpoints first lets a slow machine make progress as well.
EXECUTIONER = """
import os, signal, sys, time, nncuda
from nncuda.train import TrainConfig, TrainingRun, list_checkpoints
from small_models import TINY

folder, data, options = sys.argv[1], sys.argv[2:4], eval(sys.argv[4])

def newest():
    return max([int(found.name[5:]) for found in list_checkpoints(folder + "/checkpoints")], default=0)

for line in sys.stdin:
    checkpoints, seconds = line.split()
    before = newest()
    ready, tell = os.pipe()
    victim = os.fork()
    if victim == 0:
        with nncuda.Context("cpu", threads=2) as ctx:
            if list_checkpoints(folder + "/checkpoints"):
                run = TrainingRun.resume(folder, ctx, *data)
            else:
                run = TrainingRun.start(folder, ctx, TINY, TrainConfig.from_dict(options), *data)
            os.write(tell, b"1")
            run.run()
        os._exit(1)
    os.close(tell)
    assert os.read(ready, 1) == b"1", "the victim died by itself"
    while newest() < before + int(checkpoints):
        time.sleep(0.001)
    time.sleep(float(seconds))
    os.kill(victim, signal.SIGKILL)
    _, status = os.waitpid(victim, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    os.close(ready)
    print("killed", flush=True)
"""


def test_killed_at_random_moments_it_always_continues(tmp_path: Path, data: tuple[Path, Path]) -> None:
    """kill -9 at random moments of a run that writes a checkpoint at every step, 50 times or, with NNCUDA_FAULTS=all,
    200: each time the folder opens, nothing but whole checkpoints is in it, and training goes on from the last."""
    options = {**OPTIONS, "steps": 100_000, "save_every": 1, "eval_every": 0}
    draw = random.Random(5)
    folder, reached = tmp_path / "run", 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    command = [sys.executable, "-c", EXECUTIONER, str(folder), *map(str, data), repr(options)]
    leftovers = 0
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for _ in range(200 if os.environ.get("NNCUDA_FAULTS") == "all" else 50):
            process.stdin.write(f"{draw.randrange(3)} {draw.uniform(0.0, 0.05)}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "killed\n"
            leftovers += bool(list(folder.glob(f"checkpoints/{TEMPORARY_PREFIX}*")))
            found = list_checkpoints(folder / "checkpoints")
            for checkpoint in found:
                state = Checkpoint(checkpoint).training
                assert state is not None and f"step-{state.step:08d}" == checkpoint.name
                assert state.data_position == state.step * OPTIONS["batch_size"]
                moments, weights = (
                    SafetensorsFile(checkpoint / f"{name}.safetensors") for name in ("optimizer", "model")
                )
                assert len(moments) == 2 * len(weights)
            steps = [int(checkpoint.name[5:]) for checkpoint in found]
            assert max(steps, default=0) >= reached
            reached = max(steps, default=0)
    assert process.returncode == 0
    assert reached > 20, "fewer steps than the victims were given time for"
    assert leftovers > 0, "no kill came while a checkpoint was being written"
    print(f"{leftovers} kills came while a checkpoint was being written; the run reached step {reached}")

    # What the killed processes came to equals a run that was never stopped.
    with nncuda.Context("cpu", threads=2) as ctx:
        whole = start(tmp_path / "whole", ctx, data, **{**options, "save_every": reached})
        for progress in whole.steps():
            if progress.step == reached:
                break
    name = f"step-{reached:08d}"
    assert tensors_of(folder / "checkpoints" / name) == tensors_of(tmp_path / "whole" / "checkpoints" / name)
