"""Servers that are asked without end by clients who cancel, time out, are killed or dawdle: nothing of them is kept.

Pages, memory, threads and open files are counted before and after, and the answers that others get meanwhile are the
bytes of a server that has nothing else to do. With NNCUDA_FAULTS=all each server takes 10,000
requests, else a few hundred.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import languages
import pytest
from rough_clients import Snails, be_killed, leave, wait_for_nothing
from servers import CHAT, COMPLETIONS, SHAPE, Asked, Served, idle, neutral, served

from nncuda.bench.random_model import write_folder

sys.path.insert(0, str(languages.ROOT / "tests" / "faults"))
import shim

SEED = 19
CLIENTS = 16
#: Requests of a round; after each all is counted. The first rounds fill what a server keeps on purpose: threads of
#: pools, the cache's texts, the series of metrics.
ROUND, ROUNDS, WARM = (1000, 10, 3) if shim.everything() else (100, 4, 2)
#: What resident memory may come to after the first rounds: allocators and garbage collectors do not give all back. One
#: KiB of each request would be 7 MiB more in 10,000.
GROWTH = 6 << 20
#: Runtimes start a thread more when they like to; one a request would be hundreds.
THREADS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama") / "model"
    write_folder(path, SHAPE)
    return path


@dataclass(frozen=True)
class Account:
    """What a process has: bytes of resident memory, threads, open files."""

    memory: int
    threads: int
    files: int

    @staticmethod
    def of(server: Served) -> Account:
        folder = Path("/proc") / str(server.process.pid)
        lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return Account(int(lines["RssAnon"].split()[0]) * 1024, int(lines["Threads"]), len(os.listdir(folder / "fd")))


def until(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    """Waits until something is so; it must become so within a while."""
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end, what()
        time.sleep(0.05)


def at_rest(server: Served, files: int, threads: int | None = None) -> Account:
    """What it has when nobody asks any more: no text, no page, and no more files and threads than it had."""
    assert idle(server)
    until(lambda: Account.of(server).files <= files, lambda: Account.of(server))
    if threads is not None:
        until(lambda: Account.of(server).threads <= threads, lambda: Account.of(server))
    return Account.of(server)


def catalogue() -> list[Asked]:
    """Requests whose answers are compared: short and long prompts that share beginnings, whole and as events."""
    found: list[Asked] = []
    for number in range(24):
        common = {"seed": number, "n": 1 + number % 3, "stream": number % 2 == 0, "max_tokens": 1 + number % 12}
        text = "the wide sea, " * (number % 4 * 3 + 1)
        if number % 3:
            found.append((COMPLETIONS, {**common, "prompt": text, "ignore_eos": True}))
        else:
            found.append((CHAT, {**common, "messages": [{"role": "user", "content": text}], "top_p": 0.9}))
    return found


#: More than the server's time-out allows on most machines.
LONG = (COMPLETIONS, {"prompt": "waves", "n": 40, "max_tokens": 250, "ignore_eos": True})


def rough(server: Served, wanted: list[tuple[int, bytes]], number: int) -> str:
    """Request `number` of a storm, and what came of it."""
    draw = random.Random(f"{SEED}-{number}")
    at = draw.randrange(len(wanted))
    asked, kind = catalogue()[at], draw.random()
    if kind < 0.02:
        several = [draw.choice(catalogue()) for _ in range(4)]
        be_killed(server.port, several, draw)
        return "killed"
    if kind < 0.03:
        answer = wait_for_nothing(server.port, asked)
        assert answer == b"HTTP/1.1 504", answer
        return "timed out"
    if kind < 0.05:
        status = server.post(LONG)[0]
        assert status in (200, 429, 504)
        return {200: "long", 429: "no place", 504: "timed out"}[status]
    if kind < 0.5:
        leave(server.port, draw.choice((asked, LONG)) if kind < 0.1 else asked, draw)
        return "left"
    found = neutral(server.post(asked))
    if found[0] in (429, 504) or b'"code":"timeout"' in found[1]:
        return "refused"  # a busy machine
    assert found == wanted[at], (asked, found, wanted[at])
    return "compared"


def statuses(server: Served) -> set[str]:
    """Of all requests that it has counted."""
    text = server.request("GET", "/metrics")[1].decode()
    return set(re.findall(r'^nncuda_http_requests_total\{.*status="(\w+)"', text, re.MULTILINE))


@pytest.mark.case("a server that is used badly for long keeps nothing")
@pytest.mark.parametrize("language", languages.SERVING)
def test_nothing_is_left(folder: Path, language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Go collects garbage when the heap has grown by this share: so that what is held shows.
    monkeypatch.setenv("GOGC", "10")
    options = ("--max-batch", 8, "--timeout", 2, "--threads", 1, "--log-format", "json")
    with served(language, folder, *options) as server, ThreadPoolExecutor(CLIENTS) as pool:
        wanted = [neutral(server.post(asked)) for asked in catalogue()]
        assert {status for status, _ in wanted} == {200}
        accounts = [at_rest(server, 1 << 20)]
        came: Counter[str] = Counter()
        for number in range(ROUNDS):
            numbers = range(number * ROUND, (number + 1) * ROUND)
            came.update(pool.map(lambda one: rough(server, wanted, one), numbers))
            threads = None if number < WARM else accounts[WARM].threads + THREADS
            accounts.append(at_rest(server, accounts[0].files, threads))
        print(f"\n{language}: {dict(came)}", *accounts, sep="\n")
        assert came["compared"] >= ROUND // 10 and came["left"] and came["killed"] and came["timed out"], came
        assert accounts[-1].memory - accounts[WARM].memory <= GROWTH, accounts
        assert [neutral(server.post(asked)) for asked in catalogue()] == wanted
        assert statuses(server) <= {"200", "400", "408", "429", "504", "none"}


@pytest.mark.case("200 slow connections hold nobody up")
@pytest.mark.parametrize("language", languages.SERVING)
def test_snails(folder: Path, language: str) -> None:
    """A third sends its head byte by byte, a third its body, and a third never reads: others have their answers."""
    with served(language, folder, "--max-batch", 16, "--threads", 1) as server:
        wanted = [neutral(server.post(asked)) for asked in catalogue()]
        before = at_rest(server, 1 << 20)
        with contextlib.closing(Snails(server.port, 67)) as snails:
            # 201, less those of the requests before that the server had not closed yet.
            until(lambda: Account.of(server).files >= before.files + 190, lambda: Account.of(server))
            for _ in range(2):
                assert [neutral(server.post(asked)) for asked in catalogue()] == wanted
            assert set(snails.told(snails.heads)) == {b"HTTP/1.1 408"}
            assert [neutral(server.post(asked)) for asked in catalogue()] == wanted
            if shim.everything():  # the limits of bodies and readers are longer
                assert set(snails.told(snails.bodies)) == {b"HTTP/1.1 408"}
                at_rest(server, before.files)
        at_rest(server, before.files)
        assert [neutral(server.post(asked)) for asked in catalogue()] == wanted
