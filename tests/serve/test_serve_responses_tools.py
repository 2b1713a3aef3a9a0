"""Tools in /v1/responses: items of calls and their results, as input, in answers and as events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from scripted_model import write_scripted
from small_server import Running, serving
from test_serve_responses import events
from test_serve_tools import EXPECTED
from tool_scripts import CONTROLS, SCRIPTS, TEMPLATES, TOOLS

PATH = "/v1/responses"

#: The tools of the chat's tests, as this route takes them.
FLAT: list[dict[str, Any]] = [{"type": "function", **tool["function"]} for tool in TOOLS]


@pytest.fixture(scope="module", params=sorted(TEMPLATES))
def form(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def scripted(form: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of a model that writes the scripts of a form."""
    folder = tmp_path_factory.mktemp("scripted") / form
    write_scripted(folder, SCRIPTS[form], TEMPLATES[form], CONTROLS[form])
    with serving(None, folder=folder, context=1024) as (found, _):
        yield found


def asked(script: str, **more: Any) -> dict[str, Any]:
    return {"input": script, "tools": FLAT, "temperature": 0, **more}


def gathered(found: list[Any]) -> list[dict[str, Any]]:
    """The items that the events of a stream make."""
    items: list[dict[str, Any]] = []
    open_item: dict[str, Any] | None = None
    for event in found[2:-1]:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert open_item is None and event["output_index"] == len(items)
            open_item = dict(event["item"])
            assert open_item["status"] == "in_progress"
            continue
        assert open_item is not None and event["output_index"] == len(items)
        if kind == "output_item.done":
            assert open_item == {**event["item"], "status": "in_progress"}
            items.append(event["item"])
            open_item = None
            continue
        assert event["item_id"] == open_item["id"]
        match kind:
            case "content_part.added":
                assert (open_item["content"], event["content_index"]) == ([], 0)
                open_item["content"] = [dict(event["part"])]
            case "output_text.delta":
                open_item["content"][0]["text"] += event["delta"]
                open_item["content"][0]["logprobs"] += event["logprobs"]
            case "output_text.done":
                assert event["text"] == open_item["content"][0]["text"]
            case "content_part.done":
                assert [event["part"]] == open_item["content"]
            case "function_call_arguments.delta":
                assert "content_index" not in event
                open_item["arguments"] += event["delta"]
            case "function_call_arguments.done":
                assert (event["name"], event["arguments"]) == (open_item["name"], open_item["arguments"])
            case _:
                raise AssertionError(kind)
    assert open_item is None
    return items


@pytest.mark.parametrize("script", ["<two>", "<none>", "<wrong>", "<cut>"])
def test_calls(form: str, scripted: Running, script: str) -> None:
    content, calls = EXPECTED[form, script]
    status, whole = scripted.post(PATH, asked(script))
    assert status == 200 and whole["status"] == "completed"
    output = whole["output"]
    found = [item for item in output if item["type"] == "function_call"]
    assert [(call["name"], call["arguments"]) for call in found] == calls
    texts = [item["content"][0]["text"] for item in output if item["type"] == "message"]
    assert "".join(texts) == (content or "") and len(texts) == (content is not None)
    digits = whole["id"].removeprefix("resp_")
    for number, item in enumerate(output):
        prefix = "fc" if item["type"] == "function_call" else "msg"
        assert item["id"] == f"{prefix}_{(int(digits, 16) + number) % 16**32:032x}" and item["status"] == "completed"
    ids = [f"{(int(digits[:9], 16) + number) % 16**9:09x}" for number in range(len(calls))]
    assert [call["call_id"] for call in found] == ids
    for call in found:
        assert list(call) == ["type", "id", "status", "call_id", "name", "arguments"]
    assert [list(tool) for tool in whole["tools"]] == [["type", "name", "description", "parameters", "strict"]] * len(
        FLAT
    )
    assert [tool["name"] for tool in whole["tools"]] == [tool["name"] for tool in FLAT]
    assert (whole["tool_choice"], whole["parallel_tool_calls"]) == ("auto", True)
    _, _, body = scripted.request("POST", PATH, asked(script, stream=True))
    stream = events(body)
    assert gathered(stream) == stream[-1]["response"]["output"]
    kept = ("type", "status", "name", "arguments", "content")
    assert [{key: item.get(key) for key in kept} for item in gathered(stream)] == [
        {key: item.get(key) for key in kept} for item in output
    ]
    # At most one call without "parallel_tool_calls"; tools that may not be called are not there, and no text is read.
    alone = scripted.post(PATH, asked(script, parallel_tool_calls=False))[1]
    assert sum(item["type"] == "function_call" for item in alone["output"]) == min(len(calls), 1)
    assert alone["parallel_tool_calls"] is False
    plain = scripted.post(PATH, asked(script, tool_choice="none"))[1]
    (item,) = plain["output"]
    assert item["content"][0]["text"] == "".join(one for one in SCRIPTS[form][script] if one not in CONTROLS[form])
    assert (plain["tools"], plain["tool_choice"]) == ([], "none")


