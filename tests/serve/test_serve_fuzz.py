"""Any JSON at all in any field: served, or refused with a field's name, and never a defect of the server."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from request_bodies import GOOD, NAMES, RAW, changes, json_values
from small_server import Running

from nncuda.serve.api import ApiError
from nncuda.serve.bodies import json_object
from nncuda.serve.chat import Chat
from nncuda.serve.completions import Completions
from nncuda.serve.constraints import Formats
from nncuda.serve.embeddings import Embeddings
from nncuda.serve.names import Names
from nncuda.serve.responses import Responses
from nncuda.serve.tokens import Tokens

#: Beyond what any number of a request may be.
DIGITS = 401
few = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("route", GOOD)
@few
@given(changes=changes(DIGITS, 3))
def test_fields(running: Running, route: str, changes: dict[str, Any]) -> None:
    model, names = running.model, Names("small")
    tokens = Tokens(model, names)
    prepare: Any = {
        "completions": Completions(model, names, Formats(model), 50).prepare,
        "chat": Chat(model, names, Formats(model), 50).prepare,
        "responses": Responses(model, names, Formats(model)).prepare,
        "embeddings": Embeddings(model, names, 50).prepare,
        "tokenize": tokens.tokenize,
        "detokenize": tokens.detokenize,
    }[route]
    try:
        prepare({**GOOD[route], **changes})
    except ApiError as error:
        assert error.status in (400, 404)
        assert json.loads(error.body())["error"]["message"] == error.sentence
        if error.code == "too_many_choices":
            return
        assert error.param is not None
        # What is named is what was sent, or a part of it.
        assert error.param.split(".")[0].split("[")[0] in {name[:256].split(".")[0].split("[")[0] for name in changes}


@few
@given(body=st.one_of(st.binary(max_size=60), json_values(DIGITS).map(lambda value: json.dumps(value).encode())))
def test_bodies(body: bytes) -> None:
    try:
        found = json_object(body)
    except ApiError as error:
        assert error.code == "not_json"
    else:
        json.dumps(found, ensure_ascii=False).encode()


@settings(few, max_examples=150)
@given(sent=RAW)
def test_bytes_that_come(running: Running, sent: bytes) -> None:
    """Whatever it is, the answer is HTTP or none, and the next request is served."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                found += part
    assert found == b"" or found.startswith(b"HTTP/1.1 ")
    assert b" 500 " not in found
    assert running.get("/health")[0] == 200


@settings(few, max_examples=40)
@given(
    route=st.sampled_from(
        [("/v1/completions", "completions"), ("/v1/chat/completions", "chat"), ("/v1/responses", "responses")]
    ),
    changes=st.dictionaries(st.sampled_from(NAMES), json_values(DIGITS), max_size=2),
    stream=st.booleans(),
)
def test_requests(running: Running, route: tuple[str, str], changes: dict[str, Any], stream: bool) -> None:
    """What passes the checks is served: none of it fails in the engine."""
    path, of_route = route
    good = {"max_output_tokens": 3} if of_route == "responses" else {"max_tokens": 3, "n": 1}
    body = {**GOOD[of_route], "stream": stream, **good, **changes}
    if isinstance(body.get("max_completion_tokens"), int):
        body.pop("max_tokens", None)  # `responses` has none
    status, _, found = running.request("POST", path, body)
    assert status in (200, 400, 404), found
    if status == 200:
        assert not body["stream"] or b'"error":{' not in found.split(b"\n\n")[-2]
