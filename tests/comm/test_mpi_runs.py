"""Training under mpiexec: `nncuda train` whose ranks are killed, at random moments."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from small_models import TINY
from test_mpi import MPIEXEC, environment, started

import nncuda
from nncuda.formats import SafetensorsFile, write_shard
from nncuda.formats.atomic import TEMPORARY_PREFIX
from nncuda.train import Checkpoint, TrainConfig, TrainingRun, list_checkpoints

OPTIONS = {
    "steps": 100_000,
    "batch_size": 5,
    "micro_batch_size": 1,
    "replicas": 5,
    "sequence_length": 16,
    "warmup_steps": 5,
    "learning_rate": 0.001,
    "eval_every": 0,
    "save_every": 1,
    "keep_checkpoints": 2,
    "seed": 7,
}
KILLS = 200 if os.environ.get("NNCUDA_FAULTS") == "all" else 4


def children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return sorted(found)


def ranks_of(launcher: int) -> list[int]:
    return [rank for proxy in children(launcher) for rank in children(proxy)]


def write_job(folder: Path) -> list[str]:
    """The data and the options of a run; its arguments."""
    data = folder / "train.tokens"
    write_shard(data, [np.random.default_rng(1).integers(4, TINY.vocab_size, 1200)], TINY.vocab_size)
    tables = {"model": dataclasses.asdict(TINY), "train": OPTIONS}
    lines = [
        line
        for name, values in tables.items()
        for line in (
            f"[{name}]",
            *(f"{key} = {str(value).lower()}" for key, value in values.items() if value is not None),
        )
    ]
    (folder / "job.toml").write_text("\n".join(lines))
    return ["--config", str(folder / "job.toml"), "--data", str(data)]


def kill_one(folder: Path, arguments: list[str], chance: random.Random) -> int:
    """Starts or resumes the run on some number of ranks, of which some divide the experts, and kills one of them, while
    they start or work; how many have the experts together."""
    ranks = chance.randint(2, 5)
    experts = chance.choice([n for n in range(1, ranks + 1) if ranks % n == 0 and TINY.num_experts % n == 0])
    command = [sys.executable, "-m", "nncuda", "train", str(folder / "run"), "--threads", "1", *arguments]
    command += ["--expert-parallel", str(experts)]
    with subprocess.Popen(
        [str(MPIEXEC), "-n", str(ranks), *command],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as job:
        assert job.stdout is not None
        if chance.random() < 0.8:
            for line in job.stdout:
                if line.startswith('{"step": '):
                    break
            time.sleep(chance.uniform(0, 0.3))
        else:
            time.sleep(chance.uniform(0, 1.5))
        victims = ranks_of(job.pid)
        if victims:
            os.kill(chance.choice(victims), signal.SIGKILL)
        else:
            job.kill()  # before it has started any
        job.communicate(timeout=60)
    assert job.returncode != 0
    return experts


@started
def test_a_killed_rank_ends_the_job_and_another_number_goes_on(tmp_path: Path) -> None:
    """Each time nothing but whole checkpoints is there, from which training goes on, on another number of ranks, that
    may divide the experts; the end is that of a run on one rank that was never stopped."""
    arguments, chance = write_job(tmp_path), random.Random(7)
    folder, reached, leftovers, divided = tmp_path / "run", 0, 0, 0
    for _ in range(KILLS):
        resumed = (folder / "run.json").exists()
        divided += kill_one(tmp_path, ["--resume"] if resumed else arguments, chance) > 1
        leftovers += bool(list(folder.glob(f"checkpoints/{TEMPORARY_PREFIX}*")))
        found = list_checkpoints(folder / "checkpoints") if folder.exists() else []
        for checkpoint in found:
            state = Checkpoint(checkpoint).training
            assert state is not None and f"step-{state.step:08d}" == checkpoint.name
            files = [SafetensorsFile(checkpoint / f"{name}.safetensors") for name in ("optimizer", "model")]
            assert len(files[0]) == 2 * len(files[1])
        steps = [int(checkpoint.name[5:]) for checkpoint in found]
        assert max(steps, default=0) >= reached
        reached = max(steps, default=0)
    assert reached > 0 and 0 < divided < KILLS
    print(f"the experts were divided in {divided} of {KILLS} jobs")
    print(f"{leftovers} of {KILLS} kills came while a checkpoint was being written; the run reached step {reached}")

    with nncuda.Context(threads=2) as ctx:
        options = TrainConfig.from_dict({**OPTIONS, "save_every": reached})
        whole = TrainingRun.start(tmp_path / "whole", ctx, TINY, options, tmp_path / "train.tokens")
        for progress in whole.steps():
            if progress.step == reached:
                break
        for name in ("model.safetensors", "optimizer.safetensors"):
            expected, found_file = (
                folder / f"checkpoints/step-{reached:08d}" / name for folder in (tmp_path / "whole", folder)
            )
            assert found_file.read_bytes() == expected.read_bytes()
