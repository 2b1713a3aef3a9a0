"""How ranks meet over TCP, built with sanitizers: nothing that a stranger sends or leaves out keeps a job from
starting, and each rank learns why another cannot go on."""

from __future__ import annotations

import hmac
import os
import random
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("there is no C compiler")
    out = tmp_path_factory.mktemp("rendezvous") / "rendezvous"
    names = ("tests/comm/rendezvous.c", "cuda/comm/rendezvous.c", "cuda/comm/hmac.c")
    warnings = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "cuda"))
    subprocess.run(
        [compiler, *warnings, *SANITIZERS, *(str(ROOT / name) for name in names), "-o", str(out)], check=True
    )
    return out


@pytest.fixture
def port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


def start(
    program: Path, rank: int | str, ranks: int, address: str, what: str = "stay", timeout: int = 30000, **settings: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(program), address, str(timeout), what],
        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "NNCUDA_JOB_TOKEN": "secret", **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, complained = process.communicate(timeout=60)
    assert complained == ""
    return process.returncode, said


@pytest.mark.parametrize(
    "what, heard",
    [("stay", "all is well"), ("tell", "the disk is full"), ("die", "rank 2 ended without a word")],
)
def test_all_learn_what_one_says(program: Path, port: int, what: str, heard: str) -> None:
    ranks = [start(program, rank, 4, f"127.0.0.1:{port}", what if rank == 2 else "stay") for rank in range(4)]
    assert [ended(rank) for rank in ranks] == [(0, heard), (0, heard), (0, "" if what == "die" else heard), (0, heard)]


def connected(port: int) -> socket.socket:
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=10)
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise TimeoutError


@pytest.mark.parametrize("token", ["secret", "long " * 40])
def test_proofs_are_hmac_sha256(program: Path, port: int, token: str) -> None:
    """Rank 1 in other words."""
    first = start(program, 0, 2, f"127.0.0.1:{port}", NNCUDA_JOB_TOKEN=token)
    with connected(port) as visit:
        hello = visit.recv(40, socket.MSG_WAITALL)
        application = b"nncuda 1" + os.urandom(32) + (1).to_bytes(8, "little") + (2).to_bytes(8, "little")
        visit.sendall(application + hmac.digest(token.encode(), b"application" + hello + application, "sha256"))
        answer = visit.recv(168, socket.MSG_WAITALL)
    assert answer[:136] == (1).to_bytes(8, "little") + b"i" * 128
    assert answer[136:] == hmac.digest(token.encode(), b"answer" + hello + application + answer[:136], "sha256")
    assert ended(first) == (0, "rank 1 ended without a word")


def strangers(port: int, seconds: float) -> Iterator[int]:
    """Visits of those who say nothing, too little, too much or what only looks right; some hang up, some stay."""
    chance = random.Random(1)
    stay = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            visit = socket.create_connection(("127.0.0.1", port), timeout=2)
            kind = chance.randrange(5)
            if kind == 1:
                visit.sendall(chance.randbytes(chance.randrange(1, 400)))
            elif kind == 2:
                visit.recv(40)
                rank = chance.randrange(-3, 5).to_bytes(8, "little", signed=True)
                visit.sendall(b"nncuda 1" + bytes(32) + rank + (3).to_bytes(8, "little") + bytes(32))
                assert visit.recv(8) in (b"\2" + bytes(7), b"")  # never taken
            elif kind == 3:  # reset, not closed
                visit.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if kind == 4:
                stay.append(visit)
            else:
                visit.close()
            yield len(stay)
        except OSError:
            pass  # rank 0 is not there yet, or has dismissed it
    for visit in stay:
        visit.close()


def test_strangers_do_not_keep_a_job_from_starting(program: Path, port: int) -> None:
    first = start(program, 0, 3, f"127.0.0.1:{port}")
    others: list[subprocess.Popen[str]] = []
    for staying in strangers(port, 5):
        if staying > 48 and not others:
            others.append(start(program, 1, 3, f"127.0.0.1:{port}"))
    assert others, "too few visits"
    others.append(start(program, 2, 3, f"127.0.0.1:{port}"))
    assert [ended(rank) for rank in (first, *others)] == [(0, "all is well")] * 3


def test_who_is_not_rank_0_is_not_believed(program: Path, port: int) -> None:
    """It may say anything; only who knows the token could say an id."""
    with socket.create_server(("127.0.0.1", port)) as door:
        done = threading.Event()

        def serve() -> None:
            words: list[bytes] = [b"", os.urandom(500), b"nncuda 1" + bytes(32) + b"\1" + bytes(16)]
            while not done.is_set():
                try:
                    visit, _ = door.accept()
                except OSError:  # the door was closed
                    return
                with visit:
                    visit.sendall(words[0])
                words.append(words.pop(0))

        threading.Thread(target=serve, daemon=True).start()
        alone = ended(start(program, 1, 2, f"127.0.0.1:{port}", timeout=1500))
        done.set()
    assert alone == (3, f"rank 0 did not answer at 127.0.0.1:{port} within 1.5 s")


@pytest.mark.parametrize(
    "address, sentence",
    [
        ("", "must be HOST:PORT of rank 0, or MASTER_ADDR and MASTER_PORT must be set"),
        ("machine", "must be HOST:PORT"),
        (":5", "must be HOST:PORT"),
        ("127.0.0.1:0", "must be HOST:PORT"),
        ("127.0.0.1:65536", "must be HOST:PORT"),
        ("127.0.0.1:5x", "must be HOST:PORT"),
        ("192.0.2.1:5000", "rank 0 cannot listen at 192.0.2.1:5000"),  # an address of nobody (RFC 5737)
    ],
)
def test_addresses_are_checked(program: Path, address: str, sentence: str) -> None:
    code, said = ended(start(program, 0, 2, address, MASTER_ADDR="127.0.0.1", MASTER_PORT=""))
    assert code == 3 and sentence in said


@pytest.mark.parametrize("rank, words", [("", 'RANK is ""'), ("one", 'RANK is "one"'), (2, "RANK is 2"), (-1, "RANK")])
def test_ranks_are_numbers(program: Path, rank: int | str, words: str) -> None:
    code, said = ended(start(program, rank, 2, "127.0.0.1:9"))
    assert code == 2 and words in said
