"""Tools on the chat route: what the template sees, what comes of calls, whole and as events, and what is enforced."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from scripted_model import write_scripted
from small_server import Running, serving
from tool_scripts import CONTROLS, SCRIPTS, TEMPLATES, TOOLS

from nncuda.tokenizer import Tokenizer

CHAT = "/v1/chat/completions"


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
    return {"messages": [{"role": "user", "content": script}], "tools": TOOLS, "temperature": 0, **more}


def streamed(running: Running, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of a stream's events."""
    status, _, found = running.request("POST", CHAT, {**body, "stream": True})
    assert status == 200, found
    events = found.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    return [json.loads(event[6:])["choices"][0] for event in events[:-2]]


def gathered(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The choice that a stream's parts make."""
    message: dict[str, Any] = {}
    for part in parts:
        for name, value in part["delta"].items():
            if name == "tool_calls":
                (change,) = value
                calls = message.setdefault(name, [])
                if change["index"] == len(calls):
                    assert list(change) == ["index", "id", "type", "function"] and not change["function"]["arguments"]
                    calls.append({key: change[key] for key in change if key != "index"})
                else:
                    assert change == {"index": len(calls) - 1, "function": change["function"]}
                    calls[-1]["function"]["arguments"] += change["function"]["arguments"]
            else:
                assert name == "content" or name not in message
                message[name] = value if message.get(name) is None else message[name] + value
    assert all(part["finish_reason"] is None for part in parts[:-1]) and parts[-1]["delta"] == {}
    return {"message": message, "finish_reason": parts[-1]["finish_reason"]}


EXPECTED: dict[tuple[str, str], tuple[str | None, list[tuple[str, str]]]] = {
    ("hermes", "<two>"): ("Let me see.", [("sail", '{"to": "sea 🌊", "far": [1, 2.5]}'), ("stop", "{}")]),
    ("hermes", "<none>"): ("".join(SCRIPTS["hermes"]["<none>"]), []),
    ("hermes", "<wrong>"): ("oh no}}</tool_call> So.", [("stop", '{"a": ')]),
    ("hermes", "<cut>"): (None, [("sail", '{"to": "the wide sea')]),
    ("llama", "<two>"): (None, [("sail", '{"to": "sea"}'), ("stop", "{}")]),
    ("llama", "<none>"): ('{"sea": "wide"}', []),
    ("llama", "<wrong>"): ("}}", [("stop", '{"a": tru')]),
    ("llama", "<cut>"): (None, [("sail", '{"to": "the wide sea')]),
    ("mistral", "<two>"): ("Let me see.", [("sail", '{"to": "sea"}'), ("stop", "{}")]),
    ("mistral", "<none>"): ("[1, 2] are numbers.", []),
    ("mistral", "<wrong>"): ('[{"name": "stop", "arguments": {}}]', []),
    ("mistral", "<cut>"): ("The sea is wide", []),
}


@pytest.mark.parametrize("script", ["<two>", "<none>", "<wrong>", "<cut>"])
def test_calls(form: str, scripted: Running, script: str) -> None:
    content, calls = EXPECTED[form, script]
    status, whole = scripted.post(CHAT, asked(script, n=2))
    assert status == 200
    for index, choice in enumerate(whole["choices"]):
        message = choice["message"]
        assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
        assert (message["content"], message["refusal"]) == (content, None)
        found = message.get("tool_calls", [])
        assert [(call["function"]["name"], call["function"]["arguments"]) for call in found] == calls
        first = int(whole["id"].split("-")[1][:9], 16)
        ids = [f"{(first + (index << 16) + number) % 16**9:09x}" for number in range(len(calls))]
        assert [(call["id"], call["type"]) for call in found] == [(one, "function") for one in ids]
    parts = streamed(scripted, asked(script))
    assert parts[0]["delta"] == {"role": "assistant", "content": None}
    together = gathered(parts)
    assert together["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert together["message"]["content"] == content
    found = together["message"].get("tool_calls", [])
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in found] == calls
    # At most one call without "parallel_tool_calls"; tools that may not be called are not there, and no text is read.
    alone = scripted.post(CHAT, asked(script, parallel_tool_calls=False))[1]["choices"][0]["message"]
    assert len(alone.get("tool_calls", [])) == min(len(calls), 1)
    plain = scripted.post(CHAT, asked(script, tool_choice="none"))[1]["choices"][0]
    marks = [piece for piece in SCRIPTS[form][script] if piece not in CONTROLS[form]]
    assert plain["message"]["content"] == "".join(marks) and plain["finish_reason"] == "stop"


def test_arguments_come_as_they_are_written(form: str, scripted: Running) -> None:
    """An event for each token that has some of them."""
    parts = [part["delta"].get("tool_calls", [None])[0] for part in streamed(scripted, asked("<two>"))]
    pieces = [part["function"]["arguments"] for part in parts if part is not None and part["index"] == 0]
    expected = {
        "hermes": ["", '{"to"', ': "se', 'a 🌊", "far": ', "[1, 2.", "5]", "}"],
        "llama": ["", '{"to', '": "sea"}'],
        "mistral": ["", '{"to":', ' "sea"}'],
    }
    assert pieces == expected[form]


def test_a_call_that_is_cut_off(scripted: Running, form: str) -> None:
    """The most tokens are reached: that is why it ends, and the arguments are what there is."""
    if form == "mistral":
        return
    for body in (asked("<cut>", max_tokens=3), asked("<cut>", stop=[" sea"])):
        choice = scripted.post(CHAT, body)[1]["choices"][0]
        assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"to": "the wide'
        assert choice["finish_reason"] == ("length" if "max_tokens" in body else "tool_calls")
        assert gathered(streamed(scripted, body))["finish_reason"] == choice["finish_reason"]


def test_log_probabilities(scripted: Running, form: str) -> None:
    """Every token has its own, once, those of calls as well."""
    body = asked("<two>", logprobs=True)
    whole = scripted.post(CHAT, body)[1]["choices"][0]["logprobs"]["content"]
    assert len(whole) == len(SCRIPTS[form]["<two>"])
    parts = streamed(scripted, body)
    assert [one for part in parts if part["logprobs"] for one in part["logprobs"]["content"]] == whole
    assert gathered(parts)["message"].keys() == gathered(streamed(scripted, asked("<two>")))["message"].keys()


def test_a_conversation(form: str, scripted: Running) -> None:
    """The official client calls, answers, and goes on; the template sees arguments as objects."""
    with openai.OpenAI(base_url=f"http://127.0.0.1:{scripted.port}/v1", api_key="none", max_retries=0) as client:
        options: dict[str, Any] = {"model": "small", "tools": TOOLS, "temperature": 0}
        messages: list[Any] = [{"role": "user", "content": "<two>"}]
        with client.chat.completions.stream(messages=messages, **options) as stream:
            kinds = [event.type for event in stream]
            followed = stream.get_final_completion().choices[0].message
        assert kinds.count("tool_calls.function.arguments.done") == 2
        assert kinds.count("tool_calls.function.arguments.delta") > 2
        message = client.chat.completions.create(messages=messages, **options).choices[0].message
        assert [call.function.arguments for call in followed.tool_calls or ()] == [
            call.function.arguments
            for call in message.tool_calls or ()  # type: ignore[union-attr]
        ]
        assert message.tool_calls is not None and [call.type for call in message.tool_calls] == ["function"] * 2
        assert json.loads(message.tool_calls[0].function.arguments)["to"].startswith("sea")
        answers = [{"role": "tool", "tool_call_id": call.id, "content": "done"} for call in message.tool_calls]
        messages += [message, *answers, {"role": "user", "content": "<none>"}]
        whole = client.chat.completions.create(messages=messages, **options)
        assert whole.choices[0].finish_reason == "stop" and whole.choices[0].message.tool_calls is None
    template = scripted.model.stored.chat_template
    text = template.render(
        [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1]}}}]}],
        variables={"tools": TOOLS[1:]},
    )
    assert text.startswith('[TOOLS] [{"function": {"description": null, "name": "stop"}, "type": "function"}]\n')
    assert '"name": "f", ' in text and ': {"a": [1]}}' in text


