"""Any JSON at all in any field, and bytes that may be no HTTP, on the servers of three languages, which answer alike.

With NNCUDA_FAULTS=all (`make faults`) there are many more, others each time.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from collections.abc import Iterator
from typing import Any

import languages
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from request_bodies import GOOD, RAW, changes
from servers import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, SHAPE, Served, idle, neutral, served

from nncuda.bench.random_model import write_folder

sys.path.insert(0, str(languages.ROOT / "tests" / "faults"))
import shim

PATHS = {
    "completions": COMPLETIONS, "chat": CHAT, "responses": RESPONSES, "embeddings": EMBEDDINGS,
    "tokenize": "/tokenize", "detokenize": "/detokenize",
}  # fmt: skip
SHORT: dict[str, dict[str, Any]] = {
    "completions": {"max_tokens": 3}, "chat": {"max_completion_tokens": 3}, "responses": {"max_output_tokens": 3}
}  # fmt: skip
#: Whole numbers of more digits are refused by all, but quoted in other ways (docs/serving-running.md).
DIGITS = 38

some = settings(
    deadline=None, derandomize=not shim.everything(), max_examples=2000 if shim.everything() else 150,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Served]]:
    folder = tmp_path_factory.mktemp("fuzz") / "model"
    write_folder(folder, SHAPE)
    with contextlib.ExitStack() as running:
        yield [running.enter_context(served(name, folder, "--threads", 1)) for name in languages.SERVING]


@pytest.mark.case("any JSON in a request's fields")
@pytest.mark.parametrize("route", GOOD)
def test_fields(servers: list[Served], route: str) -> None:
    """Those that are served have the same text, and those that are refused the same sentence."""

    @some
    @given(changes=changes(DIGITS, 3), stream=st.booleans())
    def one(changes: dict[str, Any], stream: bool) -> None:
        body = {**GOOD[route], **SHORT.get(route, {}), **({"stream": True} if stream and route in SHORT else {})}
        asked = PATHS[route], {**body, **changes}
        answers = [neutral(server.post(asked)) for server in servers]
        assert answers[0][0] in (200, 400, 404), answers
        for server, answer in zip(servers, answers, strict=True):
            assert answer == answers[0], (server.language, json.dumps(asked[1]))

    one()
    assert all(idle(server) for server in servers)


@pytest.mark.case("bytes that may be no HTTP")
def test_bytes_that_come(servers: list[Served]) -> None:
    """Whatever it is, the answer is HTTP or none, and the next request is served."""

    @some
    @given(sent=RAW)
    def one(sent: bytes) -> None:
        for server in servers:
            found = answer_to(server, sent)
            assert found == b"" or found.startswith(b"HTTP/1.1 "), (server.language, found)
            assert b" 500 " not in found, (server.language, found)
            assert server.request("GET", "/health")[0] == 200

    one()
    assert all(idle(server) for server in servers)


def answer_to(server: Served, sent: bytes) -> bytes:
    """All that comes of bytes, after which nothing is sent."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        found = b""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                found += part
    return found
