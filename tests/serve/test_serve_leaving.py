"""Who leaves, waits too long or is cut frees its place within one step; who comes when all is full is told so."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from small_server import Running, Steps, serving

from nncuda.tokenizer import Tokenizer

Until = Callable[[Callable[[], bool]], None]

LONG = {"prompt": "the sea", "max_tokens": 400, "ignore_eos": True}


@pytest.fixture
def held(tokenizer: Tokenizer) -> Iterator[tuple[Running, Steps]]:
    """A server of two places and a queue of one, whose steps wait to be allowed."""
    with serving(tokenizer, max_batch=2, max_queue=1, hold=True) as found:
        yield found


class Asking:
    """A request of its own connection that is under way."""

    def __init__(self, running: Running, **fields: Any):
        self.socket = socket.create_connection(("127.0.0.1", running.port), timeout=60)
        body = json.dumps({**LONG, **fields}).encode()
        head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self.socket.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self._read = b""

    def read_until(self, mark: bytes) -> bytes:
        while mark not in self._read:
            part = self.socket.recv(65536)
            assert part, self._read
            self._read += part
        return self._read

    def leave(self) -> None:
        self.socket.close()


def cancels(running: Running) -> int:
    """How many texts the engine is to cancel after the step that is held."""
    return sum(asked is not None and asked[0] == "cancel" for asked in list(running.server.service._asked))


def taken(running: Running, waiting: int, held: int) -> Callable[[], bool]:
    service = running.server.service
    return lambda: service.waiting + service.running == waiting + held and service.waiting == waiting


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves(held: tuple[Running, Steps], wait: Until, stream: bool) -> None:
    running, steps = held
    asking = Asking(running, stream=stream, n=2)
    wait(taken(running, 2, 0))
    steps.allow(5)
    wait(lambda: steps.taken == 5 and steps.held)
    if stream:
        asking.read_until(b"data: ")
    cache = running.model.engine.cache
    assert cache.used > 0
    asking.leave()
    wait(lambda: cancels(running) == 2)
    steps.allow(1)  # the one that was under way
    wait(lambda: running.at_rest)
    assert steps.taken == 6


def test_a_client_that_leaves_before_its_first_token(held: tuple[Running, Steps], wait: Until) -> None:
    running, steps = held
    first, second = Asking(running), Asking(running, prompt="waves")
    wait(taken(running, 2, 0))
    steps.allow(1)  # both, or the first alone when the second came later
    wait(lambda: running.server.service.running >= 1 and steps.held)
    third = Asking(running)
    wait(lambda: running.server.service.running + running.server.service.waiting == 3)
    third.leave()
    second.leave()
    wait(lambda: cancels(running) == 2)
    steps.allow(1)
    wait(lambda: running.server.service.running + running.server.service.waiting == 1)
    wait(lambda: steps.held)
    assert steps.taken == 2
    first.leave()
    wait(lambda: cancels(running) == 1 and steps.held)
    steps.allow(1)
    wait(lambda: running.at_rest)


def test_a_full_queue(held: tuple[Running, Steps], wait: Until) -> None:
    running, steps = held
    asking = [Asking(running, max_tokens=3) for _ in range(3)]
    wait(taken(running, 3, 0))
    status, headers, body = running.request("POST", "/v1/completions", {**LONG, "max_tokens": 3})
    assert status == 429 and headers["retry-after"] == "1"
    assert json.loads(body)["error"]["message"] == "all 3 places are taken; try again in 1 s"
    assert running.metric("nncuda_requests_waiting") == 3
    steps.free()
    for one in asking:
        assert b'"completion_tokens":3' in one.read_until(b"}}")
    assert running.post("/v1/completions", {**LONG, "max_tokens": 3})[0] == 200
    assert running.error("/v1/completions", {**LONG, "n": 4})["code"] == "too_many_choices"


def test_requests_whose_texts_wait_for_their_ids_count_too(
    tokenizer: Tokenizer, wait: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long text keeps the tokenizer busy; those who come meanwhile are not kept waiting without end."""
    go_on, encode = threading.Event(), tokenizer.encode
    monkeypatch.setattr(tokenizer, "encode", lambda *given, **more: go_on.wait(30) and encode(*given, **more))
    with serving(tokenizer, max_batch=2, max_queue=1) as (running, _):
        asking = [Asking(running, max_tokens=3) for _ in range(3)]
        wait(lambda: running.server._app._preparing == 3)
        assert running.error("/v1/completions", {**LONG, "max_tokens": 3})["code"] == "queue_full"
        assert running.get("/health")[0] == 200
        go_on.set()
        for one in asking:
            one.read_until(b'"completion_tokens":3')
        many = {"prompt": ["x"] * 200_000, "n": 128, "max_tokens": 1}
        assert running.error("/v1/completions", many)["code"] == "too_many_choices"


