"""/v1/responses: what it answers, whole and as events, to the official client and to others, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel
from small_server import CONTEXT, Running, serving

from nncuda import Sampling
from nncuda.serve.api import ApiError
from nncuda.serve.items import input_messages
from nncuda.tokenizer import Tokenizer

PATH = "/v1/responses"
MESSAGES = [{"role": "user", "content": "the sea"}]
#: What every response must have, by Open Responses.
KEYS = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "user", "usage",
    "max_output_tokens", "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier",
    "prompt_cache_key",
}  # fmt: skip


def events(body: bytes) -> list[Any]:
    """The values of a stream, each called by its type and in order."""
    *parts, last, rest = body.decode().split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    found = []
    for number, part in enumerate(parts):
        name, data = part.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert list(found[-1])[:2] == ["type", "sequence_number"]
        assert (name, number) == (f"event: {found[-1]['type']}", found[-1]["sequence_number"])
    return found


def text_of(response: dict[str, Any]) -> str:
    (item,) = response["output"]
    (part,) = item["content"]
    assert list(item) == ["type", "id", "status", "role", "content"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", response["status"])
    assert list(part) == ["type", "text", "annotations", "logprobs"] and part["annotations"] == []
    text: str = part["text"]
    return text


def test_a_response(running: Running) -> None:
    asked = {"input": "the sea", "temperature": 0, "max_output_tokens": 9, "ignore_eos": True, "user": "me"}
    status, headers, body = running.request("POST", PATH, {**asked, "instructions": "Be brief."})
    found = json.loads(body)
    messages = [{"role": "system", "content": "Be brief."}, *MESSAGES]
    prompt = len(running.model.chat_ids(messages))
    assert status == 200 and headers["content-type"] == "application/json" and set(found) == KEYS
    assert found["id"].startswith("resp_") and found["object"] == "response" and found["model"] == "small"
    assert text_of(found) == "".join(running.model.chat(messages, 9, end_ids=()))
    assert found["status"] == "incomplete" and found["incomplete_details"] == {"reason": "max_output_tokens"}
    assert found["completed_at"] is None and found["error"] is None
    assert found["usage"] == {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + 9,
    }
    echoed = {key: found[key] for key in ("instructions", "max_output_tokens", "temperature", "store", "user", "text")}
    assert echoed == {
        "instructions": "Be brief.", "max_output_tokens": 9, "temperature": 0, "store": False, "user": "me",
        "text": {"format": {"type": "text"}},
    }  # fmt: skip


def test_a_response_that_ends(running: Running) -> None:
    free = "".join(running.model.chat(MESSAGES, 40, end_ids=()))
    asked = {"input": MESSAGES, "temperature": 0, "ignore_eos": True, "stop": free[6:9], "max_output_tokens": 40}
    _, found = running.post(PATH, asked)
    assert text_of(found) == free[: free.index(free[6:9])] and found["status"] == "completed"
    assert found["completed_at"] >= found["created_at"] and found["incomplete_details"] is None


def test_it_says_what_a_chat_says(running: Running) -> None:
    """The same conversation, drawn in the same way, of items and of messages."""
    how = {"seed": 5, "temperature": 0.8, "top_p": 0.9, "ignore_eos": True}
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "sail"}]},
        {"role": "user", "content": "the "},
        {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [
            {"type": "output_text", "text": "s", "annotations": [], "logprobs": [{"token": "s"}]},
            {"type": "output_text", "text": "ea", "annotations": None, "logprobs": None},
        ]},
        {"role": "assistant", "phase": "final_answer", "content": "s"},
        {"role": "assistant", "phase": None, "content": "."},
        {"type": "message", "role": "user", "content": "waves"},
    ]  # fmt: skip
    messages = [("system", "sail"), ("user", "the "), ("assistant", "sea"), ("assistant", "s"), ("assistant", "."),
                ("user", "waves")]  # fmt: skip
    talk = [{"role": role, "content": text} for role, text in messages]
    _, chat = running.post("/v1/chat/completions", {"messages": talk, "max_tokens": 30, **how})
    _, found = running.post(PATH, {"input": items, "max_output_tokens": 30, **how})
    assert text_of(found) == chat["choices"][0]["message"]["content"]
    assert text_of(found) == "".join(running.model.chat(talk, 30, Sampling(0.8, None, 0.9, 5), end_ids=()))
    assert found["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]


def test_events(running: Running) -> None:
    asked = {"input": "the sea", "temperature": 0, "max_output_tokens": 9, "ignore_eos": True}
    _, whole = running.post(PATH, asked)
    status, headers, body = running.request("POST", PATH, {**asked, "stream": True})
    assert status == 200 and headers["content-type"] == "text/event-stream; charset=utf-8"
    found = events(body)
    kinds = [event["type"].removeprefix("response.") for event in found]
    deltas = kinds.count("output_text.delta")
    assert deltas > 1 and kinds == [
        "created", "in_progress", "output_item.added", "content_part.added", *["output_text.delta"] * deltas,
        "output_text.done", "content_part.done", "output_item.done", "incomplete",
    ]  # fmt: skip
    text = text_of(whole)
    assert "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta") == text
    *_, text_done, part_done, item_done, last = found
    assert text_done["text"] == part_done["part"]["text"] == text
    response = last["response"]
    assert response["output"] == [item_done["item"]] and text_of(response) == text
    same = [key for key in KEYS if key not in ("id", "created_at", "output")]
    assert {key: response[key] for key in same} == {key: whole[key] for key in same}
    for event in found[:2]:
        assert event["response"]["status"] == "in_progress" and event["response"]["output"] == []
        assert event["response"]["usage"] is None and set(event["response"]) == KEYS
    assert found[2]["item"] == {**response["output"][0], "status": "in_progress", "content": []}
    of_item = [event["item_id"] for event in found if "item_id" in event]
    assert set(of_item) == {response["output"][0]["id"]} and len(of_item) == deltas + 3


def test_log_probabilities(running: Running) -> None:
    how = {"temperature": 0, "ignore_eos": True, "top_logprobs": 2}
    asked = {"input": "the sea", "include": ["message.output_text.logprobs"], "max_output_tokens": 6, **how}
    _, found = running.post(PATH, asked)
    _, chat = running.post("/v1/chat/completions", {"messages": MESSAGES, "logprobs": True, "max_tokens": 6, **how})
    assert found["top_logprobs"] == 2
    assert found["output"][0]["content"][0]["logprobs"] == chat["choices"][0]["logprobs"]["content"]
    streamed = events(running.request("POST", PATH, {**asked, "stream": True})[2])
    added = [one for event in streamed if event["type"].endswith("delta") for one in event["logprobs"]]
    assert added == streamed[-1]["response"]["output"][0]["content"][0]["logprobs"]
    assert added == chat["choices"][0]["logprobs"]["content"]
    assert running.error(PATH, {"input": "x", "top_logprobs": 0})["code"] == "needs_field"


class Ship(BaseModel):
    """What a text is parsed as."""

    name: bool


def test_formats(running: Running) -> None:
    how = {"input": "the sea", "max_output_tokens": 200, "temperature": 0, "seed": 3}
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    described = {"type": "json_schema", "name": "number", "schema": schema, "strict": True}
    _, found = running.post(PATH, {**how, "text": {"format": described}})
    assert json.loads(text_of(found))["n"] in (1, 2) and found["status"] == "completed"
    assert found["text"] == {"format": {**described, "description": None, "schema": None}} and list(
        found["text"]["format"]
    ) == ["type", "name", "description", "schema", "strict"]
    _, found = running.post(PATH, {**how, "max_output_tokens": 3, "text": {"format": {"type": "json_object"}}})
    assert text_of(found)[0] in " \n\r\t{" and found["text"] == {"format": {"type": "json_object"}}
    for text, param, code in (
        ({"format": {"type": "grammar"}}, "text.format.type", "invalid_value"),
        ({"format": "text"}, "text.format", "invalid_value"),
        ({"format": {"type": "text", "schema": {}}}, "text.format.schema", "unknown_field"),
        ({"format": {"type": "json_schema", "name": "x"}}, "text.format.schema", "invalid_value"),
        ({"format": {**described, "schema": {"type": "x"}}}, "text.format.schema", "bad_schema"),
        ({"format": {**described, "name": 3}}, "text.format.name", "invalid_value"),
        ({"verbosity": "low"}, "text.verbosity", "unsupported_field"),
        ({"form": 1}, "text.form", "unknown_field"),
    ):
        error = running.error(PATH, {"input": "x", "text": text})
        assert (error["status"], error["param"], error["code"]) == (400, param, code), error


def test_the_official_client(running: Running) -> None:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", api_key="none", max_retries=0) as client:
        options: dict[str, Any] = {"model": "small", "input": "the sea", "temperature": 0, "max_output_tokens": 8}
        answer = "".join(running.model.chat(MESSAGES, 8))
        whole = client.responses.create(**options)
        assert isinstance(whole, Response) and whole.output_text == answer and whole.usage is not None
        again = client.responses.create(**{**options, "input": [*MESSAGES, *whole.output, *MESSAGES]})
        assert again.usage is not None and again.usage.input_tokens > whole.usage.input_tokens
        stream = client.responses.create(**options, stream=True)
        parts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert "".join(parts) == answer
        stop = answer[3:5]
        with client.responses.stream(**options, extra_body={"stop": stop}) as managed:
            snapshots = [event.snapshot for event in managed if event.type == "response.output_text.delta"]
            final = managed.get_final_response()
        assert final.status == "completed" and final.output_text == answer[: answer.index(stop)] == snapshots[-1]
        parsed = client.responses.parse(**{**options, "max_output_tokens": 100}, text_format=Ship)
        assert isinstance(parsed.output_parsed, Ship)
        with pytest.raises(openai.BadRequestError) as bad:
            client.responses.create(**options, store=True)
        assert bad.value.param == "store" and bad.value.code == "unsupported_field"


def test_what_is_refused(running: Running) -> None:
    part = {"type": "output_text", "text": "x"}
    for change, param, code in (
        ({"input": None}, "input", "missing_field"),
        ({"input": []}, "input", "invalid_value"),
        ({"input": {}}, "input", "invalid_value"),
        ({"input": "sea " * CONTEXT}, "input", "context_length_exceeded"),
        ({"input": ["x"]}, "input[0]", "invalid_value"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type", "invalid_value"),
        ({"input": [*MESSAGES, {"type": "function_call_output", "call_id": "x", "output": "y"}]}, "input[1].type",
         "no_tools"),  # this model's template knows none
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role", "invalid_value"),
        ({"input": [{"role": "user"}]}, "input[0].content", "invalid_value"),
        ({"input": [{"role": "user", "content": "x", "name": "y"}]}, "input[0].name", "unknown_field"),
        ({"input": [{"role": "user", "content": "x", "id": 3}]}, "input[0].id", "invalid_value"),
        ({"input": [{"role": "user", "content": "x", "status": "done"}]}, "input[0].status", "invalid_value"),
        ({"input": [{"role": "user", "content": "x", "phase": "commentary"}]}, "input[0].phase", "unknown_field"),
        ({"input": [{"role": "assistant", "content": "x", "phase": "said"}]}, "input[0].phase", "invalid_value"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type",
         "invalid_value"),
        ({"input": [{"role": "user", "content": ["x"]}]}, "input[0].content[0]", "invalid_value"),
        ({"input": [{"role": "user", "content": [{**part, "text": 3}]}]}, "input[0].content[0].text", "invalid_value"),
        ({"input": [{"role": "user", "content": [{**part, "more": 3}]}]}, "input[0].content[0].more", "unknown_field"),
        ({"input": [{"role": "assistant", "content": [{**part, "annotations": [1]}]}]},
         "input[0].content[0].annotations", "unsupported_field"),
        ({"input": [{"role": "assistant", "content": [{**part, "logprobs": 1}]}]}, "input[0].content[0].logprobs",
         "invalid_value"),
        ({"instructions": 3}, "instructions", "invalid_value"),
        ({"max_output_tokens": 0}, "max_output_tokens", "invalid_value"),
        ({"include": ["reasoning.encrypted_content"]}, "include", "invalid_value"),
        ({"include": "message.output_text.logprobs"}, "include", "invalid_value"),
        ({"model": "other"}, "model", "model_not_found"),
        ({"n": 2}, "n", "unknown_field"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options", "unsupported_field"),
        ({"store": True}, "store", "unsupported_field"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "unsupported_field"),
        ({"background": True}, "background", "unsupported_field"),
        ({"tools": [{}]}, "tools[0].type", "invalid_value"),
        ({"tools": [{"type": "function", "name": "f"}]}, "tools", "no_tools"),
        ({"tool_choice": "required"}, "tool_choice", "needs_field"),
        ({"max_tool_calls": 1}, "max_tool_calls", "unsupported_field"),
        ({"reasoning": {"effort": "low"}}, "reasoning", "unsupported_field"),
        ({"truncation": "auto"}, "truncation", "unsupported_field"),
    ):  # fmt: skip
        error = running.error(PATH, {"input": "x", **change})
        assert (error["param"], error["code"]) == (param, code), error
        assert error["status"] == (404 if code == "model_not_found" else 400)
    nothing = {
        "stream_options": {"include_obfuscation": False}, "store": False, "background": False, "tools": [],
        "tool_choice": "auto", "parallel_tool_calls": True, "reasoning": {"effort": "none"}, "truncation": "disabled",
        "text": {}, "include": [], "metadata": {}, "instructions": "", "previous_response_id": None,
    }  # fmt: skip
    status, found = running.post(PATH, {"input": "x", "max_output_tokens": 1, **nothing})
    assert status == 200 and found["usage"]["input_tokens"] == len(
        running.model.chat_ids([{"role": "user", "content": "x"}])
    )
    assert running.at_rest


def test_inputs() -> None:
    assert input_messages("x", None) == ([{"role": "user", "content": "x"}], None)
    assert input_messages("x", "y")[0][0] == {"role": "system", "content": "y"}
    with pytest.raises(ApiError) as refused:
        input_messages([{"type": "reasoning", "summary": []}], None)
    must = '"message", "function_call" or "function_call_output"'
    assert refused.value.sentence == f'input[0].type is "reasoning"; it must be {must}'


def test_calls_belong_to_the_turn_before_them() -> None:
    def call(number: int) -> dict[str, Any]:
        return {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": f'{{"a": {number}}}'}

    def plain(number: int) -> dict[str, Any]:
        return {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": {"a": number}}}

    told = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "done"}]}
    said = {"role": "assistant", "content": "So."}
    asked = {"role": "user", "content": "x"}
    assert input_messages([asked, said, call(1), call(2), told, call(3), asked, call(4)], None) == (
        [
            asked,
            {**said, "tool_calls": [plain(1), plain(2)]},
            {"role": "tool", "content": "done", "tool_call_id": "c1"},
            {"role": "assistant", "content": "", "tool_calls": [plain(3)]},
            asked,
            {"role": "assistant", "content": "", "tool_calls": [plain(4)]},
        ],
        "input[2].type",
    )


def test_a_stream_that_fails(tokenizer: Tokenizer) -> None:
    """An error, that the response failed, and the end."""
    with serving(tokenizer, hold=True, timeout=3.0) as (running, steps):
        connection = running.connection()
        asked = json.dumps({"input": "the sea", "stream": True, "ignore_eos": True, "max_output_tokens": 50})
        connection.request("POST", PATH, asked, {"content-type": "application/json"})
        steps.allow(4)
        found = events(connection.getresponse().read())
    *_, error, failed = found
    assert list(error) == ["type", "sequence_number", "error"] and error["type"] == "error"
    assert error["error"] == {
        "type": "timeout_error", "code": "timeout", "message": "the request took more than 3 s", "param": None,
    }  # fmt: skip
    assert failed["type"] == "response.failed" and failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "timeout", "message": "the request took more than 3 s"}
