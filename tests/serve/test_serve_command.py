"""`nncuda serve` as a process: its options, its signals, and what it refuses before it loads anything."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from small_models import save_tiny

import nncuda
from nncuda import extras
from nncuda.cli import main


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with nncuda.Context(threads=2) as ctx:
        return save_tiny(ctx, tmp_path_factory.mktemp("served"))


class Process:
    """The command, once it serves."""

    def __init__(self, model: Path, *options: str):
        line = [sys.executable, "-m", "nncuda", "serve", str(model), "--port", "0", "--context", "64", *options]
        self.process = subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self.lines.append(text.rstrip("\n"))
            found = re.search(r"^serving (.*) on http://([^:]*|\[.*\]):(\d+)$", text.strip())
            if found:
                self.name, self.host, self.port = found[1], found[2].strip("[]"), int(found[3])
                return
        raise AssertionError("\n".join(self.lines))

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"content-type": "application/json", **headers})
        response = connection.getresponse()
        found = response.status, json.loads(response.read())
        connection.close()
        return found

    def text(self, path: str) -> str:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.request("GET", path)
        return connection.getresponse().read().decode()

    def end(self, signal_number: int = signal.SIGTERM) -> int:
        """Its exit code; what it wrote goes to `lines`."""
        self.process.send_signal(signal_number)
        out, err = self.process.communicate(timeout=60)
        self.lines += err.splitlines()
        assert out == ""
        return self.process.returncode


@pytest.fixture
def ended() -> Iterator[list[Process]]:
    """Processes that must not outlive a test."""
    processes: list[Process] = []
    yield processes
    for one in processes:
        one.process.kill()
        one.process.wait()


def test_it_serves_until_a_signal(checkpoint: Path, ended: list[Process]) -> None:
    server = Process(checkpoint, "--log-format", "json", "--max-batch", "2", "--model-name", "my/model")
    ended.append(server)
    assert server.name == "my/model" and server.lines[0] == f"loading {checkpoint}"
    assert re.match(r"loaded in [\d.]+ s: [\d,]+ parameters, context 64, cache .* for 256 tokens, cpu", server.lines[1])
    asked = {"prompt": [1, 2, 3], "max_tokens": 5, "model": "my/model"}
    status, found = server.request("POST", "/v1/completions", asked)
    assert status == 200 and found["model"] == "my/model"
    assert server.request("GET", "/v1/models/my/model")[0] == 200
    assert server.end() == 0
    records = [json.loads(line) for line in server.lines[3:]]
    assert (
        records[0]["path"] == "/v1/completions"
        and records[0]["tokens"] == 5
        and records[-1]["message"] == "SIGTERM: shutting down"
    )


def test_an_interrupt_ends_it_too(checkpoint: Path, ended: list[Process]) -> None:
    server = Process(checkpoint)
    ended.append(server)
    assert server.end(signal.SIGINT) == 0
    assert "SIGINT: shutting down" in server.lines[-1]


def test_sigterm_while_texts_are_written(checkpoint: Path, ended: list[Process]) -> None:
    """They are cut after --drain-seconds, and it still ends well."""
    server = Process(checkpoint, "--drain-seconds", "0.2", "--max-queue", "4000")
    ended.append(server)
    body = json.dumps({"prompt": [[1, 2, 3]] * 30, "n": 128, "max_tokens": 60, "ignore_eos": True})
    with socket.create_connection((server.host, server.port)) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nhost: {server.host}\r\ncontent-type: application/json\r\n"
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        while 'nncuda_requests_running{model_name="step-00000001"} 0.0' in server.text("/metrics"):
            pass
        assert server.end() == 0
        assert connection.recv(12) == b"HTTP/1.1 503"


def test_keys(checkpoint: Path, ended: list[Process], tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# of our users\nsecond\n\nthird\n")
    server = Process(checkpoint, "--api-key", "first", "--api-key-file", str(keys), "--host", "0.0.0.0")
    ended.append(server)
    for key in ("first", "second", "third"):
        assert server.request("GET", "/v1/models", authorization=f"Bearer {key}")[0] == 200
    for wrong in ("", "Bearer", "Bearer first2", "Bearer firs", "Basic first", "first", "Bearer # of our users"):
        status, found = server.request("GET", "/v1/models", authorization=wrong)
        assert (status, found["error"]["code"]) == (401, "invalid_api_key")
    assert server.request("GET", "/v1/nothing")[0] == 401  # nor is told what there is
    assert server.request("GET", "/metrics")[0] == 401
    assert server.request("GET", "/health")[0] == 200
    # Keys say who may ask: then any name of the host will do.
    assert server.request("GET", "/v1/models", authorization="Bearer first", host="example.org")[0] == 200


def test_hosts(checkpoint: Path, ended: list[Process]) -> None:
    """Without a key a page of somebody's must not reach the server by a name of its own."""
    server = Process(checkpoint)
    ended.append(server)
    for host in ("localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "app.localhost"):
        assert server.request("GET", "/v1/models", host=host)[0] == 200
    for host in ("example.org", "example.org:8000", "127.0.0.1.example.org", "10.0.0.1", ""):
        status, found = server.request("GET", "/v1/models", host=host)
        assert (status, found["error"]["code"]) == (403, "wrong_host")
    anyone = Process(checkpoint, "--no-auth", "--host", "0.0.0.0")
    ended.append(anyone)
    assert anyone.request("GET", "/v1/models", host="example.org")[0] == 200


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (["--host", "0.0.0.0"], 2, "others can reach 0.0.0.0: give an --api-key or --api-key-file, or --no-auth"),
        (["--host", "192.0.2.1"], 2, "others can reach 192.0.2.1"),
        (["--no-auth", "--api-key", "x"], 2, "exclude each other"),
        (["--api-key", ""], 2, "an API key must be of visible ASCII characters, at least one"),
        (["--api-key", "a b"], 2, "an API key must be of visible ASCII characters"),
        (["--api-key-file", "EMPTY"], 2, "holds no API key"),
        (["--context", "1000"], 3, "context is 1000; this model takes 1 to 64 tokens"),
        (["--timeout", "0"], 2, "--timeout"),
        (["--max-batch", "0"], 2, "--max-batch"),
        (["--log-format", "xml"], 2, "--log-format"),
    ],
)
def test_what_it_refuses(checkpoint: Path, tmp_path: Path, options: list[str], code: int, problem: str) -> None:
    (tmp_path / "empty").write_text("# none\n")
    given = [str(tmp_path / "empty") if option == "EMPTY" else option for option in options]
    result = CliRunner().invoke(main, ["serve", str(checkpoint), "--port", "0", *given])
    assert result.exit_code == code and problem in result.output, result.output


def test_a_port_that_is_taken(checkpoint: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["serve", str(checkpoint), "--port", str(port)])
    assert result.exit_code == 3
    assert f"127.0.0.1:{port}: cannot listen there ({os.strerror(98)})" in result.output


def test_without_its_packages(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.PACKAGES, "serve", ("uvicorn", "no_such_package"))
    result = CliRunner().invoke(main, ["serve", str(checkpoint)])
    assert result.exit_code == 1
    assert "the server: left out without no_such_package, which `pip install 'nncuda[serve]'`" in result.output