def test_a_model_that_calls_no_tools(running: Running) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    user = {"role": "user", "content": "x"}
    for body, param in (
        ({"messages": [user], "tools": TOOLS}, "tools"),
        ({"messages": [user, {"role": "assistant", "tool_calls": [call]}]}, "messages[1].tool_calls"),
        ({"messages": [user, {"role": "tool", "content": "x", "tool_call_id": "1"}]}, "messages[1].role"),
    ):
        error = running.error(CHAT, body)
        assert (error["status"], error["code"], error["param"]) == (400, "no_tools", param)
        assert error["message"].startswith(f"{param} needs a model that calls tools")
    assert running.post(CHAT, {"messages": [user], "tools": TOOLS, "tool_choice": "none", "max_tokens": 1})[0] == 200


PARAMETERS = {
    "type": "object",
    "properties": {"to": {"enum": ["sea", "ship"]}, "far": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["to", "far"],
    "additionalProperties": False,
}
STRICT = [
    {"type": "function", "function": {"name": "sail", "parameters": PARAMETERS, "strict": True}},
    {"type": "function", "function": {"name": "stop"}},
]


@pytest.fixture(scope="module")
def random(form: str, tokenizer: Tokenizer) -> Iterator[Running]:
    """A server of a random model whose template has a form."""
    with serving(tokenizer, template=TEMPLATES[form]) as (found, _):
        yield found


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "sail"}}])
def test_what_must_be_called(random: Running, choice: Any) -> None:
    """A random model, hot: every text that ends by itself is calls alone, whose arguments are of the schema."""
    ended = 0
    for seed in range(6):
        body = {"messages": [{"role": "user", "content": "the sea"}], "tools": STRICT, "tool_choice": choice}
        body |= {"seed": seed, "temperature": 1.5, "max_tokens": 300, "parallel_tool_calls": False}
        found = random.post(CHAT, body)[1]["choices"][0]
        together = gathered(streamed(random, body))
        assert together["finish_reason"] == found["finish_reason"]
        calls = [call["function"] for call in found["message"]["tool_calls"]]
        assert [call["function"] for call in together["message"]["tool_calls"]] == calls
        if found["finish_reason"] != "tool_calls":
            continue
        ended += 1
        (call,) = calls
        arguments = json.loads(call["arguments"])
        assert found["message"]["content"] is None and (call["name"] == "sail" or choice == "required")
        if call["name"] == "sail":
            assert (
                set(arguments) == {"to", "far"}
                and arguments["to"] in ("sea", "ship")
                and arguments["far"] in range(100)
            )
        else:
            assert arguments == {}
    assert ended > 2


