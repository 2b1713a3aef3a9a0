"""Servers of other languages answer as Python's does, to the byte: texts, streams, refusals, at any concurrency."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import languages
import pytest
from conftest import find

from nncuda.bench.random_model import Shape, write_folder

SHAPE = Shape(layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, vocabulary=600, context=256)
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role | upper }}] {{ m['content'].strip() }}\n{% endfor %}"
    "{% if messages[0].content == 'fail' %}{{ raise_exception('no such thing') }}{% endif %}[ASSISTANT]"
)
TEXTS = ["the sea", "a small ship sails the wide sea, " * 3, "waves", 'die größte Welle: \U0001f30a \\ "quoted"\n\t']
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
SERVING = [name for name in languages.SERVING if name != "python"]

Asked = tuple[str, dict[str, Any]]


class Served:
    """A server by its port, with what it has written to its log."""

    def __init__(self, process: subprocess.Popen[str]):
        self.process = process
        self.log: deque[str] = deque(maxlen=400)
        self._ready = threading.Event()
        self.port = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._ready.wait(60) and self.port, "".join(self.log)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            found = re.match(r"serving \S+ on http://127\.0\.0\.1:(\d+)$", line.strip())
            if found is not None:
                self.port = int(found[1])
                self._ready.set()
        self._ready.set()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            sent = {"content-type": "application/json"} if body is not None else {}
            connection.request(method, path, body, {**sent, **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def post(self, asked: Asked) -> tuple[int, bytes]:
        return self.request("POST", asked[0], json.dumps(asked[1]).encode())

    def wait_for_log(self) -> None:
        """Of a server that has ended."""
        self._reader.join(60)

    def end(self) -> None:
        """SIGTERM ends it, and well."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, "".join(self.log)


@contextlib.contextmanager
def served(language: str, folder: Path, *options: object) -> Iterator[Served]:
    process = find(language).start("serve", folder, "--port", 0, "--model-name", "small", *options)
    try:
        found = Served(process)
        yield found
        found.end()
    finally:
        process.kill()
        process.wait()


def of_schema(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **more}}