def test_requests_that_take_too_long(tokenizer: Tokenizer, wait: Until) -> None:
    with serving(tokenizer, hold=True, timeout=1.5) as (running, steps):
        error = running.error("/v1/completions", LONG)
        assert error["status"] == 504 and error["message"] == "the request took more than 1.5 s"
        steps.allow(1)  # the one that it waited for
        wait(lambda: running.at_rest)
        asking = Asking(running, stream=True)
        steps.allow(3)
        asking.read_until(b"data: ")
        end = asking.read_until(b"data: [DONE]\n\n").split(b"data: ")[-2]
        assert json.loads(end.split(b"\r\n")[0])["error"]["code"] == "timeout"
        steps.allow(1)
        wait(lambda: running.at_rest)


def test_random_cancels_leave_nothing(tokenizer: Tokenizer, wait: Until) -> None:
    """Clients that leave at any moment: no page, thread, connection or text is left."""
    with serving(tokenizer, max_queue=64) as (running, _):
        running.post("/v1/completions", {**LONG, "max_tokens": 3})
        threads = threading.active_count()
        for number in range(120):
            asking = Asking(running, stream=number % 2 == 0, n=1 + number % 3, prompt="sea " * (number % 40 + 1))
            time.sleep(number % 7 * 0.002)
            asking.leave()
        wait(lambda: running.at_rest)
        wait(lambda: not running.server._http.server_state.connections)
        assert not running.server._http.server_state.tasks
        assert threading.active_count() <= threads
        wanted = running.model.complete("the sea", 9, end_ids=())
        _, found = running.post("/v1/completions", {**LONG, "max_tokens": 9, "temperature": 0})
        assert found["choices"][0]["text"] == wanted


def test_running_requests_end_while_it_drains(tokenizer: Tokenizer, wait: Until) -> None:
    with serving(tokenizer, hold=True) as (running, steps):
        asking, idle = Asking(running, max_tokens=6), running.connection()
        idle.request("GET", "/health")
        idle.getresponse().read()
        wait(taken(running, 1, 0))
        running.server.stop()
        wait(lambda: not _accepts(running))
        steps.free()
        assert b'"completion_tokens":6' in asking.read_until(b"}}")
        assert asking.socket.recv(1) == b""
        assert idle.sock.recv(1) == b""  # the server closed it


@pytest.mark.parametrize("stream", [True, False])
def test_what_does_not_end_in_time_is_cut(tokenizer: Tokenizer, wait: Until, stream: bool) -> None:
    with serving(tokenizer, hold=True, drain_seconds=0.3) as (running, steps):
        asking = Asking(running, stream=stream)
        steps.allow(3)
        wait(lambda: steps.taken == 3 and steps.held)
        if stream:
            asking.read_until(b"data: ")
        running.server.stop()
        if stream:
            assert b'"code":"draining"' in asking.read_until(b"data: [DONE]\n\n")
        else:
            assert asking.read_until(b"}}").startswith(b"HTTP/1.1 503 ")


def test_a_client_that_does_not_read(tokenizer: Tokenizer, wait: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets its connection closed, and holds neither the engine nor the end of the server."""
    from nncuda.serve.api import LIMITS

    monkeypatch.setitem(LIMITS, "write_seconds", 0.3)
    with serving(tokenizer, max_queue=200) as (running, _):
        asking = Asking(running, stream=True, n=100, max_tokens=500)
        asking.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wait(lambda: running.server.service.running > 0)
        assert running.post("/v1/completions", {**LONG, "max_tokens": 3})[0] == 200
        wait(lambda: not running.server._http.server_state.connections)
        wait(lambda: running.at_rest)


def test_a_device_that_fails(tokenizer: Tokenizer) -> None:
    """The request is told, and the server ends with what was wrong."""
    with pytest.raises(AssertionError, match="the device is on fire"), serving(tokenizer) as (running, _):

        def fail() -> None:
            raise AssertionError("the device is on fire")

        running.model.scheduler.step = fail  # type: ignore[method-assign]
        error = running.error("/v1/completions", LONG)
        assert error["status"] == 500 and error["code"] == "engine_failed"


def _accepts(running: Running) -> bool:
    try:
        socket.create_connection(("127.0.0.1", running.port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True
