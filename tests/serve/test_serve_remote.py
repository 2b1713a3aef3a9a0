"""`nncuda chat --url`: a conversation with a model on a server, this program's or a stranger's."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner, Result
from small_server import CONTEXT, Running, serving

from nncuda import Sampling
from nncuda.cli import main
from nncuda.infer.conversation import Conversation
from nncuda.serve.remote import RemoteConversation, RemoteError, RemoteModel
from nncuda.tokenizer import Tokenizer

Until = Callable[[Callable[[], bool]], None]


def url(running: Running) -> str:
    return f"http://127.0.0.1:{running.port}"


def chat(*options: str, said: str = "") -> Result:
    return CliRunner().invoke(main, ["chat", *options], input=said)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(0.0),
        Sampling(0.7, 40, 0.9, 3),
        Sampling(seed=2, min_p=0.05, presence_penalty=0.5, repetition_penalty=1.25, logit_bias={7: 3.5}),
    ],
)
def test_it_says_what_the_model_says_here(running: Running, sampling: Sampling) -> None:
    here = Conversation(running.model, "sail", sampling, 8)
    there = RemoteConversation(RemoteModel(url(running) + "/v1/"), "sail", sampling, 8)
    for text in ("the sea", "and waves?"):
        assert "".join(there.answer(text)) == "".join(here.answer(text))
    assert there.messages == here.messages and there.context == CONTEXT


def test_the_oldest_turns_are_left_out(running: Running) -> None:
    there = RemoteConversation(RemoteModel(url(running)), "sail", Sampling(0.0), 4)
    for number in range(6):
        list(there.answer(f"{number} " + "sea " * 40))
    assert there.left_out > 0 and len(there.messages) == 12
    with pytest.raises(RemoteError, match=rf"the prompt has \d+ tokens; the context has room for {CONTEXT}"):
        list(there.answer("sea " * CONTEXT))
    assert len(there.messages) == 12  # the question is forgotten


def test_the_command(running: Running) -> None:
    done = chat("--url", url(running), "--temperature", "0", "--max-tokens", "8", said="the sea\n/stats\n/exit\n")
    text = "".join(running.model.chat([{"role": "user", "content": "the sea"}], 8))
    assert done.exit_code == 0 and done.stdout.startswith(text.lstrip()) and "/metrics" in done.stderr


def test_what_the_command_refuses(running: Running) -> None:
    for options, code, problem in (
        (["--url", url(running), "--context", "5"], 2, "--url and --context exclude each other"),
        (["--url", url(running), "--adapter", "."], 2, "--url and --adapter exclude each other"),
        (["--url", url(running), "."], 2, "--url and MODEL exclude each other"),
        ([".", "--model-name", "x"], 2, "--model-name needs --url"),
        (["--url", url(running), "--model-name", "x"], 3, "has no model x; it has small"),
        (["--url", "ftp://x"], 3, "the URL is ftp://x; it must be like http://127.0.0.1:8000"),
        (["--url", "http://x:99999"], 3, "whose port is none"),
    ):
        done = chat(*options)
        assert done.exit_code == code and problem in done.output, done.output
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = chat("--url", f"http://127.0.0.1:{port}")
    assert done.exit_code == 3 and f"http://127.0.0.1:{port} cannot be reached (Connection refused)" in done.output


def test_keys(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tokenizer, keys=["secret"]) as (running, _):
        done = chat("--url", url(running))
        assert done.exit_code == 3 and "the request has no key that this server knows" in done.output
        assert chat("--url", url(running), "--api-key", "secret", said="/exit\n").exit_code == 0
        monkeypatch.setenv("NNCUDA_API_KEY", "secret")
        assert chat("--url", url(running), said="/exit\n").exit_code == 0


@pytest.mark.parametrize("begun", [False, True])
def test_stopping_an_answer_ends_it_there_too(tokenizer: Tokenizer, wait: Until, begun: bool) -> None:
    with serving(tokenizer, hold=True) as (running, steps):
        there, flag = RemoteConversation(RemoteModel(url(running))), threading.Event()
        if begun:
            steps.allow(40)
        else:
            threading.Timer(0.2, flag.set).start()
        pieces = []
        for piece in there.answer("the sea", flag):
            pieces.append(piece)
            flag.set()
        assert bool(pieces) == begun
        wait(lambda: running.server.service.running == 0 or bool(running.server.service._asked))
        steps.allow(100)
        wait(lambda: running.at_rest)
        assert steps.taken < 100


@contextmanager
def stranger(*answers: bytes) -> Iterator[str]:
    """A server that answers to each connection with these bytes, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    read_request(connection)  # closed with bytes unread, the connection would be reset
                    connection.sendall(answer)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


def read_request(connection: socket.socket) -> None:
    """All of it: its head, which may come in parts, and the body of the length that the head says."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += connection.recv(65536)
    head, _, body = found.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    left = int(length[1]) - len(body) if length else 0
    while left > 0:
        left -= len(connection.recv(65536))


def ok(body: object) -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + text


LISTED = ok({"data": [{"id": "other"}]})


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "cannot be reached"),
        (b"nothing like HTTP\r\n\r\n", "cannot be reached"),
        (b"HTTP/1.1 502 Bad\r\n\r\n<html>", "answered 502"),
        (ok(b"<html>"), "answered with something else than JSON"),
        (ok({"data": [1]}), "lists no models at /v1/models"),
        (ok({"data": []}), "has no model"),
        (b'HTTP/1.1 418 x\r\n\r\n{"error": {"message": "\\u001b[2J tea"}}', r"\\x1b\[2J tea"),
    ],
)
def test_strangers_that_list_no_models(answer: bytes, problem: str) -> None:
    with stranger(answer) as at, pytest.raises(RemoteError, match=problem):
        RemoteModel(at)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n', "broke off its answer"),
        (b"data: nonsense\n\n", "something else than JSON"),
        (b'data: {"error": {"message": "no more"}}\n\ndata: [DONE]\n\n', "no more"),
        (b'data: {"error": 5}\n\ndata: [DONE]\n\n', "failed"),
    ],
)
def test_strangers_whose_answers_are_wrong(answer: bytes, problem: str) -> None:
    with stranger(LISTED, ok(answer)) as at:
        model = RemoteModel(at)
        assert model.context is None
        with pytest.raises(RemoteError, match=problem):
            list(model.chat([{"role": "user", "content": "x"}]))


def test_what_others_send_besides_is_no_text() -> None:
    events = (b": comment\n\n", b'data: {"choices": []}\n\n', b'data: {"choices": [{"delta": {"content": null}}]}\n\n',
              b'event: x\ndata: {"choices": [{"delta": {"content": "a"}}]}\r\n\r\n', b"data: [DONE]\n\n")  # fmt: skip
    with stranger(LISTED, ok(b"".join(events))) as at:
        assert "".join(RemoteModel(at).chat([{"role": "user", "content": "x"}])) == "a"
