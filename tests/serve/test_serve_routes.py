"""The routes of a running server: what each answers, and that it says what the engine says."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from small_server import CONTEXT, Running, serving

from nncuda import Sampling
from nncuda.serve.api import API
from nncuda.serve.metrics import series
from nncuda.tokenizer import Tokenizer

MESSAGES = [{"role": "user", "content": "the sea"}]


def events(body: bytes) -> list[Any]:
    """The values of a stream, whose end must be as it should."""
    parts = body.decode().split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


def test_completion(running: Running) -> None:
    status, headers, body = running.request(
        "POST", "/v1/completions", {"prompt": "the sea", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    )
    found = json.loads(body)
    text = running.model.complete("the sea", 12, end_ids=())
    prompt = len(running.model.encode("the sea"))
    assert status == 200 and headers["content-type"] == "application/json"
    assert list(found) == ["id", "object", "created", "model", "choices", "usage"]
    assert found["id"].startswith("cmpl-") and found["object"] == "text_completion" and found["model"] == "small"
    assert found["choices"] == [{"index": 0, "text": text, "logprobs": None, "finish_reason": "length"}]
    assert found["usage"] == {"prompt_tokens": prompt, "completion_tokens": 12, "total_tokens": prompt + 12}


def test_several_prompts_and_texts(running: Running) -> None:
    """Text j of a prompt draws with seed + j, whatever the other prompts are."""
    prompts = ["the sea", [5, 6, 7], "waves"]
    asked = {"prompt": prompts, "max_tokens": 10, "n": 2, "seed": 3, "top_k": 50, "top_p": 0.9, "temperature": 0.8}
    status, found = running.post("/v1/completions", asked)
    assert status == 200
    wanted = [
        running.model.complete(prompt, 10, Sampling(0.8, 50, 0.9, 3 + number))
        for prompt in prompts
        for number in (0, 1)
    ]
    assert [choice["text"] for choice in found["choices"]] == wanted
    assert [choice["index"] for choice in found["choices"]] == list(range(6))
    assert found["usage"]["prompt_tokens"] == sum(len(running.model.encode(prompt)) for prompt in prompts)
    whole = events(running.request("POST", "/v1/completions", {**asked, "stream": True})[2])
    texts = [""] * 6
    for event in whole:
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == wanted


def test_echo_and_no_tokens(running: Running) -> None:
    for prompt, text in (("the sea", "the sea"), (running.model.tokenizer.encode("the sea"), "the sea")):
        for tokens in (0, 4):
            asked = {"prompt": prompt, "max_tokens": tokens, "echo": True, "temperature": 0, "ignore_eos": True}
            status, found = running.post("/v1/completions", asked)
            after = running.model.complete(prompt, tokens, end_ids=())
            assert status == 200 and found["choices"][0]["text"] == text + after
            assert found["usage"]["completion_tokens"] == tokens
            streamed = events(running.request("POST", "/v1/completions", {**asked, "stream": True})[2])
            assert "".join(event["choices"][0]["text"] for event in streamed) == text + after


def test_stop_strings_and_end_ids(running: Running) -> None:
    free = running.model.complete("the sea", 40, end_ids=())
    stop = free[6:9]
    body = {"prompt": "the sea", "max_tokens": 40, "temperature": 0, "ignore_eos": True, "stop": [stop]}
    _, found = running.post("/v1/completions", body)
    assert found["choices"][0]["text"] == free[: free.index(stop)]
    assert found["choices"][0]["finish_reason"] == "stop" and found["usage"]["completion_tokens"] < 40


def test_chat(running: Running) -> None:
    asked = {"messages": MESSAGES, "temperature": 0, "max_completion_tokens": 9, "ignore_eos": True, "model": "small"}
    status, found = running.post("/v1/chat/completions", asked)
    ids = running.model.chat_ids(MESSAGES)
    text = "".join(running.model.chat(MESSAGES, 9, end_ids=()))
    assert status == 200 and found["object"] == "chat.completion" and found["id"].startswith("chatcmpl-")
    (choice,) = found["choices"]
    message = {"role": "assistant", "content": text, "refusal": None}
    assert choice == {"index": 0, "message": message, "logprobs": None, "finish_reason": "length"}
    assert found["usage"]["prompt_tokens"] == len(ids) and found["usage"]["completion_tokens"] == 9


def test_chat_stream(running: Running) -> None:
    asked = {"messages": MESSAGES, "temperature": 0, "max_tokens": 9, "ignore_eos": True, "n": 2, "stream": True}
    status, headers, body = running.request(
        "POST", "/v1/chat/completions", {**asked, "stream_options": {"include_usage": True}}
    )
    assert status == 200 and headers["content-type"] == "text/event-stream; charset=utf-8"
    found = events(body)
    *chunks, last = found
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 18
    assert all(chunk["usage"] is None and chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    assert len({(chunk["id"], chunk["created"]) for chunk in found}) == 1
    for index in (0, 1):
        of_text = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert of_text[0]["delta"] == {"role": "assistant", "content": ""}
        assert of_text[-1]["delta"] == {} and of_text[-1]["finish_reason"] == "length"
        assert all(choice["finish_reason"] is None for choice in of_text[:-1])
        text = "".join(choice["delta"].get("content", "") for choice in of_text)
        assert text == "".join(running.model.chat(MESSAGES, 9, end_ids=()))
    without = events(running.request("POST", "/v1/chat/completions", asked)[2])
    assert len(without) == len(chunks) and not any("usage" in chunk for chunk in without)


def test_a_stream_that_counts_as_it_goes(running: Running) -> None:
    """Log-probabilities give each token an event: it counts up to that, whatever the engine has drawn meanwhile."""
    asked = {"prompt": [3, 4, 5], "max_tokens": 12, "ignore_eos": True, "stream": True, "logprobs": 0}
    options = {"include_usage": True, "continuous_usage_stats": True}
    found = events(running.request("POST", "/v1/completions", {**asked, "stream_options": options})[2])
    counts = [chunk["usage"]["completion_tokens"] for chunk in found]
    assert counts == [*range(1, 13), 12, 12]  # the last piece has the reason of the end, the last event no choices
    assert all(chunk["usage"]["total_tokens"] == 3 + count for chunk, count in zip(found, counts, strict=True))
    alone = {"continuous_usage_stats": True}
    found = events(running.request("POST", "/v1/completions", {**asked, "stream_options": alone})[2])
    assert not any("usage" in chunk for chunk in found)


def test_a_chat_without_a_number_fills_the_context(running: Running) -> None:
    _, found = running.post("/v1/chat/completions", {"messages": MESSAGES, "ignore_eos": True, "stop": None})
    if found["choices"][0]["finish_reason"] == "length":  # and no turn began: the model has no template
        assert found["usage"]["total_tokens"] == CONTEXT + 1
    _, found = running.post("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 10**6, "ignore_eos": True})
    assert found["usage"]["total_tokens"] == CONTEXT + 1 and found["choices"][0]["finish_reason"] == "length"


def test_tokens(running: Running) -> None:
    tokenizer = running.model.tokenizer
    status, found = running.post("/tokenize", {"prompt": "the sea", "return_token_strs": True})
    ids = tokenizer.encode("the sea", begin=True)
    assert status == 200 and found == {
        "count": len(ids), "max_model_len": CONTEXT, "tokens": ids, "token_strs": [tokenizer.piece(one) for one in ids],
    }  # fmt: skip
    _, found = running.post("/tokenize", {"prompt": "the sea", "add_special_tokens": False})
    assert found["tokens"] == ids[1:] and "token_strs" not in found
    assert running.post("/detokenize", {"tokens": ids}) == (200, {"prompt": "the sea"})
    assert running.error("/detokenize", {"tokens": [1, 280]})["message"] == "tokens[1] is 280; it must be a token id " \
        "from 0 to 279"  # fmt: skip


def test_what_the_tokenizer_is(running: Running) -> None:
    status, found = running.get("/tokenizer_info")
    assert status == 200 and found == {
        "tokenizer_class": "LlamaTokenizer", "vocab_size": 280, "model_max_length": CONTEXT, "add_bos_token": True,
        "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "bos_token_id": 2,
        "eos_token_id": 3, "pad_token_id": 0, "chat_template": None,
    }  # fmt: skip


def test_what_a_template_is(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from nncuda.tokenizer.chat_template import ChatTemplate

    template = ChatTemplate("{{ eos_token }}", "x", begin="<s>", end="<|end|>")
    monkeypatch.setitem(running.model.stored.__dict__, "chat_template", template)
    _, found = running.get("/tokenizer_info")
    assert (found["eos_token"], found["chat_template"]) == ("<|end|>", "{{ eos_token }}")


def test_models_and_health(running: Running) -> None:
    _, listed = running.get("/v1/models")
    (model,) = listed["data"]
    assert model["id"] == "small" and model["max_model_len"] == CONTEXT
    assert running.get("/v1/models/small") == (200, model)
    status, found = running.get("/v1/models/other/one")
    assert status == 404 and found["error"]["message"] == "there is no model other/one; this server has small"
    assert running.get("/health") == running.get("/health/ready") == (200, {"live": True, "ready": True})
    assert running.get("/health/live") == (200, {"live": True})
    assert running.request("HEAD", "/health")[0] == 200


def test_errors_have_one_form(running: Running) -> None:
    for path, body, status, code, param in (
        ("/v1/nothing", {}, 404, "route_not_found", None),
        ("/v1/models", {}, 405, "method_not_allowed", None),
        ("/v1/completions", {"prompt": "x", "model": "gpt"}, 404, "model_not_found", "model"),
        ("/v1/completions", {"prompt": "x", "suffix": "y"}, 400, "unsupported_field", "suffix"),
        ("/v1/completions", {"prompt": "x", "logit_bias": {"280": 5}}, 400, "unknown_token", "logit_bias.280"),
        ("/v1/chat/completions", {"messages": MESSAGES, "top_logprobs": 2}, 400, "needs_field", "top_logprobs"),
        ("/v1/completions", {"prompt": [1, 280]}, 400, "invalid_value", "prompt[1]"),
        ("/v1/completions", {"prompt": [[1], [-1]]}, 400, "invalid_value", "prompt[1][0]"),
        ("/v1/completions", {"prompt": [2**70]}, 400, "invalid_value", "prompt[0]"),
        ("/v1/completions", {"prompt": [[]]}, 400, "empty_prompt", "prompt"),
        ("/v1/completions", {"prompt": [1] * (CONTEXT + 1)}, 400, "context_length_exceeded", "prompt"),
        ("/v1/completions", {"prompt": "sea " * CONTEXT}, 400, "context_length_exceeded", "prompt"),
        ("/v1/completions", {"prompt": ["x"] * 300}, 400, "too_many_choices", None),
        ("/v1/completions", {"prompt": "x", "stream_options": {}}, 400, "needs_field", "stream_options"),
        ("/v1/chat/completions", {"messages": []}, 400, "invalid_value", "messages"),
        ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1, "max_completion_tokens": 1}, 400,
         "both_fields", "max_completion_tokens"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "sea " * CONTEXT}]}, 400,
         "context_length_exceeded", "messages"),
    ):  # fmt: skip
        error = running.error(path, body)
        assert (error["status"], error["code"], error["param"]) == (status, code, param), error
        assert error["type"] == API["errors"][code][1]
    assert running.error("/v1/completions", {"prompt": [1] * (CONTEXT + 1)})["message"] == (
        f"the prompt has {CONTEXT + 1} tokens; the context has room for {CONTEXT}"
    )
    assert running.at_rest


def test_a_template_that_refuses(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from nncuda.tokenizer.chat_template import ChatTemplate

    monkeypatch.setitem(
        running.model.stored.__dict__,
        "chat_template",
        ChatTemplate("{{ raise_exception('roles must alternate') }}", "x"),
    )
    error = running.error("/v1/chat/completions", {"messages": MESSAGES})
    assert error["code"] == "template_failed" and "roles must alternate" in error["message"]


def test_a_model_without_a_tokenizer() -> None:
    with serving(None) as (running, _):
        _, found = running.post("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 5, "temperature": 0})
        assert found["choices"][0]["text"] == "" and found["usage"]["completion_tokens"] == 5
        for path, body, param in (
            ("/v1/completions", {"prompt": "x"}, "prompt"),
            ("/v1/completions", {"prompt": [1], "stop": "x"}, "stop"),
            ("/v1/completions", {"prompt": [1], "echo": True}, "echo"),
            ("/v1/chat/completions", {"messages": MESSAGES}, "messages"),
            ("/v1/responses", {"input": "x"}, "input"),
            ("/tokenize", {"prompt": "x"}, "prompt"),
            ("/detokenize", {"tokens": [1]}, "tokens"),
        ):
            error = running.error(path, body)
            assert (error["status"], error["code"], error["param"]) == (400, "no_tokenizer", param)
        status, found = running.get("/tokenizer_info")
        assert (status, found["error"]["code"]) == (400, "no_tokenizer")


def test_a_cache_that_one_text_may_fill(tokenizer: Tokenizer) -> None:
    with (
        pytest.raises(ValueError, match="cache_tokens is 256, less than the context of 300 tokens"),
        serving(tokenizer, context=300, cache_tokens=200),
    ):
        pass


def test_the_official_client(running: Running) -> None:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["small"]
        assert client.models.retrieve("small").id == "small"
        text = running.model.complete("the sea", 8)
        done = client.completions.create(model="small", prompt="the sea", max_tokens=8, temperature=0)
        assert done.choices[0].text == text
        stream = client.completions.create(model="small", prompt="the sea", max_tokens=8, temperature=0, stream=True)
        assert "".join(chunk.choices[0].text for chunk in stream) == text
        answer = "".join(running.model.chat(MESSAGES, 8))
        options: dict[str, Any] = {"model": "small", "messages": MESSAGES, "max_completion_tokens": 8, "temperature": 0}
        whole = client.chat.completions.create(**options)
        assert whole.choices[0].message.content == answer and whole.usage is not None
        again = client.chat.completions.create(**{**options, "messages": [*MESSAGES, whole.choices[0].message]})
        assert again.usage is not None and again.usage.prompt_tokens > whole.usage.prompt_tokens
        chunks = client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
        parts = [chunk.choices[0].delta.content if chunk.choices else chunk.usage for chunk in chunks]
        assert "".join(part for part in parts if isinstance(part, str)) == answer and parts[-1] == whole.usage
        with pytest.raises(openai.BadRequestError) as bad:
            client.chat.completions.create(**options, store=True)
        assert bad.value.param == "store" and bad.value.code == "unsupported_field"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("other")


def test_metrics(running: Running) -> None:
    names = [f"nncuda_{name}" for name in (
        "prompt_tokens_total", "prefix_hits_total", "time_to_first_token_seconds_count", "inter_token_seconds_count",
        "text_seconds_count", "generated_tokens_total",
    )]  # fmt: skip
    before = {name: running.metric(name) for name in names}
    prompt = [7] * 300
    for _ in range(2):
        running.post("/v1/completions", {"prompt": prompt, "max_tokens": 5, "ignore_eos": True})
    change = {name: running.metric(name) - before[name] for name in names}
    hits = change["nncuda_prefix_hits_total"]
    assert 256 <= hits < 300 and change["nncuda_prompt_tokens_total"] == 600 - hits
    assert change["nncuda_time_to_first_token_seconds_count"] == change["nncuda_text_seconds_count"] == 2
    assert change["nncuda_inter_token_seconds_count"] == 8 and change["nncuda_generated_tokens_total"] == 10
    _, headers, text = running.request("GET", "/metrics")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    shown = {line.split("{")[0] for line in text.decode().splitlines() if not line.startswith("#")}
    for name in series(API["metrics"]):
        assert name in shown or f"{name}_count" in shown, name
    for entry in API["metrics"]:
        for alias in entry["aliases"]:
            end = {"gauge": "", "counter": "_total", "histogram": "_sum"}[entry["kind"]]
            assert running.metric(alias + end) == running.metric(entry["name"] + end)


def test_the_log(tokenizer: Tokenizer, log: list[dict[str, Any]]) -> None:
    with serving(tokenizer) as (running, _):
        running.post("/v1/completions", {"prompt": "the sea", "max_tokens": 4, "user": "Ann", "ignore_eos": True})
        running.post("/v1/completions", {"prompt": "the sea", "n": 0})
    line, bad = [record for record in log if record.get("path") == "/v1/completions"]
    assert line["status"] == 200 and line["path"] == "/v1/completions" and line["user"] == "Ann"
    assert line["tokens"] == 4 and line["finish"] == "length" and line["id"].startswith("cmpl-")
    assert 0 <= line["queue_seconds"] <= line["first_seconds"] <= line["seconds"]
    assert bad["status"] == 400 and bad["error"] == "invalid_value" and "id" not in bad
