"""`nncuda train` on ranks that mpiexec starts: the files of one rank, one of them talks, none waits in vain."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_models import TINY
from test_mpi import MPIEXEC, environment, pytestmark, started  # noqa: F401  # pytestmark is for this file, too
from test_mpi_runs import ranks_of
from test_training import digests, write_data

from nncuda.cli.ranks import local_device
from nncuda.formats.run_folder import list_checkpoints
from nncuda.train import Checkpoint

NNCUDA = Path(sys.prefix) / "bin/nncuda"
TRAIN = {
    "steps": 6, "warmup_steps": 2, "batch_size": 8, "micro_batch_size": 1, "replicas": 8, "sequence_length": 12,
    "learning_rate": 0.01, "eval_every": 2, "save_every": 2, "keep_checkpoints": 9,
}  # fmt: skip


def write_config(folder: Path, **changes: object) -> Path:
    """Data and a file of options for `nncuda train --config`."""
    tables = {"model": TINY.to_dict(), "train": {**TRAIN, **changes}, "data": {}}
    for name, path in zip(("data", "held_out"), write_data(folder, TINY), strict=True):
        tables["data"][name] = str(path)
    lines = [
        f"[{table}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in of.items()) for table, of in tables.items()
    ]
    (folder / "options.toml").write_text("\n".join(lines).replace("null", '"none"'))
    return folder / "options.toml"


def command(ranks: int, run: Path, *flags: object, others: tuple[object, ...] | None = None) -> list[str]:
    """The command of a job; with `others`, its last rank has these flags."""
    train = [NNCUDA, "train", run, "--threads", 1]
    if not ranks:
        return list(map(str, [*train, *flags]))
    groups = [*train, *flags] if others is None else [*train, *flags, ":", "-n", 1, *train, *others]
    return list(map(str, [MPIEXEC, "-n", ranks - (others is not None), *groups]))


def train(ranks: int, run: Path, *flags: object, **options: object) -> subprocess.CompletedProcess[str]:
    """A job that came to its end; of no ranks, the command alone."""
    line = command(ranks, run, *flags, **options)  # type: ignore[arg-type]
    return subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=120)


@contextlib.contextmanager
def amid_steps(ranks: int, run: Path, *flags: object) -> Iterator[subprocess.Popen[str]]:
    """A job that has told of its first steps and goes on."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command(ranks, run, *flags), env=environment(), **pipes) as job:
        assert job.stdout is not None
        for _ in range(5):
            job.stdout.readline()
        yield job


@started
def test_files_and_words_of_a_run(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    alone = train(0, tmp_path / "0", "--config", config)
    assert alone.returncode == 0
    for ranks in (1, 3, 8):
        folder = tmp_path / str(ranks)
        done = train(ranks, folder, "--config", config)
        assert (done.returncode, done.stderr) == (0, alone.stderr)
        assert done.stdout == (folder / "metrics.jsonl").read_text()
        assert digests(folder) == digests(tmp_path / "0")
    logged = train(3, tmp_path / "logged", "--config", config, "--log-ranks", "--steps", 2, "--warmup-steps", 1)
    told = sorted(line.partition(",")[0] for line in logged.stderr.splitlines() if line.startswith("rank "))
    assert told == [f"rank {rank}: step {step}" for rank in (1, 2) for step in (1, 2)]
    by_hand = train(0, tmp_path / "self", "--config", config, "--transport", "self")
    assert by_hand.returncode == 0 and digests(tmp_path / "self") == digests(tmp_path / "0")


@started
def test_a_run_that_is_stopped_goes_on_with_other_ranks(tmp_path: Path) -> None:
    """SIGTERM to one of them stops them all, with a checkpoint."""
    config = write_config(tmp_path, steps=200, save_every=0, eval_every=0)
    whole = train(0, tmp_path / "whole", "--config", config)
    with amid_steps(4, tmp_path / "run", "--config", config) as job:
        os.kill(random.Random(1).choice(ranks_of(job.pid)), signal.SIGTERM)
        _, told = job.communicate(timeout=60)
    assert (whole.returncode, job.returncode) == (0, 0)
    assert f"stopped after step {last(tmp_path / 'run')} of 200; --resume continues from there" in told
    refused = train(3, tmp_path / "run", "--resume", "--replicas", 4)
    assert refused.returncode == 2 and "leave out --replicas" in refused.stderr
    assert train(3, tmp_path / "run", "--resume").returncode == 0
    found, extra = digests(tmp_path / "run"), f"step-{last(tmp_path / 'run'):08d}"
    assert {path: digest for path, digest in found.items() if extra in path or "/" not in path} == digests(
        tmp_path / "whole"
    )


@started
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--clip-norm", 0.25), "the configuration of rank 2"),
        (("--replicas", 9), "replicas is 9; an update of batch_size 8 in micro-batches of 1 has 8"),
        (("--data", "/absent.tokens"), "'/absent.tokens' does not exist"),
    ],
)
def test_a_rank_with_other_options(tmp_path: Path, flags: tuple[object, ...], sentence: str) -> None:
    config = write_config(tmp_path)
    done = train(
        3,
        tmp_path / "run",
        "--config",
        config,
        others=("--config", config, *flags),
    )
    assert done.returncode != 0
    assert sentence in done.stderr
    assert not list_checkpoints(tmp_path / "run" / "checkpoints")


