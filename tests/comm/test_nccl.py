"""The transport of GPUs, on emulated ones: ranks are processes, which meet over TCP, and the emulated library stands in
for NCCL (tests/emulator/nccl.cpp). `make emulated` builds it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RANK = Path(__file__).with_name("rank.py")
LIBRARIES = {arch: ROOT / f"build/emulated/libnncuda_emulated_{arch}.so" for arch in ("80", "90")}
pytestmark = pytest.mark.skipif(
    not all(path.exists() for path in LIBRARIES.values()), reason="no emulated libraries: make emulated"
)


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


class Job:
    """Ranks of one job, which end with it."""

    def __init__(self, folder: Path, arch: str = "90", **settings: str) -> None:
        self.port = free_port()
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")},
            "NNCUDA_LIBRARY": str(LIBRARIES[arch]),
            "NNCUDA_NCCL": str(LIBRARIES[arch]),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "TMPDIR": str(folder),
            **settings,
        }
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self, scenario: str, rank: int, ranks: int, timeout: float = 60, **settings: str
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(RANK), "nccl", scenario, str(timeout)],
            env={**self.environment, "RANK": str(rank), "WORLD_SIZE": str(ranks), **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def run(self, scenario: str, ranks: int, timeout: float = 60) -> list[tuple[int, str]]:
        """How each rank ended, and what it said."""
        return [ended(process) for process in [self.start(scenario, rank, ranks, timeout) for rank in range(ranks)]]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, complained = process.communicate(timeout=120)
    assert process.returncode in (0, 3, 9), complained
    return process.returncode, said.strip()


@pytest.fixture
def job(tmp_path):
    made = Job(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("ranks, streams", [(1, "prompt"), (2, "late"), (3, "prompt"), (5, "late")])
@pytest.mark.parametrize("arch", LIBRARIES)
def test_collectives(tmp_path, arch, ranks, streams):
    """The sums are those of cuda_add, and the norm is that of cuda_grad_norm, on the same engine."""
    job = Job(tmp_path, arch, NNCUDA_EMULATOR_STREAMS=streams)
    assert job.run("collectives", ranks) == [(0, f"rank {rank} of {ranks}") for rank in range(ranks)]
    assert list(tmp_path.glob("nccl-*")) == []


@pytest.mark.parametrize("streams", ["prompt", "late"])
def test_a_graph_with_collectives(tmp_path, streams):
    assert Job(tmp_path, NNCUDA_EMULATOR_STREAMS=streams).run("graph", 3) == [(0, "replayed")] * 3


@pytest.mark.parametrize("arch, ranks", [("80", 3), ("90", 2)])
def test_training(tmp_path, arch, ranks):
    """What steps tell and what they leave does not know how many GPUs there were."""
    job = Job(tmp_path, arch)
    ((code, digest),) = job.run("training", 1)
    assert code == 0 and len(digest) == 64
    assert job.run("training", ranks) == [(0, digest)] * ranks


def test_parts(job):
    assert job.run("parts", 5) == [(0, "3 of 5"), (0, "2 of 5")] * 2 + [(0, "3 of 5")]


def test_what_differs_is_named(job):
    sentence = "the configuration of rank 2 (replicas 1) is not that of rank 0 (replicas 0)"
    assert job.run("disagree", 3) == [(3, sentence)] * 3


def test_rows_that_wait_for_offsets_are_not_captured(job):
    sentence = "on a GPU the host waits for the offsets, so the call cannot be captured"
    assert job.run("uncaptured", 2) == [(0, sentence)] * 2


def test_offsets_that_are_wrong_on_one_rank(job):
    wrong = "offsets[0] is 3; it must be 0"
    told = (3, f"rank 1: nncuda_comm_dispatch: {wrong}")
    assert job.run("wrong_offsets", 3) == [told, (3, wrong), told]


def test_a_rank_that_gives_up(job):
    assert job.run("abort", 3) == [(3, "rank 1: the disk is full"), (3, "aborted"), (3, "rank 1: the disk is full")]


@pytest.mark.parametrize("scenario", ["vanish", "vanish_in_replay", "vanish_from_part"])
def test_a_rank_that_is_gone(job, scenario):
    lost = (3, "rank 1 ended without a word")
    assert job.run(scenario, 3) == [lost, (9, ""), lost]


def test_a_rank_that_hangs(job):
    """Whoever gave up first says so to the others, among them the one that hung."""
    first, hung, second = job.run("hang", 3, timeout=8)
    for code, said in (first, hung, second):
        assert code == 3
        assert re.fullmatch(r"(rank [02]: )?a peer did not answer within 8 s", said)
    assert hung[1].startswith("rank")


# ---- meeting


def test_a_rank_that_does_not_come(job):
    missing = f"rank 1 did not come to 127.0.0.1:{job.port} within 1 s"
    assert ended(job.start("collectives", 0, 3, timeout=1)) == (3, missing)


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"NNCUDA_JOB_TOKEN": "another"}, "its job has another token (NNCUDA_JOB_TOKEN)"),
        ({"WORLD_SIZE": "3"}, "its job has another number of ranks"),
    ],
)
def test_ranks_of_another_job_do_not_keep_one_from_starting(job, settings, reason):
    job.environment["NNCUDA_JOB_TOKEN"] = "secret"
    first = job.start("collectives", 0, 2)
    code, said = ended(job.start("collectives", 1, 2, **settings))
    ranks = settings.get("WORLD_SIZE", "2")
    assert (code, said) == (3, f"rank 0 at 127.0.0.1:{job.port} does not take rank 1 of {ranks}: {reason}")
    second = job.start("collectives", 1, 2)
    assert [ended(first), ended(second)] == [(0, "rank 0 of 2"), (0, "rank 1 of 2")]


def test_a_rank_that_is_there_twice(job):
    """Whichever comes second is refused; the job goes on with the other."""
    first, twins = job.start("collectives", 0, 3), [job.start("collectives", 1, 3) for _ in range(2)]
    while all(twin.poll() is None for twin in twins):
        time.sleep(0.05)
    last = job.start("collectives", 2, 3)
    assert sorted(map(ended, twins)) == [
        (0, "rank 1 of 3"),
        (3, f"rank 0 at 127.0.0.1:{job.port} does not take rank 1 of 3: another process has that rank already"),
    ]
    assert [ended(first), ended(last)] == [(0, "rank 0 of 3"), (0, "rank 2 of 3")]