FORMATS = [
    {"type": "json_object"},
    of_schema({"type": "object", "properties": {"größe": {"enum": ["Welle 🌊", 1.5, None]}, "waves": {"type": "array",
               "items": {"type": "integer", "minimum": -3, "maximum": 99}, "maxItems": 2}}, "required": ["größe"],
               "additionalProperties": False}),
    of_schema({"$ref": "#/$defs/list", "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}}},
              strict=True),
    of_schema({"type": "string", "pattern": "^[a-c]{2,9}x?$", "description": 'with a "quote"'}, description="letters"),
    of_schema({"anyOf": [{"type": "number", "exclusiveMinimum": 0.125, "maximum": 1e6}, {"const": {"a": [True]}}]}),
]  # fmt: skip


def requests() -> list[Asked]:
    """Requests of all kinds."""
    found: list[Asked] = []
    for number in range(32):
        common: dict[str, Any] = {
            "seed": number % 5,
            "temperature": (0, 1, 0.7)[number % 3],
            "n": 1 + number % 3,
            "stream": number % 4 != 3,
            "ignore_eos": number % 2 == 0,
            "stop": ["e", "wa"] if number % 5 == 0 else None,
        }
        if number % 4 in (1, 3):
            common |= {"top_p": 0.9} if number % 2 else {"top_k": 20}
        if number % 6 in (1, 2):
            common |= {"min_p": 0.05, "presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.25}
        if number % 5 == 2:
            common["logit_bias"] = {"40": 3.5, "41": -100}
        if number % 3 == 1:
            common |= {"logprobs": True, "top_logprobs": number % 4} if number % 2 else {"logprobs": number % 4}
        if common["stream"] and number % 2:
            common["stream_options"] = {"include_usage": True}
        if number % 3 == 0 and number % 16:
            common["response_format"] = FORMATS[number // 3 % len(FORMATS)]
        text = TEXTS[number % len(TEXTS) if number % 16 else 3]
        if number % 2:
            messages = [{"role": "developer", "content": "sail"}, {"role": "user", "content": text}]
            found.append((CHAT, {**common, "messages": messages, "max_tokens": 20 + number}))
        else:
            prompt = text if number % 8 else [text, [3, 4, 5]]
            asked = {"prompt": prompt, "max_tokens": number and 20 + number, "echo": number % 16 == 0}
            found.append((COMPLETIONS, {**common, **asked}))
    long = {"prompt": [7] * 250, "max_tokens": 1000, "ignore_eos": True}
    return [
        *found,
        (COMPLETIONS, long),
        ("/tokenize", {"prompt": TEXTS[3], "return_token_strs": True}),
        ("/tokenize", {"prompt": "", "add_special_tokens": False}),
        ("/detokenize", {"tokens": [5, 300, 401, 599]}),
    ]


def unenforceable() -> list[Any]:
    """Schemas that llguidance does not take."""
    deep: dict[str, Any] = {}
    for _ in range(130):
        deep = {"items": deep}
    return [
        deep, {"not": {}}, {"type": "wrong"}, {"type": 3}, {"format": "x", "type": "string"},
        {"$ref": "https://example.org/x"}, {"$ref": "#/$defs/none"}, {"type": "string", "pattern": "(?=a)"},
        {"type": "string", "pattern": "("}, {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        {"minimum": 3, "maximum": 2, "type": "integer"}, {"enum": []}, {"type": "array", "uniqueItems": True},
        {"minimum": 1e400}, {"minimum": 10**30, "maximum": -(10**30), "type": "number"}, {"properties": []},
        {"not": {}, "x-guidance": {"lenient": True}}, {"$ref": "#"}, {"enum": list(range(5000))},
        {"enum": [[{"a": number}] for number in range(1000)], "const": 3},
    ]  # fmt: skip


CHATTED = {"messages": [{"role": "user", "content": "x"}]}


def refused() -> list[Asked]:
    """Requests that are refused, each for another reason."""
    prompts: list[Any] = [None, [], [[]], [600], [-1, 3], ["a", 3], [3, True], 5, {"a": 1}, [10**30], "word " * 300]
    wrong: list[dict[str, Any]] = [
        {"temperature": 5}, {"temperature": "1"}, {"temperature": True}, {"temperature": -1e-7}, {"top_p": 0},
        {"top_p": 1.5e300}, {"n": 0}, {"n": 1.0}, {"n": 128}, {"n": 10**25}, {"seed": 2**63}, {"seed": 0.5},
        {"max_tokens": -1}, {"stream": 1}, {"stop": [""]}, {"stop": ["x"] * 17}, {"stop": {"ö\n\x01\x7f/": None}},
        {"stop": "x" * 1025}, {"logit_bias": {"01": 1}}, {"logit_bias": {"3": 101}}, {"logit_bias": {"600": 1}},
        {"logit_bias": []}, {"logprobs": 21}, {"stream_options": {"include_usage": True}},
        {"stream": True, "stream_options": 3},
        {"stream": True, "stream_options": {"more": 1}},
        {"stream": True, "stream_options": {"include_obfuscation": True}},
        {"stream": True, "stream_options": {"include_usage": 1}}, {"model": "other"}, {"model": 3}, {"user": "x" * 257},
        {"best_of": 2}, {"best_of": True}, {"suffix": "x"}, {"unknown": 1}, {"x" * 300: 1}, {"echo": 1.5e-9},
        {"response_format": {"type": "other"}}, {"response_format": {"type": "text", "more": 1}},
        {"response_format": 3},
        *({"response_format": of_schema(schema)} for schema in unenforceable()),
        *({"response_format": {"type": "json_schema", **one}} for one in (
            {}, {"json_schema": 3}, {"json_schema": {}}, {"json_schema": {"schema": []}}, {"more": 1},
            {"json_schema": {"schema": {}, "strict": 1}}, {"json_schema": {"schema": {}, "name": 2.5}},
            {"json_schema": {"schema": {}, "description": {}}}, {"json_schema": {"schema": {}, "x" * 300: 1}},
        )),
        {"temperature": [1.0, 123456789012345680.0, 1e22, -0.0, 0.0001, 0.00001, "€" * 80]},
    ]  # fmt: skip
    talk: list[dict[str, Any]] = [
        {"tools": [{}]}, {"tool_choice": {"a": [1, 2.5]}}, {"modalities": ["audio"]}, {"store": True}, {"store": 0},
        {"metadata": {"a": "b"}}, {"parallel_tool_calls": False}, {"top_logprobs": 2}, {"logprobs": 2},
        {"max_tokens": 3, "max_completion_tokens": 3}, {"max_tokens": 0}, {"messages": []}, {"messages": "x"},
        {"messages": ["x"]}, {"messages": [{"role": "tool", "content": "x"}]}, {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": []}]}, {"messages": [{"role": "user", "content": "x", "name": "y"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, {"messages": [{"content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}]},
        {"messages": [{"role": ["user"], "content": ""}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "", "more": 3}]}]},
        {"messages": [{"role": "assistant", "content": "x", "tool_calls": [1]}]},
        {"messages": [{"role": "user", "content": "word " * 300}]},
    ]  # fmt: skip
    return [
        *((COMPLETIONS, {"prompt": prompt}) for prompt in prompts),
        *((COMPLETIONS, {"prompt": "x", **one}) for one in wrong),
        *((CHAT, {**CHATTED, **one}) for one in talk),
        (COMPLETIONS, {}), (CHAT, {"messages": None}), ("/tokenize", {"prompt": ["x"]}), ("/tokenize", {"tokens": []}),
        ("/detokenize", {"tokens": [3, 600]}), ("/detokenize", {"tokens": [3, 1.0]}), ("/detokenize", {"tokens": "x"}),
    ]  # fmt: skip