@started
def test_ranks_that_share_the_experts_out(tmp_path: Path) -> None:
    """They leave the files of one rank, whichever they are; --resume may have others."""
    config = write_config(tmp_path)
    alone = train(0, tmp_path / "0", "--config", config)
    done = train(4, tmp_path / "4", "--config", config, "--expert-parallel", 4)
    assert (done.returncode, done.stderr) == (0, alone.stderr)
    assert digests(tmp_path / "4") == digests(tmp_path / "0")
    for name in ("step-00000004", "step-00000006"):
        shutil.rmtree(tmp_path / "4" / "checkpoints" / name)
    assert train(4, tmp_path / "4", "--resume", "--expert-parallel", 2).returncode == 0
    assert digests(tmp_path / "4") == digests(tmp_path / "0")
    refused = train(3, tmp_path / "3", "--config", config, "--expert-parallel", 3)
    assert refused.returncode != 0
    assert "expert_parallel is 3; it must divide the 3 ranks and the 4 experts" in refused.stderr
    differ = train(4, tmp_path / "differ", "--config", config, others=("--config", config, "--expert-parallel", 2))
    assert differ.returncode != 0 and "the expert parallel of rank 3 (2) is not that of rank 0 (1)" in differ.stderr


@started
def test_more_ranks_than_replicas(tmp_path: Path) -> None:
    done = train(3, tmp_path / "run", "--config", write_config(tmp_path, replicas=2))
    assert done.returncode != 0 and "3 ranks share out replicas: replicas must be at least 3, and is 2" in done.stderr


@started
def test_a_rank_that_cannot_write(tmp_path: Path) -> None:
    """Its disk is as good as full from some moment on: the job ends as it says, and the last checkpoint stands."""
    config = write_config(tmp_path, steps=100_000, save_every=1, eval_every=0)
    with amid_steps(3, tmp_path / "run", "--config", config) as job:
        (owner,) = (rank for rank in ranks_of(job.pid) if b"PMI_RANK=2\0" in Path(f"/proc/{rank}/environ").read_bytes())
        resource.prlimit(owner, resource.RLIMIT_FSIZE, (4096, 4096))  # the one that has the moments of so small a model
        _, told = job.communicate(timeout=60)
    assert job.returncode != 0
    assert (
        len(
            re.findall(
                r"Error: (?:nncuda_comm_\w+: rank 2: )?/.*/(?:model|optimizer)\.safetensors: File too large", told
            )
        )
        == 3
    )
    assert last(tmp_path / "run") >= 4
    assert not list((tmp_path / "run" / "checkpoints").glob(".partial-*"))
    Checkpoint(list_checkpoints(tmp_path / "run" / "checkpoints")[-1])


def test_a_gpu_without_a_number_is_that_of_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun numbers the ranks of a machine."""
    assert local_device("cuda") == "cuda"
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert [local_device(name) for name in ("cuda", "cuda:0", "cpu", "auto")] == ["cuda:3", "cuda:0", "cpu", "auto"]


def last(folder: Path) -> int:
    """The step of the last checkpoint of a run; 0 without one."""
    found = list_checkpoints(folder / "checkpoints")
    return int(found[-1].name[5:]) if found else 0
