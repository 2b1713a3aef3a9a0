"""What `make bench-serving` makes of guidellm's reports, and how it starts servers."""

from __future__ import annotations

import dataclasses
import http.server
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import click
import pytest

from tools.serving_bench import (
    PEER,
    Figures,
    Server,
    Work,
    ask_in_turns,
    commands,
    medians,
    read_report,
    serving,
    shortfalls,
)


def of(side: str, clients: int = 16, tokens: float = 100.0, first: float = 1.0, errors: int = 0) -> Figures:
    return Figures(side, clients, tokens, first, 0.01, 0.002, errors)


def report(path: Path, successful: int = 8) -> Path:
    """As much of one as is read, in the form of guidellm 0.8.1."""
    state = {"created_requests": 8, "successful_requests": successful, "errored_requests": 8 - successful}
    metrics = {
        "output_token_count": {"successful": {"total_sum": 400.0}},
        "time_to_first_token_ms": {"successful": {"percentiles": {"p50": 100.0, "p95": 250.0}}},
        "inter_token_latency_ms": {"successful": {"median": 12.5}},
    }
    benchmark = {"scheduler_state": state, "metrics": metrics, "duration": 4.0}
    path.write_text(json.dumps({"benchmarks": [benchmark]}))
    return path


def test_a_report(tmp_path: Path) -> None:
    found = read_report(report(tmp_path / "report.json", 7), "Go", 4, 6.0)
    assert found == Figures("Go", 4, 100.0, 0.25, 0.0125, 0.015, 1)
    with pytest.raises(click.ClickException, match="Go answered none of 8 requests"):
        read_report(report(tmp_path / "report.json", 0), "Go", 4, 6.0)


class Answering(http.server.BaseHTTPRequestHandler):
    """A server that writes a token with each event, and notes what it is asked."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        self._answer(b'{"vocab_size": 40}')

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append(asked)
        events = b'data: {"choices": [{"text": "x"}]}\n\n' * asked["max_tokens"]
        self._answer(events + b"data: [DONE]\n\n", 200 if asked["max_tokens"] < 9 else 400)

    def _answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is told."""


def test_one_client_asks_in_turns() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as answering:
        threading.Thread(target=answering.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{answering.server_port}"
        servers = [Server(name, url, os.getpid()) for name in ("Python", "Go", PEER)]
        found = ask_in_turns(servers, Work(5, 8), requests=4, seed=3)
        with pytest.raises(click.ClickException, match="Python answers 400"):
            ask_in_turns(servers, Work(5, 9), requests=1, seed=3)
        with pytest.raises(click.ClickException, match="Python wrote 1 events for 1 tokens"):
            ask_in_turns(servers, Work(5, 1), requests=1, seed=3)
        answering.shutdown()
    assert [(one.side, one.clients, one.errors) for one in found] == [("Python", 1, 0), ("Go", 1, 0), (PEER, 1, 0)]
    assert all(one.tokens_per_second > 0 and one.first_token_p95 > 0 for one in found)
    # Only ours are asked for texts that obey a schema.
    assert [one.next_token_masked is not None for one in found] == [True, True, False]
    assert sum("response_format" in asked for asked in Answering.asked[:25]) == 10
    # Each prompt comes to all of them, and to ours twice, one request more than is counted.
    prompts = [asked["prompt"] for asked in Answering.asked[:25]]
    assert all(len({tuple(one) for one in prompts[at : at + 5]}) == 1 for at in range(0, 25, 5))
    assert len({tuple(one) for one in prompts}) == 5
    assert all(20 <= token < 40 for one in prompts for token in one)


def test_medians_of_rounds() -> None:
    rounds = [of("Go", tokens=90), of("Rust"), of("Go", tokens=110, errors=1), of("Go", 1), of("Go", tokens=95)]
    assert medians(rounds) == [of("Go", tokens=95, errors=1), of("Rust"), of("Go", 1)]


def test_what_is_less_than_asked() -> None:
    assert shortfalls([of("Python", tokens=91), of("Go", tokens=98), of("Rust"), of(PEER, tokens=70)]) == []
    found = [of("Python", tokens=80, first=3), of("Go", tokens=90, errors=2), of("Rust"), of(PEER, tokens=70, first=2)]
    found[2] = dataclasses.replace(found[2], next_token_masked=0.0106)
    assert shortfalls(found) == [
        "Go, 16 clients: 2 errors",
        "Rust: a schema adds 6.0% to a token, asked are at most 5%",
        "Python, 16 clients: 20.0% behind, asked are at most 10%",
        f"Python, 16 clients: 1.14 x {PEER}, asked are 1.3 x",
        f"Python, 16 clients: first tokens (p95) take 1.50 x {PEER}'s time",
        "Go, 16 clients: 10.0% behind, asked are at most 3%",
        f"Go, 16 clients: 1.29 x {PEER}, asked are 1.3 x",
    ]
    assert shortfalls([of("Python", 4), of(PEER, 4, tokens=99)]) == []


def test_all_servers_have_the_same_room() -> None:
    found = commands(Path("m.gguf"), ["bin/nncuda-go", "bin/nncuda-rs"], "llama-server", 2, 32, Work(128, 64))
    assert list(found) == ["Python", "Go", "Rust", PEER]
    assert len({port for _, port in found.values()}) == 4
    go, peer = found["Go"][0], found[PEER][0]
    assert go[:3] == ["bin/nncuda-go", "serve", "m.gguf"] and go[go.index("--context") + 1] == "256"
    assert go[go.index("--cache-tokens") + 1] == peer[peer.index("--ctx-size") + 1] == str(32 * 256)


def test_a_server_that_does_not_come_up(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]
    with pytest.raises(click.ClickException, match="no such model"), serving("x", command, 1, tmp_path / "log"):
        pass


def test_processor_time_of_a_server() -> None:
    own = Server("x", "", os.getpid())
    before, times = own.cpu_seconds(), os.times()
    assert abs(before - times.user - times.system) < 0.1
