"""/v1/embeddings of a running server."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import openai
import pytest
from small_server import CONTEXT, Running, serving

from nncuda.tokenizer import Tokenizer

PATH = "/v1/embeddings"
INPUTS: list[Any] = ["the sea", "a small ship sails the wide sea, " * 12, [5, 6, 7], "waves"]


def vectors(running: Running, **asked: Any) -> np.ndarray:
    status, found = running.post(PATH, asked)
    assert status == 200, found
    return np.array([one["embedding"] for one in found["data"]], np.float32)


def test_what_an_answer_is(running: Running) -> None:
    status, headers, body = running.request("POST", PATH, {"input": INPUTS, "model": "small"})
    found = json.loads(body)
    assert status == 200 and headers["content-type"] == "application/json"
    assert list(found) == ["object", "data", "model", "usage"] and (found["object"], found["model"]) == (
        "list",
        "small",
    )
    assert [list(one) for one in found["data"]] == [["object", "index", "embedding"]] * 4
    assert [(one["object"], one["index"]) for one in found["data"]] == [("embedding", at) for at in range(4)]
    tokens = sum(len(running.model.encode(one)) for one in INPUTS)
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    wanted = running.model.embed(INPUTS)
    assert np.array([one["embedding"] for one in found["data"]], np.float32).tobytes() == wanted.tobytes()
    assert np.abs(np.linalg.norm(wanted.astype(np.float64), axis=1) - 1).max() < 1e-6
    assert running.at_rest


def test_every_form_of_input(running: Running) -> None:
    ids = running.model.encode("the sea").tolist()
    texts = ("the sea", ["the sea"], ids, [ids])
    found = {vectors(running, input=one, encoding_format="float", user="Ann").tobytes() for one in texts}
    assert len(found) == 1


def test_base64_is_f32(running: Running) -> None:
    _, found = running.post(PATH, {"input": INPUTS, "encoding_format": "base64"})
    for one, wanted in zip(found["data"], running.model.embed(INPUTS), strict=True):
        assert base64.b64decode(one["embedding"], validate=True) == wanted.astype("<f4").tobytes()


def test_the_same_bytes_alone_and_together(tokenizer: Tokenizer) -> None:
    """With other vectors and texts, a warm cache, any batch."""
    asked = [{"input": INPUTS[number % 4 :]} for number in range(16)]
    with serving(tokenizer, max_batch=1, threads=1) as (running, _):
        alone = [running.request("POST", PATH, one)[2] for one in asked]
    for max_batch in (3, 16):
        with serving(tokenizer, max_batch=max_batch) as (running, _), ThreadPoolExecutor(16) as pool:
            writing = [
                pool.submit(running.post, "/v1/completions", {"prompt": one, "max_tokens": 30}) for one in INPUTS[:2]
            ]
            for _ in range(2):
                assert list(pool.map(lambda one: running.request("POST", PATH, one)[2], asked)) == alone
            assert [one.result()[0] for one in writing] == [200, 200]


def test_what_is_refused(running: Running) -> None:
    for body, code, param in (
        ({}, "missing_field", "input"),
        ({"input": []}, "invalid_value", "input"),
        ({"input": {}}, "invalid_value", "input"),
        ({"input": ["x", 3]}, "invalid_value", "input[1]"),
        ({"input": [[]]}, "empty_prompt", "input"),
        ({"input": ["x", []]}, "empty_prompt", "input[1]"),
        ({"input": [1, 280]}, "invalid_value", "input[1]"),
        ({"input": [1] * (CONTEXT + 1)}, "context_length_exceeded", "input"),
        ({"input": ["x", "sea " * CONTEXT]}, "context_length_exceeded", "input[1]"),
        ({"input": ["x"] * 300}, "too_many_choices", None),
        ({"input": "x", "dimensions": 8}, "unsupported_field", "dimensions"),
        ({"input": "x", "encoding_format": "hex"}, "invalid_value", "encoding_format"),
        ({"input": "x", "encoding_format": ["float"]}, "invalid_value", "encoding_format"),
        ({"input": "x", "model": "gpt"}, "model_not_found", "model"),
        ({"input": "x", "stream": True}, "unknown_field", "stream"),
    ):
        error = running.error(PATH, body)
        assert (error["code"], error["param"]) == (code, param), error
        assert error["status"] == (404 if code == "model_not_found" else 400)
    assert running.error(PATH, {"input": "x", "encoding_format": "hex"})["message"] == (
        'encoding_format is "hex"; it must be "float" or "base64"'
    )
    assert running.at_rest


def test_a_model_without_a_tokenizer() -> None:
    with serving(None) as (running, _):
        assert vectors(running, input=[1, 2, 3]).shape[0] == 1
        assert running.error(PATH, {"input": "x"})["code"] == "no_tokenizer"


def test_a_vector_that_is_none(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nncuda.infer.pooling.Pool.vector", lambda self: np.array([1, np.nan], np.float32))
    error = running.error(PATH, {"input": "x"})
    assert (error["status"], error["code"]) == (500, "internal_error")


def test_who_leaves_frees_the_places(tokenizer: Tokenizer, wait: Callable[[Callable[[], bool]], None]) -> None:
    with serving(tokenizer, hold=True) as (running, steps):
        connection = running.connection()
        body = json.dumps({"input": [[7] * 300] * 6})
        connection.request("POST", PATH, body, {"content-type": "application/json"})
        wait(lambda: steps.held)
        assert running.server.service.waiting + running.server.service.running == 6
        connection.close()
        wait(lambda: all(one.cancelled for one in running.server.service._open))
        steps.allow()
        wait(lambda: running.at_rest)
        assert steps.taken == 1


def test_a_full_queue(tokenizer: Tokenizer) -> None:
    with serving(tokenizer, hold=True, max_queue=0) as (running, steps), ThreadPoolExecutor(1) as pool:
        first = pool.submit(running.post, PATH, {"input": ["x"] * 3})
        while not steps.held:
            pass
        status, headers, _ = running.request("POST", PATH, {"input": ["x"] * 2})
        assert (status, headers["retry-after"]) == (429, "1")
        steps.free()
        assert first.result()[0] == 200


def test_the_log_and_the_metrics(tokenizer: Tokenizer, log: list[dict[str, Any]]) -> None:
    with serving(tokenizer) as (running, _):
        running.post(PATH, {"input": [[3, 4, 5], [6] * 200], "user": "Ann"})
        running.post("/v1/completions", {"prompt": [6] * 200, "max_tokens": 1})
        _, _, text = running.request("GET", "/metrics")
        assert running.metric("nncuda_prompt_tokens_total") + running.metric("nncuda_prefix_hits_total") == 403
        assert running.metric("nncuda_prefix_hits_total") >= 128
    line = next(record for record in log if record.get("path") == PATH)
    assert (line["status"], line["user"], line["prompt_tokens"], line["shared_tokens"]) == (200, "Ann", 203, 0)
    assert (line["tokens"], line["finish"], line["id"], line["first_seconds"]) == (0, "length", None, None)
    assert 0 <= line["queue_seconds"] <= line["seconds"]
    assert b'nncuda_texts_total{finish="length",model_name="small"} 3.0' in text
    assert b'nncuda_http_requests_total{model_name="small",route="/v1/embeddings",status="200"} 1.0' in text


def test_the_official_client(running: Running) -> None:
    """It asks for base64 unless told otherwise."""
    with openai.OpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", api_key="none", max_retries=0) as client:
        wanted = running.model.embed(INPUTS[:2])
        for more in ({}, {"encoding_format": "float"}):
            found = client.embeddings.create(model="small", input=INPUTS[:2], **more)  # type: ignore[call-overload]
            numbers = np.array([one.embedding for one in found.data], np.float32)
            assert numbers.tobytes() == wanted.tobytes() and found.usage.total_tokens == found.usage.prompt_tokens
        with pytest.raises(openai.BadRequestError) as bad:
            client.embeddings.create(model="small", input="x", dimensions=3)
        assert (bad.value.param, bad.value.code) == ("dimensions", "unsupported_field")


def test_it_ends_while_vectors_are_made(tokenizer: Tokenizer) -> None:
    with serving(tokenizer, hold=True, drain_seconds=0.05) as (running, steps), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(running.post, PATH, {"input": "x"})
        while not steps.held:
            pass
        running.server.stop()
        try:
            status, found = asked.result()
            assert (status, found["error"]["code"]) == (503, "draining")
        except http.client.HTTPException:
            pytest.fail("the connection was closed without an answer")
        steps.free()