def test_what_is_cut_off(form: str, scripted: Running) -> None:
    """Only the last item is incomplete."""
    whole = scripted.post(PATH, asked("<two>", max_output_tokens=4))[1]
    assert whole["status"] == "incomplete"
    *before, last = whole["output"]
    assert last["status"] == "incomplete" and all(item["status"] == "completed" for item in before)


def test_log_probabilities(form: str, scripted: Running) -> None:
    """Those of texts alone; the sum of a stream is what the whole has."""
    body = asked("<none>", include=["message.output_text.logprobs"])
    (item,) = scripted.post(PATH, body)[1]["output"]
    tokens = [one["token"] for one in item["content"][0]["logprobs"]]
    assert "".join(tokens) == item["content"][0]["text"]
    _, _, stream = scripted.request("POST", PATH, {**body, "stream": True})
    assert gathered(events(stream))[0]["content"] == item["content"]
    calls = scripted.post(PATH, asked("<two>", include=["message.output_text.logprobs"]))[1]["output"]
    for item in calls:
        if item["type"] == "message":
            assert "".join(one["token"] for one in item["content"][0]["logprobs"]).startswith(
                item["content"][0]["text"]
            )


def test_a_conversation(form: str, scripted: Running) -> None:
    """The official client calls, answers, and goes on, with the items as they came; the model reads what that of a chat
    would."""
    with openai.OpenAI(base_url=f"http://127.0.0.1:{scripted.port}/v1", api_key="none", max_retries=0) as client:
        options: dict[str, Any] = {"model": "small", "tools": FLAT, "temperature": 0}
        items: list[Any] = [{"role": "user", "content": "<two>"}]
        with client.responses.stream(input=items, **options) as stream:
            kinds = [event.type for event in stream]
            followed = stream.get_final_response().output
        assert kinds.count("response.function_call_arguments.done") == 2
        answer = client.responses.create(input=items, **options)
        calls = [item for item in answer.output if item.type == "function_call"]
        assert [(call.name, call.arguments) for call in calls] == [
            (item.name, item.arguments) for item in followed if item.type == "function_call"
        ]
        results = [{"type": "function_call_output", "call_id": call.call_id, "output": "done"} for call in calls]
        items += [*answer.output, *results, {"role": "user", "content": "<none>"}]
        last = client.responses.create(input=items, **options)
        assert [item.type for item in last.output] == ["message"]
    messages: list[Any] = [{"role": "user", "content": "<two>"}]
    text = "".join(item.content[0].text for item in answer.output if item.type == "message")
    made = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    messages.append({"role": "assistant", "content": text, "tool_calls": made})
    messages += [{"role": "tool", "tool_call_id": call.call_id, "content": "done"} for call in calls]
    messages.append({"role": "user", "content": "<none>"})
    body = {"messages": messages, "tools": TOOLS, "temperature": 0}
    chat = scripted.post("/v1/chat/completions", body)[1]
    assert last.usage is not None and last.usage.input_tokens == chat["usage"]["prompt_tokens"]