def test_what_must_be_called_where_control_tokens_begin_calls(scripted: Running) -> None:
    """Whatever the model would rather write; the text before a strict call is free."""
    tools = [{"type": "function", "function": {"name": "stop"}}]
    for script in ("<none>", "<two>"):
        choice = scripted.post(CHAT, asked(script, tools=tools, tool_choice="required", max_tokens=200))[1]["choices"][
            0
        ]
        (call, *_) = choice["message"]["tool_calls"]
        assert choice["message"]["content"] is None and call["function"]["name"] == "stop"
        assert call["function"]["arguments"].startswith("{")
    strict = [{"type": "function", "function": {"name": "stop", "strict": True}}]
    free = scripted.post(CHAT, asked("<none>", tools=strict))[1]["choices"][0]["message"]
    assert "tool_calls" not in free or free["tool_calls"][0]["function"]["name"] == "stop"


def test_strict_functions_that_may_be_called(form: str, random: Running) -> None:
    """The text is free up to where a call begins; then the call is one of a tool, its arguments of its schema."""
    body = {"messages": [{"role": "user", "content": "the sea"}], "tools": STRICT, "max_tokens": 40}
    free = {**body, "tools": [STRICT[1]]}
    texts = [random.post(CHAT, {**one, "seed": 3})[1]["choices"][0]["message"]["content"] for one in (body, free)]
    assert texts[0] and texts[1]
    bias = {str(token): 40 for token in random.model.tokenizer.encode("{")[-1:]}  # type: ignore[union-attr]
    if form == "llama":  # the only one whose calls begin as any JSON does
        found = random.post(CHAT, {**body, "logit_bias": bias, "max_tokens": 200, "temperature": 0.5})[1]["choices"][0]
        assert re.fullmatch("sail|stop", found["message"]["tool_calls"][0]["function"]["name"])


def test_schemas_that_cannot_be_enforced(random: Running) -> None:
    bad = {
        "type": "function",
        "function": {"name": "g", "parameters": {"properties": {"a": {"type": "string", "format": "no-such"}}}},
    }
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "tools": [STRICT[0], bad], "max_tokens": 1}
    assert random.post(CHAT, body)[0] == 200  # nobody asked to enforce it
    error = random.error(CHAT, {**body, "tool_choice": "required"})
    assert (error["status"], error["code"], error["param"]) == (400, "bad_schema", "tools[1].function.parameters")
    only = {"type": "function", "function": {"name": "sail"}}
    assert random.post(CHAT, {**body, "tool_choice": only})[0] == 200  # nor of this one
    strict = {"type": "function", "function": {**bad["function"], "strict": True}}
    assert random.error(CHAT, {**body, "tools": [strict]})["param"] == "tools[0].function.parameters"


def test_many_deep_tools(random: Running) -> None:
    """128 functions with the deepest schemas, required: an answer or a refusal, in a while."""
    deep: Any = {}
    for _ in range(31):
        deep = {"properties": {"a": deep}}
    tools = [{"type": "function", "function": {"name": f"f{number}", "parameters": deep}} for number in range(128)]
    body = {"messages": [{"role": "user", "content": "x"}], "tools": tools, "tool_choice": "required", "max_tokens": 2}
    assert random.post(CHAT, body)[0] in (200, 400)
