"""Log-probabilities, penalties and biases over HTTP: what the engine gives, in the forms of the two routes."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import openai
import pytest
from small_server import Running

from nncuda import Sampling
from nncuda.infer import TokenLogprobs
from nncuda.serve.logprobs import ChatLogprobs, CompletionLogprobs, TokenNames, finite
from nncuda.serve.wire import json_text

MESSAGES = [{"role": "user", "content": "the sea"}]
ASKED = {"prompt": "the sea", "max_tokens": 6, "temperature": 0, "ignore_eos": True}


def engine_events(running: Running, prompt: Any, **options: Any) -> list[Any]:
    return list(running.model.generate(prompt, 6, end_ids=(), **options))


def test_of_a_completion(running: Running) -> None:
    _, found = running.post("/v1/completions", {**ASKED, "logprobs": 2})
    (choice,) = found["choices"]
    logprobs = choice["logprobs"]
    assert list(logprobs) == ["tokens", "token_logprobs", "top_logprobs", "text_offset"]
    events = engine_events(running, "the sea", logprobs=2)
    assert logprobs["token_logprobs"] == [same_f32(event.logprobs.logprob) for event in events]
    names = TokenNames(running.model.tokenizer)
    assert logprobs["tokens"] == [names[event.token].name for event in events]
    for event, top, name in zip(events, logprobs["top_logprobs"], logprobs["tokens"], strict=True):
        assert list(top.items())[:2] == [(names[one].name, same_f32(value)) for one, value in event.logprobs.top]
        assert name in top  # greedy: it is the likeliest
    assert logprobs["text_offset"][0] == 0
    assert choice["text"] == "".join(event.text for event in events)


def same_f32(value: float) -> float:
    """What a reader of the decimal digits gets: a double that rounds to the same f32."""
    written = float(json_text(value))
    assert struct.pack("f", written) == struct.pack("f", value)
    return written


def test_of_a_prompt_that_is_echoed(running: Running) -> None:
    """As lm-evaluation-harness asks for them."""
    ids = running.model.encode("the sea is wide").tolist()
    wanted = running.model.logprobs("the sea is wide")
    for tokens in (0, 1):
        for stream in (False, True):
            asked = {"prompt": ids, "max_tokens": tokens, "echo": True, "logprobs": 1, "temperature": 0}
            body = running.request("POST", "/v1/completions", {**asked, "ignore_eos": True, "stream": stream})[2]
            if stream:
                parts = [json.loads(part[6:]) for part in body.decode().split("\n\n")[:-2]]
                logprobs = parts[0]["choices"][0]["logprobs"]
            else:
                logprobs = json.loads(body)["choices"][0]["logprobs"]
            assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
            assert logprobs["token_logprobs"][1 : len(ids)] == [same_f32(one.logprob) for one in wanted[1:]]
            assert len(logprobs["tokens"]) == len(ids) + tokens


def test_of_a_chat(running: Running) -> None:
    asked = {"messages": MESSAGES, "max_tokens": 6, "temperature": 0, "ignore_eos": True, "logprobs": True}
    _, found = running.post("/v1/chat/completions", {**asked, "top_logprobs": 3})
    logprobs = found["choices"][0]["logprobs"]
    assert list(logprobs) == ["content", "refusal"]
    events = engine_events(running, running.model.chat_ids(MESSAGES), logprobs=3)
    for entry, event in zip(logprobs["content"], events, strict=True):
        assert list(entry) == ["token", "logprob", "bytes", "top_logprobs"]
        assert entry["logprob"] == same_f32(event.logprobs.logprob)
        assert [one["logprob"] for one in entry["top_logprobs"]] == [same_f32(value) for _, value in event.logprobs.top]
    text = b"".join(bytes(entry["bytes"]) for entry in logprobs["content"])
    assert text.decode(errors="replace") == found["choices"][0]["message"]["content"]
    streamed = running.request("POST", "/v1/chat/completions", {**asked, "stream": True})[2].decode().split("\n\n")
    content = []
    for part in streamed[:-2]:
        (choice,) = json.loads(part[6:])["choices"]
        content += (choice["logprobs"] or {"content": []})["content"]
    assert [entry["logprob"] for entry in content] == [entry["logprob"] for entry in logprobs["content"]]
    assert all(entry["top_logprobs"] == [] for entry in content)


def test_the_official_client_reads_them(running: Running) -> None:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", api_key="none", max_retries=0) as client:
        whole = client.chat.completions.create(
            model="small",
            messages=MESSAGES,
            max_tokens=4,
            logprobs=True,
            top_logprobs=2,  # type: ignore[arg-type]
        )
        assert whole.choices[0].logprobs is not None and whole.choices[0].logprobs.content is not None
        assert all(len(entry.top_logprobs) == 2 for entry in whole.choices[0].logprobs.content)
        done = client.completions.create(model="small", prompt="the sea", max_tokens=4, logprobs=1, echo=True)
        assert done.choices[0].logprobs is not None and done.choices[0].logprobs.token_logprobs is not None


@pytest.mark.parametrize(
    "options",
    [
        {"min_p": 0.2},
        {"presence_penalty": 1.5},
        {"frequency_penalty": -1.25},
        {"repetition_penalty": 1.5},
        {"logit_bias": {7: 40.5, 9: -3}},
    ],
)
def test_options_of_drawing(running: Running, options: dict[str, Any]) -> None:
    sent = {name: {str(key): one for key, one in value.items()} if name == "logit_bias" else value
            for name, value in options.items()}  # fmt: skip
    asked = {**ASKED, "temperature": 1, "max_tokens": 30, "seed": 3}
    _, plain = running.post("/v1/completions", asked)
    _, found = running.post("/v1/completions", {**asked, **sent})
    wanted = "".join(
        event.text for event in running.model.generate("the sea", 30, Sampling(seed=3, **options), end_ids=())
    )
    assert found["choices"][0]["text"] == wanted != plain["choices"][0]["text"]


def test_numbers_are_the_shortest_of_an_f32() -> None:
    for value, text in (
        (-0.1, "-0.1"), (-1e-7, "-0.0000001"), (-1.0, "-1"), (-16777216.0, "-16777216"), (0.0, "0"), (-9999.0, "-9999"),
        (float(np.float32(-2.3456789)), "-2.3456788"), (1e-40, "0.0000000000000000000000000000000000000001"),
    ):  # fmt: skip
        assert json_text(value) == text
    assert [finite(value) for value in (float("-inf"), float("nan"), -1e30, -1.5)] == [-9999, -9999, -9999, -1.5]
    assert json_text(finite(-0.0)) == "0"


def test_names_and_bytes(running: Running) -> None:
    """Also of tokens that are a part of a character, or none at all."""
    tokenizer = running.model.tokenizer
    names = TokenNames(tokenizer)
    ids = tokenizer.encode("größe \U0001f30a")
    assert b"".join(names[token].bytes for token in ids).decode() == "größe \U0001f30a"
    assert "".join(names[token].text for token in tokenizer.encode("the sea")) == "the sea"
    assert names[tokenizer.encode("\U0001f30a")[-1]].name == "bytes:\\x8a"
    assert names[tokenizer.end_id].name == "</s>" and names[tokenizer.end_id].bytes == b""
    assert names[5000].name == "token_id:5000" and TokenNames(None)[3].name == "token_id:3"


def test_alternatives_of_one_name() -> None:
    """The likeliest of them stands."""
    names = TokenNames(None)
    names._known = {token: type(names[0])("x", "x", b"x") for token in range(3)}
    scored = [(2, TokenLogprobs(-3.0, ((0, -1.0), (1, -2.0))))]
    assert CompletionLogprobs(names).of(scored)["top_logprobs"] == [{"x": -1.0}]
    assert len(ChatLogprobs(names).of(scored)["content"][0]["top_logprobs"]) == 2
