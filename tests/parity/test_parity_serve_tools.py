"""Tools of servers of other languages: the same bytes as Python's, for models that write calls."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scripted_model import write_scripted
from servers import CHAT, RESPONSES, Asked, Served, neutral, served
from test_parity_serve import SERVING
from tool_scripts import CONTROLS, SCRIPTS, TEMPLATES, TOOLS

CALL: dict[str, Any] = {
    "id": "x",
    "type": "function",
    "function": {"name": "sail", "arguments": '{"to": "a", "n": [1, 2.5, -0.0, 1e30]}'},
}


@pytest.fixture(scope="module", params=sorted(TEMPLATES))
def form(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def folder(form: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scripted") / form
    write_scripted(path, SCRIPTS[form], TEMPLATES[form], CONTROLS[form])
    return path


def requests(form: str) -> list[Asked]:
    """Answers with calls, whole and as events, in conversations that have had some."""
    talk = [
        {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "y"}]},
        {"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "done"}]},
        {"role": "tool", "tool_call_id": "y", "name": "sail", "content": "ö"},
    ]
    changes: list[dict[str, Any]] = [
        {}, {"n": 3}, {"parallel_tool_calls": False}, {"tool_choice": "none"}, {"logprobs": True, "top_logprobs": 2},
        {"max_tokens": 3}, {"stop": [" sea", "}"]}, {"ignore_eos": True, "max_tokens": 30, "temperature": 1},
    ]  # fmt: skip
    found: list[Asked] = []
    for script in SCRIPTS[form]:
        for number, change in enumerate(changes):
            messages = [*(talk if number % 2 else []), {"role": "user", "content": script}]
            body = {"messages": messages, "tools": TOOLS, "temperature": 0, **change}
            found.append((CHAT, body))
            found.append((CHAT, {**body, "stream": True, "stream_options": {"include_usage": number % 3 == 0}}))
            items = [*(ITEMS if number % 2 else []), {"role": "user", "content": script}]
            response = {"input": items, "tools": FLAT, "temperature": 0, **(of_response(change) or {})}
            found += [(RESPONSES, response), (RESPONSES, {**response, "stream": True})]
    return found


#: The same tools, and the same conversation, as /v1/responses takes them.
FLAT: list[dict[str, Any]] = [
    {"type": "function", "strict": None, **TOOLS[0]["function"]},
    *({"type": "function", **tool["function"]} for tool in TOOLS[1:]),
]
ITEMS: list[dict[str, Any]] = [
    {"role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
    *(
        {"type": "function_call", "id": None, "call_id": identity, **CALL["function"], "status": "completed"}
        for identity in "xy"
    ),
    {"type": "function_call_output", "call_id": "x", "output": [{"type": "input_text", "text": "done"}]},
    {"type": "function_call_output", "call_id": "y", "output": "ö"},
]


def of_response(change: dict[str, Any]) -> dict[str, Any] | None:
    """What /v1/responses calls the fields of a chat; None for what it lacks."""
    if "logprobs" in change:
        return {"include": ["message.output_text.logprobs"], "top_logprobs": change["top_logprobs"]}
    if "n" in change:
        return None
    return {"max_output_tokens" if key == "max_tokens" else key: value for key, value in change.items()}


def without_ids(answer: tuple[int, bytes]) -> tuple[int, bytes]:
    """Without the id of an answer, and with those of its calls as how far they are from it."""
    status, body = answer
    found = re.search(rb'"id":"(?:chatcmpl-|resp_)([0-9a-f]{9})', body)
    if found is not None:
        first = int(found[1], 16)

        def distance(call: re.Match[bytes]) -> bytes:
            return b'"id":"%d","type":"function"' % ((int(call[1], 16) - first) % 16**9)

        body = re.sub(rb'"id":"([0-9a-f]{9})","type":"function"', distance, body)
        body = re.sub(rb'"call_id":"([0-9a-f]{9})"', distance, body)
    return neutral((status, body))


def ask(server: Served, form: str) -> list[tuple[int, bytes]]:
    return [without_ids(server.post(asked)) for asked in requests(form)]


def refused() -> list[dict[str, Any]]:
    """What is wrong with tools and their messages, each in another way."""
    deep: Any = {}
    for _ in range(64):
        deep = {"a": deep}
    tool = TOOLS[1]

    def function(**more: Any) -> dict[str, Any]:
        return {"tools": [{"type": "function", "function": {"name": "f", **more}}]}

    def called(**more: Any) -> dict[str, Any]:
        return {"messages": [{"role": "assistant", "tool_calls": [{**CALL, **more}]}]}

    def argued(arguments: Any) -> dict[str, Any]:
        return called(function={"name": "f", "arguments": arguments})

    def told(**more: Any) -> dict[str, Any]:
        return {"messages": [{"role": "tool", "content": "x", "tool_call_id": "x", **more}]}

    return [
        {"tools": {}}, {"tools": [tool] * 2}, {"tools": [3]}, {"tools": [{"type": "custom"}]},
        {"tools": [{**tool, "more": 1}]}, {"tools": [{"type": "function"}]}, function(name=""), function(name="ä"),
        function(name="x" * 65), function(more=1), function(description=[]), function(parameters=[]),
        function(parameters=deep), function(parameters={"a": 2**63}), function(parameters={"a": [-(2**63) - 1]}),
        function(parameters={"type": "array"}), function(parameters={"type": None}), function(strict="x"),
        {"tools": [{"type": "function", "function": {"name": f"f{at}"}} for at in range(129)]},
        {"tool_choice": 1}, {"tool_choice": ""}, {"tool_choice": "required"}, {"tool_choice": {}},
        {"tool_choice": {"type": "function", "more": 1}}, {"tool_choice": {"type": "function", "function": "f"}},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "stop", "more": 1}}},
        {"tools": [tool], "response_format": {"type": "json_object"}}, {"parallel_tool_calls": 1},
        {"messages": [{"role": "assistant"}]}, {"messages": [{"role": "assistant", "tool_calls": []}]},
        {"messages": [{"role": "assistant", "tool_calls": {}}]},
        {"messages": [{"role": "assistant", "tool_calls": [3]}]},
        {"messages": [{"role": "assistant", "tool_calls": [CALL] * 129}]},
        {"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]},
        called(id=""), called(id="ä" * 257), called(type="x"), called(more=1), called(function=None),
        called(function={"name": "a b", "arguments": ""}), called(function={"name": "f", "arguments": "", "more": 1}),
        argued(None), argued({}), argued("x"), argued("[]"), argued('{"a": 1, "a": 2}'), argued('{"a": 01}'),
        argued('{"a": 9223372036854775808}'), argued('{"a": 1e999}'), argued('{"a": NaN}'), argued('{"a": "\\ud800"}'),
        argued('{"a": ' + "[" * 64 + "]" * 64 + "}"), argued('{"a": 1} '  + "x"), argued(" "),
        told(content=None), told(tool_call_id=None), told(tool_call_id=3), told(name=""), told(name="x y"),
        told(more=1), {"messages": [{"role": "user", "content": "x", "tool_call_id": "x"}]},
    ]  # fmt: skip


def refused_responses() -> list[dict[str, Any]]:
    """The same for /v1/responses, where it differs."""
    tool = FLAT[1]
    call, told = ITEMS[1], ITEMS[3]
    return [
        {"tools": [3]}, {"tools": TOOLS}, {"tools": [{"type": "web_search"}]}, {"tools": [{"type": "function"}]},
        {"tools": [tool] * 2}, {"tools": [{**tool, "name": "a b"}]}, {"tools": [{**tool, "more": 1}]},
        {"tools": [{**tool, "description": 1}]}, {"tools": [{**tool, "parameters": []}]},
        {"tools": [{**tool, "parameters": {"type": 3}}]}, {"tools": [{**tool, "strict": "x"}]},
        {"tool_choice": "any"}, {"tool_choice": "required"}, {"tool_choice": {}}, {"tool_choice": 3},
        {"tools": [tool], "tool_choice": {"type": "function", "name": "x"}},
        {"tools": [tool], "tool_choice": {"type": "function", "name": None}},
        {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "stop"}}},
        {"tools": [tool], "tool_choice": {"type": "allowed_tools", "name": "stop"}},
        {"tools": [tool], "text": {"format": {"type": "json_object"}}}, {"parallel_tool_calls": 1},
        {"tools": [{**tool, "strict": True, "parameters": {"multipleOf": 9999991}}]}, {"max_tool_calls": 1},
        {"tools": [{**tool, "name": f"f{at}", "strict": True, "parameters": {"multipleOf": at}} for at in (997, 998)]},
        *({"input": [item]} for item in (
            {**call, "call_id": None}, {**call, "call_id": ""}, {**call, "name": "a b"}, {**call, "arguments": "["},
            {**call, "arguments": None}, {**call, "role": "user"}, {**call, "id": 3}, {**call, "status": "x"},
            {**told, "call_id": 3}, {**told, "output": None}, {**told, "output": []}, {**told, "output": [3]},
            {**told, "output": [{"type": "input_image"}]}, {**told, "name": "f"}, {**told, "id": 3},
            {"type": "reasoning"}, {"type": 3}, 3,
        )),
    ]  # fmt: skip


def enforced() -> list[Asked]:
    """Requests whose calls a grammar sees to, and those whose parameters no grammar can."""
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}, *TOOLS[1:]]
    unknown = {"type": "object", "properties": {"a": {"type": "string", "format": "x"}}}
    refused = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": unknown}}]
    changes: list[dict[str, Any]] = [
        {"tool_choice": "required"},
        {"tool_choice": "required", "parallel_tool_calls": False},
        {"tool_choice": {"type": "function", "function": {"name": TOOLS[0]["function"]["name"]}}},
        {"tools": strict},
        {"tools": strict, "tool_choice": "required"},
        {"tools": refused},
        {"tools": refused, "tool_choice": "required"},
    ]
    body = {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS, "max_tokens": 60, "temperature": 1.5}
    chats = [(CHAT, {**body, **change, "seed": seed, "stream": seed == 1}) for change in changes for seed in (0, 1, 2)]
    body = {"input": "x", "tools": FLAT, "max_output_tokens": 60, "temperature": 1.5}
    choices: list[Any] = ["required", {"type": "function", "name": FLAT[0]["name"]}]
    return chats + [
        (RESPONSES, {**body, "tool_choice": choice, "seed": seed, "stream": seed == 1})
        for choice in choices
        for seed in (0, 1)
    ]


@pytest.mark.case("calls of tools in a server's answers")
@pytest.mark.parametrize("language", SERVING)
def test_the_same_calls(form: str, folder: Path, language: str) -> None:
    """One at a time, and eight at once."""
    wrong = [(CHAT, {"messages": [{"role": "user", "content": "x"}], **one}) for one in refused()]
    wrong += [(RESPONSES, {"input": "x", **one}) for one in refused_responses()]
    with served("python", folder, "--max-batch", 1, "--threads", 1) as server:
        expected = ask(server, form)
        constrained = [without_ids(server.post(asked)) for asked in enforced()]
        errors = [server.post(one) for one in wrong]
    assert {status for status, _ in expected} == {200} and {status for status, _ in errors} == {400}
    assert [status for status, _ in constrained] == [200] * 15 + [400] * 6 + [200] * 4
    assert all(b'"code":"bad_schema"' in body for status, body in constrained if status == 400)
    assert b'"finish_reason":"tool_calls"' in b"".join(body for _, body in expected)
    with served(language, folder, "--max-batch", 5, "--threads", 2) as server:
        assert ask(server, form) == expected
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda asked: without_ids(server.post(asked)), requests(form)))
        assert together == expected
        assert [server.post(one) for one in wrong] == errors
        assert [without_ids(server.post(asked)) for asked in enforced()] == constrained


@pytest.mark.case("what a server refuses")
def test_go_without_llguidance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that it would have to see to are refused by the field that asks for them; others are answered."""
    monkeypatch.setenv("NNCUDA_LLGUIDANCE", "/nowhere/libllguidance.so")
    strict = [TOOLS[1], {"type": "function", "function": {"name": "f", "strict": True}}]
    chosen = {"type": "function", "function": {"name": TOOLS[1]["function"]["name"]}}
    refusals: list[tuple[dict[str, Any], str, str]] = [
        ({"tool_choice": "required"}, "tool_choice", '"required"'),
        ({"tool_choice": chosen}, "tool_choice", json.dumps(chosen, separators=(",", ":"))),
        ({"tools": strict}, "tools[1].function.strict", "true"),
    ]
    free: list[dict[str, Any]] = [{}, {"tools": strict, "tool_choice": "none"}]
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS, "max_tokens": 3}
    with served("go", folder) as server:
        for change, param, value in refusals:
            status, found = server.post((CHAT, {**body, **change}))
            error = json.loads(found)["error"]
            assert (status, error["param"], error["code"]) == (400, param, "unsupported_field")
            assert error["message"].startswith(f"{param} is {value}, which is not supported: this server found no lib")
        for change in free:
            assert server.post((CHAT, {**body, **change}))[0] == 200