#: Bodies that are refused before their fields are looked at, or that only just are not.
BODIES = [
    b"", b"{", b"[]", b"3", b'{"prompt": "x"} {}', b'{"prompt": 1, "prompt": 2}', b'{"prompt": "\xff"}',
    rb'{"prompt": "\ud800"}', rb'{"prompt": "\udc00\ud800"}', rb'{"user": "\\ud800", "prompt": 3}',
    rb'{"prompt": "\ud83c\udf0a", "n": 0}', b'{"prompt": ' + b"[" * 600 + b"]" * 600 + b"}", b'{"prompt": 01}',
    b'{"prompt": 1e999}', b'{"prompt": Infinity}', b'{"prompt": "x",}', b'{"prompt": "a\nb"}', b"\xef\xbb\xbf{}",
]  # fmt: skip


def neutral(found: tuple[int, bytes]) -> tuple[int, bytes]:
    """Without ids and times."""
    status, body = found
    body = re.sub(rb'"id":"(cmpl|chatcmpl)-[0-9a-f]{32}"', b'"id":"ID"', body)
    return status, re.sub(rb'"created":\d{10}', b'"created":0', body)


@pytest.fixture(scope="module", params=["plain", "template"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama") / "model"
    write_folder(path, SHAPE)
    if request.param == "template":
        (path / "chat_template.jinja").write_text(TEMPLATE)
    return path


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[tuple[int, bytes]]:
    """What Python answers, one request after the other on one thread."""
    with served("python", folder, "--max-batch", 1, "--threads", 1) as server:
        return [neutral(server.post(asked)) for asked in requests()]


@pytest.mark.case("bodies of a server's answers")
@pytest.mark.parametrize("language", SERVING)
def test_the_same_bytes(folder: Path, expected: list[tuple[int, bytes]], language: str) -> None:
    """One at a time with a batch of one, eight at once with a batch of five, and again with a warm cache."""
    assert {status for status, _ in expected} == {200}
    with served(language, folder, "--max-batch", 1, "--threads", 1) as server:
        alone = [neutral(server.post(asked)) for asked in requests()]
    assert alone == expected
    with served(language, folder, "--max-batch", 5, "--threads", 2) as server, ThreadPoolExecutor(8) as pool:
        for _ in range(2):
            together = list(pool.map(lambda asked: neutral(server.post(asked)), requests()))
            assert together == expected
        assert idle(server)


def idle(server: Served) -> bool:
    """Whether no request holds a place or pages, a moment after the last one has its answer."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        lines = server.request("GET", "/metrics")[1].decode().splitlines()
        held = [float(line.split()[-1]) for line in lines if re.match(r"nncuda_(requests|cache_usage)\w+\{", line)]
        assert len(held) == 3
        if held == [0.0] * 3:
            return True
    return False


@pytest.mark.case("what a server refuses")
@pytest.mark.parametrize("language", SERVING)
def test_the_same_refusals(folder: Path, language: str) -> None:
    failing = (CHAT, {"messages": [{"role": "user", "content": "fail"}]})
    with (
        served("python", folder, "--max-queue", 20) as server,
        served(language, folder, "--max-queue", 20) as other,
    ):
        answers = [(asked, server.post(asked), other.post(asked)) for asked in refused()]
        assert not [one for one in answers if one[1][0] not in (400, 404)]
        assert not [one for one in answers if one[1] != one[2]]
        for body in BODIES:
            wanted = server.request("POST", COMPLETIONS, body)
            assert wanted[0] == 400 and other.request("POST", COMPLETIONS, body) == wanted, body
        for method, path, headers in (
            ("GET", "/nowhere", {}), ("GET", COMPLETIONS, {}), ("POST", "/v1/models", {}),
            ("GET", "/v1/models/other", {}),
            ("GET", "/health", {"host": "example.org"}), ("GET", "/health", {"host": "[::1]:80"}), ("PUT", "/", {}),
            ("GET", "/health", {f"x-{number}": "y" for number in range(101)}), ("GET", "/health/ready", {}),
            ("GET", "/v1/models", {}), ("GET", "/v1/models/small", {}), ("GET", "/", {}), ("HEAD", "/", {}),
            ("GET", "/%E2%82%AC", {}),
            ("POST", COMPLETIONS, {"content-length": "5000000", "content-type": "application/json"}),
            ("POST", COMPLETIONS, {"content-length": "0", "content-type": "text/plain"}),
        ):  # fmt: skip
            wanted, found = (neutral(one.request(method, path, headers=headers)) for one in (server, other))
            assert found == wanted, (method, path, headers)
        # Python's counts a head that comes in several parts only.
        status, body = other.request("GET", "/health", headers={"x": "y" * 17000})
        assert (status, json.loads(body)["error"]["code"]) == (431, "headers_too_large")
        wanted, found = (neutral(one.post(failing)) for one in (server, other))
        assert found[0] == wanted[0] and found[0] == (400 if (folder / "chat_template.jinja").exists() else 200)


@pytest.mark.case("what a server refuses")
def test_go_without_llguidance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would have to see to is refused by name; all else is served."""
    monkeypatch.setenv("NNCUDA_LLGUIDANCE", "/nowhere/libllguidance.so")
    with served("go", folder) as server:
        for format in FORMATS:
            status, body = server.post((CHAT, {**CHATTED, "response_format": format}))
            error = json.loads(body)["error"]
            assert (status, error["param"], error["code"]) == (400, "response_format", "unsupported_field")
            assert "found no libllguidance.so" in error["message"]
        asked = {**CHATTED, "response_format": {"type": "text"}, "max_tokens": 3}
        assert server.post((CHAT, asked))[0] == 200


@pytest.mark.case("who may ask a server")
@pytest.mark.parametrize("language", languages.SERVING)
def test_keys(folder: Path, language: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# mine\nfirst\n\n second \n")
    with served(language, folder, "--api-key", "third", "--api-key-file", tmp_path / "keys", "--no-page") as server:
        for key, status in (("Bearer second", 200), ("bearer third", 200), ("Bearer other", 401), ("third", 401)):
            headers = {"authorization": key, "host": "example.org"}
            assert server.request("GET", "/v1/models", headers=headers)[0] == status, key
        assert server.request("GET", "/v1/models")[0] == 401
        assert server.request("GET", "/health")[0] == 200
        assert server.request("GET", "/", headers={"authorization": "Bearer first"})[0] == 404
    run = find(language).run
    for options, words in (
        (["--host", "0.0.0.0"], "others can reach 0.0.0.0: give an --api-key or --api-key-file, or --no-auth"),
        (["--no-auth", "--api-key", "x"], "--no-auth and API keys exclude each other"),
        (["--api-key", "ö"], "an API key must be of visible ASCII characters, at least one"),
    ):
        assert words in run("serve", folder, *options, code=2).stderr
    too_small = run("serve", folder, "--port", 0, "--cache-tokens", 1, "--max-batch", 1, code=None)
    assert too_small.returncode != 0 and "cache_tokens" in too_small.stderr


def metrics_of(server: Served, requests: int) -> list[str]:
    """Its metrics when it has counted so many requests, which it does a moment after each has its answer; without those
    for metrics themselves."""
    end = time.monotonic() + 60
    while True:
        text = server.request("GET", "/metrics")[1].decode()
        lines = [line for line in text.splitlines() if not line.startswith("#") and 'route="/metrics"' not in line]
        counts = [float(line.split()[-1]) for line in lines if line.startswith("nncuda_http_requests_total{")]
        if sum(counts) >= requests:
            return lines
        assert time.monotonic() < end, text


@pytest.mark.case("a server's log, metrics and end")
@pytest.mark.parametrize(
    "language", [name for name in SERVING if name != "rust"]
)  # docs/serving.md says what its log lacks
def test_what_operators_see(folder: Path, language: str) -> None:
    """The same series of metrics, and records of the log with the same keys."""
    seen: list[tuple[set[frozenset[str]], list[Any]]] = []
    texts = {"prompt": [3, 4, 5], "n": 3, "max_tokens": 2, "ignore_eos": True, "user": "some one"}
    for name in ("python", language):
        with served(name, folder, "--log-format", "json", "--max-batch", 1, "--threads", 1) as server:
            for asked in ((COMPLETIONS, texts), (CHAT, {**CHATTED, "n": 0}), ("/tokenize", {"prompt": "x"})):
                server.post(asked)
            server.request("GET", "/nothing")
            lines = metrics_of(server, 4)
        server.wait_for_log()
        # Labels stand in any order.
        series = {frozenset(re.split("[{},]", line.rsplit(" ", 1)[0])) for line in lines}
        # As the requests end, which is a moment after their answers, and so in an order of its own; the signal is last.
        records = [json.loads(line) for line in server.log if line.startswith("{")]
        assert records[-1]["message"] == "SIGTERM: shutting down"
        records = [record for record in records if record.get("path") != "/metrics"]
        kept = (
            "status",
            "method",
            "path",
            "user",
            "prompt_tokens",
            "shared_tokens",
            "tokens",
            "finish",
            "error",
            "message",
        )
        found = [(list(one), {key: one[key] for key in kept if key in one}) for one in records]
        seen.append((series, sorted(found, key=str)))
    assert seen[0][0] == seen[1][0] and len(seen[0][0]) > 100
    assert seen[0][1] == seen[1][1] and len(seen[0][1]) == 5


@pytest.mark.case("a server's log, metrics and end")
@pytest.mark.parametrize("language", languages.SERVING)
def test_sigterm_while_texts_are_written(folder: Path, language: str) -> None:
    """They are cut after --drain-seconds, and it still ends well."""
    with served(language, folder, "--drain-seconds", 0.2, "--max-queue", 4000, "--max-batch", 4) as server:
        body = json.dumps({"prompt": [[1, 2, 3]] * 30, "n": 128, "max_tokens": 250, "ignore_eos": True})
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", COMPLETIONS, body, {"content-type": "application/json"})
        while b'nncuda_requests_running{model_name="small"} 0.0' in server.request("GET", "/metrics")[1]:
            pass
        server.end()
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["error"]["code"]) == (503, "draining")
