"""An answer's bytes depend on its request alone: not on who else is served, nor on what the cache holds."""

from __future__ import annotations

import http.client
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from small_server import Running, serving

from nncuda.tokenizer import Tokenizer

TEXTS = ["the sea", "a small ship sails the wide sea, " * 6, "waves", 'die größte Welle: \U0001f30a \\ "quoted"\n\t']


def requests() -> list[tuple[str, dict[str, Any]]]:
    """Requests of all kinds."""
    found: list[tuple[str, dict[str, Any]]] = []
    for number in range(32):
        common = {
            "seed": number % 5,
            "temperature": (0, 1, 0.7)[number % 3],
            "n": 1 + number % 3,
            "stream": number % 4 != 3,
            "ignore_eos": number % 2 == 0,
            "stop": ["ship", "wa"] if number % 5 == 0 else None,
        }
        if number % 4 in (1, 3):
            common |= {"top_p": 0.9} if number % 2 else {"top_k": 20}
        if number % 6 in (1, 2):
            common |= {"min_p": 0.05, "presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.25}
        if number % 7 == 3:
            common["response_format"] = {"type": "json_object"}
        if number % 5 == 2:
            common["logit_bias"] = {"40": 3.5, "41": -100}
        if number % 3 == 1:
            common |= {"logprobs": True, "top_logprobs": number % 4} if number % 2 else {"logprobs": number % 4}
        if common["stream"] and number % 2:
            common["stream_options"] = {"include_usage": True, "continuous_usage_stats": number % 3 == 0}
        text = TEXTS[number % len(TEXTS) if number % 16 else 3]
        if number % 2:
            messages = [{"role": "system", "content": "sail " * 40}, {"role": "user", "content": text}]
            found.append(("/v1/chat/completions", {**common, "messages": messages, "max_tokens": 20 + number}))
        else:
            prompt = text if number % 8 else [text, [3, 4, 5]]
            asked = {"prompt": prompt, "max_tokens": 20 + number, "echo": number % 16 == 0}
            found.append(("/v1/completions", {**common, **asked}))
    for number in range(6):
        how = {
            "seed": number,
            "stream": number % 2 == 0,
            "max_output_tokens": 20 + number,
            "instructions": "sail " * 40,
        }
        if number % 3 == 1:
            how |= {"include": ["message.output_text.logprobs"], "top_logprobs": number % 4}
        if number == 5:
            how["text"] = {"format": {"type": "json_object"}}
        found.append(("/v1/responses", {"input": TEXTS[number % 4], "ignore_eos": number < 3, **how}))
    return found


def neutral(body: bytes) -> bytes:
    """A body without its id and time, each of which must be there."""
    body, ids = re.subn(rb'"id":"(cmpl-|chatcmpl-|resp_)[0-9a-f]{32}"', b'"id":"ID"', body)
    body, times = re.subn(rb'"created(_at)?":\d{10}', b'"created":0', body)
    assert ids == times > 0
    body = re.sub(rb'"completed_at":\d{10}', b'"completed_at":0', body)
    return re.sub(rb'"msg_[0-9a-f]{32}"', b'"MSG"', body)


def answer(running: Running, asked: tuple[str, dict[str, Any]]) -> bytes:
    status, _, body = running.request("POST", *asked)
    assert status == 200, body
    return neutral(body)


@pytest.fixture(scope="module")
def alone(tokenizer: Tokenizer) -> list[bytes]:
    """The answers of a server that has one place and one thread, one after the other, its cache always cold."""
    with serving(tokenizer, max_batch=1, threads=1) as (running, _):
        answers = []
        for asked in requests():
            answers.append(answer(running, asked))
            running.model.engine.cache.forget()
        return answers


@pytest.mark.parametrize("max_batch", [1, 5, 32])
def test_the_same_bytes_together(tokenizer: Tokenizer, alone: list[bytes], max_batch: int) -> None:
    """32 at once, and again with a warm cache, in another order."""
    with serving(tokenizer, max_batch=max_batch) as (running, _), ThreadPoolExecutor(32) as pool:
        together = list(pool.map(lambda asked: answer(running, asked), requests()))
        assert together == alone
        backwards = list(pool.map(lambda asked: answer(running, asked), reversed(requests())))
        assert backwards[::-1] == alone
        assert running.model.scheduler.statistics.shared_tokens > 0


def test_how_answers_are_written(alone: list[bytes]) -> None:
    """Compact JSON, in UTF-8, that escapes only what must be."""
    seen = set()
    for body, (_, asked) in zip(alone, requests(), strict=True):
        parts = [body]
        if asked["stream"]:
            parts = [part.split(b"data: ", 1)[1] for part in body.split(b"\n\n")[:-2]]
        for part in parts:
            # Numbers with a fraction as texts, behind a mark: `json` would write them otherwise.
            plain = json.loads(part, parse_float=lambda number: "\0" + number)
            again = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
            assert re.sub(r'"\\u0000(-?(?:0|[1-9]\d*)\.\d*[1-9])"', r"\1", again).encode() == part
            seen |= {sign for sign in ("ö", "\U0001f30a", '\\"', "\\\\", "\\n", "\\t") if sign.encode() in part}
    assert seen == {"ö", "\U0001f30a", '\\"', "\\\\", "\\n", "\\t"}  # of the prompt that is echoed


@pytest.mark.parametrize("max_batch", [1, 3])
def test_texts_of_an_answer_take_turns(tokenizer: Tokenizer, max_batch: int) -> None:
    """Also where the engine writes one after the other."""
    with serving(tokenizer, max_batch=max_batch) as (running, _):
        asked = {"prompt": "the sea", "n": 3, "max_tokens": 4, "logprobs": 0, "ignore_eos": True, "stream": True}
        body = running.request("POST", "/v1/completions", asked)[2]
    choices = [json.loads(part[6:])["choices"][0] for part in body.decode().split("\n\n")[:-2]]
    assert [choice["index"] for choice in choices] == [0, 1, 2] * 3 + [0, 0, 1, 1, 2, 2]
    assert [choice["finish_reason"] for choice in choices] == [None] * 9 + [None, "length"] * 3


def test_events_come_as_they_are_made(tokenizer: Tokenizer) -> None:
    """A token is on its way when its step is over, not at the end."""
    with serving(tokenizer, hold=True) as (running, steps):
        connection = running.connection()
        body = {"prompt": "the sea", "max_tokens": 8, "stream": True, "ignore_eos": True, "temperature": 0}
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        steps.allow(1)
        response = connection.getresponse()
        first = _line(response)
        assert json.loads(first)["choices"][0]["text"]
        assert steps.taken == 1
        steps.free()
        assert response.read().endswith(b"data: [DONE]\n\n")


def _line(response: http.client.HTTPResponse) -> bytes:
    return response.readline().removeprefix(b"data: ")
