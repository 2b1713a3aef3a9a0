"""What is too large, too slow, too many or no HTTP at all: a clear error, and nobody else suffers."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from small_server import Running, serving

from nncuda.serve.api import LIMITS
from nncuda.tokenizer import Tokenizer

Until = Callable[[Callable[[], bool]], None]

ASKED = {"prompt": "the sea", "max_tokens": 3, "ignore_eos": True}
POST = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter times, in which a busy machine still gets a whole body across."""
    for name, seconds in (("header_seconds", 0.5), ("body_seconds", 2), ("linger_seconds", 2)):
        monkeypatch.setitem(LIMITS, name, seconds)


@pytest.fixture(autouse=True)
def nobody_suffers(running: Running) -> Iterator[None]:
    """The next request is served, and nothing is left of this one."""
    yield
    assert running.post("/v1/completions", ASKED)[0] == 200
    assert running.at_rest


def exchange(running: Running, *parts: bytes) -> tuple[int, dict[str, Any]]:
    """Status and error of the response to these bytes, after which the server closes."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as connection:
        for part in parts:
            connection.sendall(part)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"\r\ncontent-type: application/json" in head
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"hello\r\n\r\n", 400, "bad_http"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(80), 400, "bad_http"),  # TLS
        (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_http"),  # without a host
        (POST + b"content-length: -5\r\n\r\n", 400, "bad_http"),
        (POST + b"content-length: 1\r\ncontent-length: 2\r\n\r\n{}", 400, "bad_http"),
        (POST + b"transfer-encoding: chunked\r\n\r\nxyz\r\n", 400, "bad_http"),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\n", 431, "headers_too_large"),
        (POST + b"x: " + b"y" * 40_000, 431, "headers_too_large"),
        (POST + b"content-length: 100\r\n\r\n{", 408, "body_too_slow"),
        (POST + b"content-le", 408, "body_too_slow"),
        (b"", 408, "body_too_slow"),
    ],
)
def test_bytes(running: Running, sent: bytes, status: int, code: str) -> None:
    found, error = exchange(running, sent)
    assert (found, error["code"]) == (status, code)


def test_headers(running: Running) -> None:
    many = {f"x-{number}": "y" for number in range(LIMITS["headers"])}
    status, _, body = running.request("GET", "/health", None, many)
    assert status == 431 and json.loads(body)["error"]["code"] == "headers_too_large"
    few = dict(list(many.items())[: LIMITS["headers"] - 3])
    assert running.request("GET", "/health", None, few)[0] == 200


def test_bodies(running: Running) -> None:
    most = LIMITS["body_bytes"]
    asked = json.dumps(ASKED).encode()
    assert running.post("/v1/completions", asked + b" " * (most - len(asked)))[0] == 200
    error = running.error("/v1/completions", asked + b" " * (most + 1 - len(asked)))
    assert error["status"] == 413 and error["message"] == f"the body has more than {most} bytes"
    for body, code in ((b"{", "not_json"), (b"[" * 100_000, "not_json"), (b"\xff", "not_json"), (b"[]", "not_json")):
        assert running.error("/v1/completions", body)["code"] == code
    for kind in ("text/plain", "", "application/x-www-form-urlencoded"):
        status, _, found = running.request("POST", "/v1/completions", asked, {"content-type": kind})
        assert status == 415 and json.loads(found)["error"]["code"] == "not_a_json_type"
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert running.request("POST", "/v1/completions", asked, headers)[0] == 200


def test_a_body_that_does_not_end(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes in chunks is cut off where it is too large, and its client has a while to read that."""
    monkeypatch.setitem(LIMITS, "linger_seconds", 0.3)
    piece = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as connection:
        connection.sendall(POST + b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(5):
            connection.sendall(piece)
        assert connection.recv(20).startswith(b"HTTP/1.1 413")
        with pytest.raises(OSError):  # it is closed although more comes
            until = time.monotonic() + 60
            while time.monotonic() < until:
                connection.sendall(piece)


def test_an_error_leaves_the_connection(running: Running) -> None:
    """A client may go on with it, also where its body was not needed to tell what was wrong."""
    connection = running.connection()
    for path, body, status in (
        ("/nothing", b"x" * 3_000_000, 404),
        ("/v1/completions", b"{}", 400),
        ("/v1/completions", json.dumps(ASKED).encode(), 200),
    ):
        connection.request("POST", path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        assert response.status == status
        response.read()
    connection.close()


def test_requests_in_a_row(running: Running) -> None:
    """Sent without waiting for the answers, which come in order."""
    asked = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\nGET /none HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as connection:
        connection.sendall(asked)
        answer = b""
        while b"route_not_found" not in answer:
            answer += connection.recv(65536)
    assert answer.index(b"HTTP/1.1 200") < answer.index(b"HTTP/1.1 404")


def test_slow_clients_hold_nobody_up(running: Running, wait: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 connections that send a byte now and then, while others are served."""
    monkeypatch.setitem(LIMITS, "header_seconds", 6)
    monkeypatch.setitem(LIMITS, "body_seconds", 6)
    slow = [socket.create_connection(("127.0.0.1", running.port), timeout=30) for _ in range(200)]
    for number, connection in enumerate(slow):
        connection.sendall(POST + (b"content-length: 50\r\n\r\n{" if number % 2 else b"x: y"))
    wait(lambda: len(running.server._http.server_state.connections) >= 200)
    for _ in range(5):
        for connection in slow:
            connection.sendall(b" ")
        assert running.post("/v1/completions", ASKED)[0] == 200
    for connection in slow:
        assert connection.recv(12) == b"HTTP/1.1 408"
        connection.close()
    wait(lambda: len(running.server._http.server_state.connections) == 0)


def test_too_many_connections(tokenizer: Tokenizer, wait: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "connections", 5)
    monkeypatch.setitem(LIMITS, "header_seconds", 30)
    with serving(tokenizer) as (running, _):
        idle = [socket.create_connection(("127.0.0.1", running.port), timeout=30) for _ in range(5)]
        wait(lambda: len(running.server._http.server_state.connections) == 5)
        status, error = exchange(running)
        assert status == 503 and error["code"] == "too_many_connections"
        idle.pop().close()
        wait(lambda: len(running.server._http.server_state.connections) == 4)
        assert running.get("/health")[0] == 200
        for connection in idle:
            connection.close()


def test_what_fails_inside_is_told_and_logged(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, log: list[dict[str, Any]]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret of the server")

    with serving(tokenizer) as (running, _):
        monkeypatch.setattr("nncuda.serve.completions.samplings", fail)
        error = running.error("/v1/completions", ASKED)
        assert error["status"] == 500 and "secret" not in error["message"]
    assert any("a secret of the server" in record.get("message", "") for record in log)
