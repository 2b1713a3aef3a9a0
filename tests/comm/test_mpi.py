"""Ranks that are processes, started by mpiexec: the bits of one rank, and no rank that is waited for in vain."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nncuda

ROOT = Path(__file__).resolve().parents[2]
RANK = Path(__file__).with_name("rank.py")
MPIEXEC = Path(sys.prefix) / "bin/mpiexec"
LAUNCHED = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
EMULATED = sorted((ROOT / "build/emulated").glob("libnncuda_emu*.so"))
started = pytest.mark.skipif(not MPIEXEC.exists(), reason="needs mpiexec in the environment: pip install mpich")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="MPI is opened on Linux")


def environment(**settings: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in LAUNCHED} | settings


def run(scenario: str, ranks: int, timeout: float = 60, **settings: str) -> tuple[int, list[str]]:
    """How the job ended, and what its ranks said, each line with its rank."""
    command = [MPIEXEC, "-prepend-rank", "-n", ranks, sys.executable, RANK, "mpi", scenario, timeout]
    done = subprocess.run(
        list(map(str, command)), env=environment(**settings), stdout=subprocess.PIPE, text=True, timeout=120
    )
    return done.returncode, sorted(line for line in done.stdout.splitlines() if re.match(r"\[\d+\] ", line))


def said(ranks: list[int], sentence: str) -> list[str]:
    return [f"[{rank}] {sentence}" for rank in ranks]


@started
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8])
def test_collectives(ranks):
    assert run("collectives", ranks) == (0, [f"[{rank}] rank {rank} of {ranks}" for rank in range(ranks)])


@started
def test_a_graph_with_collectives():
    assert run("graph", 3) == (0, said([0, 1, 2], "replayed"))


@started
def test_parts():
    assert run("parts", 5) == (0, [f"[{rank}] {2 if rank % 2 else 3} of 5" for rank in range(5)])


@started
@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_pieces(ranks):
    said_by = [f"[{rank}] {(rank - 1) % ranks} {rank} {(rank + 1) % ranks}" for rank in range(ranks)]
    assert run("pieces", ranks) == (0, said_by)


# Failures: what every rank says, and that the launcher says so, too


@started
@pytest.mark.parametrize(
    "scenario, sentence",
    [
        ("disagree", "the configuration of rank 2 (replicas 1) is not that of rank 0 (replicas 0)"),
        ("hang", "rank 1 did not answer within 4 s"),
        ("part_without_rank_1", "rank 1 did not answer within 4 s"),
        ("absent", "not all ranks joined within 4 s"),
        ("leave", "rank 1 has left"),
    ],
)
def test_every_rank_says_why(scenario, sentence):
    """Those that still can: rank 1 sleeps, never comes or is gone."""
    status, lines = run(scenario, 4, 4 if scenario in ("hang", "part_without_rank_1", "absent") else 60)
    assert status != 0
    assert lines == said([0, 1, 2, 3] if scenario == "disagree" else [0, 2, 3], sentence)


@started
def test_a_rank_that_gives_up():
    status, lines = run("abort", 4)
    assert status != 0
    assert lines == sorted([*said([0, 2, 3], "rank 1: the disk is full"), "[1] aborted"])


@started
def test_offsets_that_are_wrong_on_one_rank():
    status, lines = run("wrong_offsets", 4)
    wrong = "offsets[0] is 4; it must be 0"
    assert status != 0
    assert lines == sorted([*said([0, 2, 3], f"rank 1: nncuda_comm_dispatch: {wrong}"), f"[1] {wrong}"])


@started
def test_a_message_of_another_size():
    """Several may find it out at once."""
    status, lines = run("unlike_sizes", 3)
    assert status != 0
    assert len(lines) == 3
    for line in lines:
        assert re.fullmatch(r"\[\d\] rank 1 sent more than the 4000 bytes that rank [02] expects", line)


@started
@pytest.mark.parametrize("scenario", ["vanish", "vanish_in_replay", "vanish_from_part"])
def test_a_rank_that_is_gone(scenario):
    """The launcher ends the others."""
    assert run(scenario, 4)[0] != 0


@started
@pytest.mark.parametrize("seed", range(4))
def test_a_rank_that_is_killed(seed):
    """At any moment: while it starts as well. Nobody waits for it."""
    chance = random.Random(seed)
    ranks = chance.randint(2, 5)
    assert run("killed", ranks, VICTIM=str(chance.randrange(ranks)), DELAY=f"{chance.random() ** 2:.3f}")[0] != 0


# What is missing


def test_auto_is_what_the_launcher_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*LAUNCHED, "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with nncuda.Context(threads=1) as ctx:
        with nncuda.Comm(ctx, "auto") as comm:
            assert (comm.rank, comm.ranks) == (0, 1)
        monkeypatch.setenv("NNCUDA_MPI", "/nowhere/libmpi_abi.so")
        for name in ("RANK", "WORLD_SIZE"):  # which are for GPUs
            monkeypatch.setenv(name, "1")
        nncuda.Comm(ctx, "auto").close()
        monkeypatch.setenv("PMIX_RANK", "0")
        with pytest.raises(nncuda.UnsupportedError, match=r"/nowhere/libmpi_abi\.so"):
            nncuda.Comm(ctx, "auto")


def refusal(*launcher: object, device: str = "cpu", seat: str = "", **settings: str) -> str:
    """With which sentence a process that cannot join ends."""
    program = f"import nncuda\nwith nncuda.Context({device!r}) as ctx:\n    nncuda.Comm(ctx, 'mpi', {seat})"
    command = [*map(str, launcher), sys.executable, "-c", program]
    done = subprocess.run(command, env=environment(**settings), capture_output=True, text=True)
    assert done.returncode != 0
    return done.stderr.strip().splitlines()[-1].partition("nncuda_comm_create: ")[2]


def library(folder: Path, *, without: str = "", abi: int = 1) -> str:
    """An MPI library in which nothing works."""
    names = re.findall(r"^  X\((\w+),", (ROOT / "cuda/comm/mpi_library.h").read_text(), re.MULTILINE)
    functions = [
        f"int MPI_{name}(int *x, int *y) {{ (void)x, (void)y; return 0; }}" for name in names if name != without
    ]
    text = re.sub(r"(MPI_Abi_get_version.*?\{)", rf"\1 *x = {abi};", "\n".join(functions))
    (folder / "mpi.c").write_text(text)
    path = folder / "libmpi_abi.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, folder / "mpi.c"], check=True)
    return str(path)


@started
def test_without_a_launcher():
    """The library is found all the same, in the environment."""
    sentence = refusal(PATH="/usr/bin:/bin")
    assert sentence.startswith("no MPI launcher started this process, such as `mpiexec -n 4 COMMAND`")
    assert f"the library is {(MPIEXEC.parents[1] / 'lib/libmpi_abi.so.1').resolve()}, MPICH 5." in sentence


@started
def test_a_launcher_of_another_library():
    sentence = refusal(OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="4")
    assert re.match(r"the launcher started 4 ranks, and .* knows 1: it belongs to another launcher", sentence)


def test_a_library_that_will_not_do(tmp_path):
    missing = refusal(NNCUDA_MPI=str(tmp_path / "nowhere.so"))
    assert missing.startswith("NNCUDA_MPI names no MPI library: ") and "nowhere.so" in missing
    path = library(tmp_path, without="Testsome")
    assert refusal(NNCUDA_MPI=path).startswith(f"{path} lacks MPI_Testsome: ")
    path = library(tmp_path, abi=2)
    assert refusal(NNCUDA_MPI=path).startswith(f"{path} has version 2 of MPI's standard ABI; it must be 1")


def test_where_it_is_looked_for(tmp_path):
    """Beside the mpiexec of PATH, and first where the loader looks."""
    for folder in ("bin", "lib", "loader"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bin/mpiexec").touch(0o755)
    beside = library(tmp_path / "lib")
    found = {"PATH": f"{tmp_path}/none:{tmp_path}/bin:{os.environ['PATH']}"}
    assert f"the library is {beside}, " in refusal(**found)
    loader = library(tmp_path / "loader")
    assert f"the library is {loader}, " in refusal(**found, LD_LIBRARY_PATH=str(tmp_path / "loader"))


@started
def test_a_seat_that_the_launcher_does_not_know():
    assert "rank is 1 of 2; to the MPI launcher it is 0 of 1" in refusal(MPIEXEC, "-n", 1, seat="rank=1, ranks=2")


@pytest.mark.skipif(not EMULATED, reason="no emulated library: make emulated")
def test_a_context_on_a_gpu():
    sentence = refusal(device="cuda", NNCUDA_LIBRARY=str(EMULATED[0]))
    assert sentence.startswith("NNCUDA_TRANSPORT_MPI (2) is for the CPU engine")