def test_what_is_enforced(form: str, scripted: Running) -> None:
    for choice in ("required", {"type": "function", "name": "stop"}):
        for seed in range(3):
            body = asked("x", tool_choice=choice, seed=seed, temperature=1.5, max_output_tokens=200)
            status, found = scripted.post(PATH, body)
            assert status == 200 and found["tool_choice"] == choice
            assert {item["type"] for item in found["output"]} == {"function_call"}
            for call in found["output"]:
                if call["status"] == "completed":
                    assert isinstance(json.loads(call["arguments"]), dict)
                assert choice == "required" or call["name"] == "stop"


@pytest.mark.parametrize(
    ("change", "param", "problem"),
    [
        ({"tools": [3]}, "tools[0]", "is 3; it must be an object with type and name"),
        ({"tools": TOOLS}, "tools[0].function", "is not a field of a tool"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", 'is "web_search"; it must be "function"'),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", 'is "a b"; it must be a name of 1 to 64'),
        ({"tools": FLAT * 2}, f"tools[{len(FLAT)}].name", "is "),
        ({"tools": [{**FLAT[0], "parameters": []}]}, "tools[0].parameters", "is []; it must be an object"),
        ({"tools": [{**FLAT[0], "strict": 1}]}, "tools[0].strict", "is 1; it must be true or false"),
        ({"tools": [{**FLAT[0], "strict": True, "parameters": {"multipleOf": 9999991}}]}, "tools[0].parameters",
         "cannot be enforced: the least common multiple"),
        ({"tools": FLAT, "tool_choice": "any"}, "tool_choice", 'is "any"; it must be "none", "auto", "required"'),
        ({"tools": FLAT, "tool_choice": {"type": "allowed_tools"}}, "tool_choice.type", 'is "allowed_tools"; it must'),
        ({"tools": FLAT, "tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name", 'is "x"; it must be'),
        ({"tools": FLAT, "tool_choice": {"type": "function", "function": {}}}, "tool_choice.function", "is not a"),
        ({"tools": FLAT, "text": {"format": {"type": "json_object"}}}, "text.format", "and tools are both given"),
        ({"input": [{"type": "function_call"}]}, "input[0].call_id", "is null; it must be a text of 1 to 256"),
        ({"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "["}]}, "input[0].arguments",
         'is "["; it must be a text, the JSON of an object'),
        ({"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "", "role": "x"}]},
         "input[0].role", "is not a field of a call of a tool"),
        ({"input": [{"type": "function_call_output", "call_id": "1"}]}, "input[0].output", "is null; it must be a"),
        ({"input": [{"type": "function_call_output", "call_id": "1", "output": "x", "name": "f"}]}, "input[0].name",
         "is not a field of an output of a call"),
    ],
)  # fmt: skip
def test_what_is_refused(form: str, scripted: Running, change: dict[str, Any], param: str, problem: str) -> None:
    error = scripted.error(PATH, {"input": "x", **change})
    assert (error["status"], error["param"]) == (400, param), error
    assert error["message"].startswith(f"{param} {problem}"), error


def test_a_model_that_calls_no_tools(running: Running) -> None:
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    told = {"type": "function_call_output", "call_id": "1", "output": "x"}
    user = {"role": "user", "content": "x"}
    for body, param in (
        ({"input": "x", "tools": FLAT}, "tools"),
        ({"input": [user, call]}, "input[1].type"),
        ({"input": [user, user, told, call]}, "input[2].type"),
    ):
        error = running.error(PATH, body)
        assert (error["status"], error["code"], error["param"]) == (400, "no_tools", param)
    assert running.post(PATH, {"input": "x", "tools": FLAT, "tool_choice": "none", "max_output_tokens": 1})[0] == 200
