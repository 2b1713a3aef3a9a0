"""The table of fields, and the checks that are made from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nncuda.serve.api import API, ApiError, fields_of
from nncuda.serve.bodies import json_object
from nncuda.serve.fields import Checker
from nncuda.serve.messages import place_of_tools, plain_messages
from nncuda.serve.tools import Tools, requested_tools

COMPLETIONS, CHAT = Checker("completions", "/v1/completions"), Checker("chat", "/v1/chat/completions")
MESSAGES = [{"role": "user", "content": "hello"}]


def refused(check: Any, value: Any) -> ApiError:
    with pytest.raises(ApiError) as raised:
        check(value)
    assert json.loads(raised.value.body())["error"]["param"] == raised.value.param
    return raised.value


def test_the_table_is_whole() -> None:
    """Each field has what its kind needs, its default passes its own check, and its words name its bounds."""
    for entry in API["fields"]:
        if entry["kind"] == "unsupported":
            assert set(entry) == {"name", "routes", "kind", "allowed", "why"}, entry
            continue
        assert entry["must"] and entry["about"], entry
        assert entry.get("required") or "default" in entry, entry
        for bound in ("least", "above", "most"):
            if bound in entry and abs(entry[bound]) < 2**62:
                assert str(entry[bound]) in entry["must"], entry
        if entry.get("default") is not None:
            (route, *_) = entry["routes"]
            others = {name: MESSAGES if name == "messages" else "x" for name, field in fields_of(route).items()
                      if field.required}  # fmt: skip
            values = Checker(route, route).check({**others, entry["name"]: entry["default"]})
            assert values[entry["name"]] == entry["default"]
    for route in ("completions", "chat", "responses", "embeddings", "tokenize", "detokenize"):
        names = [entry["name"] for entry in API["fields"] if route in entry["routes"]]
        assert len(names) == len(set(names)) > 0


def test_defaults() -> None:
    values = COMPLETIONS.check({"prompt": "x", "temperature": None})
    assert values["prompt"] == ["x"]
    assert {name: values[name] for name in ("max_tokens", "temperature", "top_p", "top_k", "seed", "n", "stream")} == {
        "max_tokens": 16, "temperature": 1, "top_p": 1, "top_k": 0, "seed": 0, "n": 1, "stream": False,
    }  # fmt: skip
    assert CHAT.check({"messages": MESSAGES})["max_tokens"] is None


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("temperature", "hot", 'temperature is "hot"; it must be a number from 0 to 2'),
        ("temperature", 2.5, "temperature is 2.5; it must be a number from 0 to 2"),
        ("temperature", float("nan"), "temperature is NaN; it must be a number from 0 to 2"),
        ("temperature", True, "temperature is true; it must be a number from 0 to 2"),
        ("temperature", 10**400, f"temperature is {'1' + '0' * 59}…; it must be a number from 0 to 2"),
        ("top_p", 0, "top_p is 0; it must be a number above 0, at most 1"),
        ("top_k", -2, "top_k is -2; it must be a whole number from -1 to 2147483647"),
        ("top_k", 1.0, "top_k is 1.0; it must be a whole number from -1 to 2147483647"),
        ("max_tokens", -1, "max_tokens is -1; it must be a whole number from 0 to 2147483647"),
        ("max_tokens", 10**40, f"max_tokens is {10**40}; it must be a whole number from 0 to 2147483647"),
        ("seed", 2**63, f"seed is {2**63}; it must be a whole number of 64 bits"),
        ("n", 0, "n is 0; it must be a whole number from 1 to 128"),
        ("stream", 1, "stream is 1; it must be true or false"),
        ("stop", ["a", ""], 'stop is ["a",""]; it must be a text or a list of at most 16 texts, each of 1 to 1024 '
         "characters"),
        ("stop", ["a"] * 17, 'stop is ["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"…; it must be a text '
         "or a list of at most 16 texts, each of 1 to 1024 characters"),
        ("min_p", 1.5, "min_p is 1.5; it must be a number from 0 to 1"),
        ("logprobs", True, "logprobs is true; it must be a whole number from 0 to 20"),
        ("logit_bias", [], "logit_bias is []; it must be an object of at most 1024 token ids, each with a number from "
         "-100 to 100"),
        ("echo", "yes", 'echo is "yes"; it must be true or false'),
        ("prompt", 5, "prompt is 5; it must be a text, a list of token ids, or a list of such prompts"),
        ("prompt", [], "prompt is []; it must be a text, a list of token ids, or a list of such prompts"),
        ("prompt", None, "prompt is missing; it must be a text, a list of token ids, or a list of such prompts"),
        ("suffix", "end", 'suffix is "end", which is not supported: texts are continued, not filled in'),
        ("best_of", True, "best_of is true, which is not supported: texts are not ranked; n gives several"),
        ("typical_p", 1, "typical_p is not a field of /v1/completions"),
    ],
)  # fmt: skip
def test_what_is_refused(field: str, value: object, sentence: str) -> None:
    error = refused(COMPLETIONS.check, {"prompt": "x", field: value})
    assert (error.status, error.param, error.sentence) == (400, field, sentence)


@pytest.mark.parametrize(
    ("options", "param", "problem"),
    [
        ({"include_usage": "yes"}, "stream_options.include_usage", 'is "yes"; it must be true or false'),
        ({"continuous_usage_stats": 1}, "stream_options.continuous_usage_stats", "is 1; it must be true or false"),
        ({"include_obfuscation": True}, "stream_options.include_obfuscation", "is true, which is not supported"),
        ({"include_obfuscation": 0}, "stream_options.include_obfuscation", "is 0, which is not supported"),
        ({"more": 1}, "stream_options.more", "is not a field of stream_options"),
        ([], "stream_options", "is []; it must be an object"),
    ],
)
def test_stream_options_that_are_refused(options: object, param: str, problem: str) -> None:
    error = refused(COMPLETIONS.check, {"prompt": "x", "stream": True, "stream_options": options})
    assert error.param == param and error.sentence.startswith(f"{param} {problem}")


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("01", 1, "is not a field of logit_bias, whose keys are token ids"),
        ("-1", 1, "is not a field of logit_bias, whose keys are token ids"),
        ("\N{ARABIC-INDIC DIGIT ONE}", 1, "is not a field of logit_bias, whose keys are token ids"),
        ("1", 101, "is 101; it must be a number from -100 to 100"),
        ("1", None, "is null; it must be a number from -100 to 100"),
    ],
)
def test_biases_that_are_refused(key: str, value: object, problem: str) -> None:
    error = refused(COMPLETIONS.check, {"prompt": "x", "logit_bias": {key: value}})
    assert (error.param, error.sentence) == (f"logit_bias.{key}", f"logit_bias.{key} {problem}")
    assert COMPLETIONS.check({"prompt": "x", "logit_bias": {"0": -1, "12": 0.5}})["logit_bias"] == {0: -1, 12: 0.5}


def test_prompts() -> None:
    for given, prompts in (("a", ["a"]), ([1, 2], [[1, 2]]), (["a", "b"], ["a", "b"]), ([[1], "a"], [[1], "a"])):
        assert COMPLETIONS.check({"prompt": given})["prompt"] == prompts
    assert refused(COMPLETIONS.check, {"prompt": ["a", [1, "b"]]}).param == "prompt[1]"
    assert refused(COMPLETIONS.check, {"prompt": [1, True]}).param == "prompt[0]"


def test_what_asks_for_nothing_is_taken() -> None:
    body = {
        "messages": MESSAGES, "functions": [], "function_call": "none", "response_format": {"type": "text"},
        "store": False, "metadata": None, "service_tier": "auto", "reasoning_effort": None, "modalities": ["text"],
    }  # fmt: skip
    CHAT.check(body)
    for name, value in (("store", 0), ("store", True), ("response_format", "json"), ("functions", [{}])):
        assert refused(CHAT.check, {**body, name: value}).param == name


def test_messages() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    assert plain_messages(
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": "Hi", "refusal": None, "tool_calls": None, "annotations": []},
        ]
    ) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
    ]


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"b": [1.5, "ö"], "a": {}}'}}


def test_messages_of_tools() -> None:
    """Arguments are objects to templates, and an answer without a text has an empty one."""
    empty = {**CALL, "function": {"name": "f", "arguments": ""}}
    found = plain_messages(
        [
            {"role": "assistant", "content": None, "tool_calls": [CALL, empty]},
            {"role": "tool", "content": [{"type": "text", "text": "x"}], "tool_call_id": "1"},
            {"role": "tool", "content": "", "tool_call_id": "1", "name": "f"},
            {"role": "assistant", "content": "x", "tool_calls": None},
        ]
    )
    calls = [{**CALL, "function": {"name": "f", "arguments": one}} for one in ({"b": [1.5, "ö"], "a": {}}, {})]
    assert found == [
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "x", "tool_call_id": "1"},
        {"role": "tool", "content": "", "tool_call_id": "1", "name": "f"},
        {"role": "assistant", "content": "x"},
    ]
    assert list(found[0]["tool_calls"][0]["function"]["arguments"]) == ["b", "a"]
    assert place_of_tools(found) == "messages[0].tool_calls" and place_of_tools(found[1:]) == "messages[0].role"
    assert place_of_tools(found[3:]) is None


@pytest.mark.parametrize(
    ("change", "place", "problem"),
    [
        ({"id": ""}, "id", 'is ""; it must be a text of 1 to 256 characters'),
        ({"id": "x" * 257}, "id", 'is "xxx'),
        ({"type": None}, "type", 'is null; it must be "function"'),
        ({"index": 0}, "index", "is not a field of a call of a tool"),
        ({"function": []}, "function", "is []; it must be an object with name and arguments"),
        ({"function": {"name": "f", "arguments": "{}", "more": 1}}, "function.more", "is not a field of a call of"),
        ({"function": {"name": "a.b", "arguments": "{}"}}, "function.name", 'is "a.b"; it must be a name of 1 to 64'),
        ({"function": {"name": "f"}}, "function.arguments", "is null; it must be a text, the JSON of an object of at"),
        ({"function": {"name": "f", "arguments": {}}}, "function.arguments", "is {}; it must be a text"),
        ({"function": {"name": "f", "arguments": "[]"}}, "function.arguments", 'is "[]"; it must be a text'),
        ({"function": {"name": "f", "arguments": '{"a": 1'}}, "function.arguments", 'is "{\\"a\\": 1"; it must'),
        ({"function": {"name": "f", "arguments": '{"a":1,"a":2}'}}, "function.arguments", 'is "{'),
        ({"function": {"name": "f", "arguments": '{"a":9223372036854775808}'}}, "function.arguments", 'is "{'),
        ({"function": {"name": "f", "arguments": '{"a":' + "[" * 64 + "]" * 64 + "}"}}, "function.arguments", 'is "{'),
    ],
)
def test_calls_that_are_refused(change: dict[str, Any], place: str, problem: str) -> None:
    error = refused(plain_messages, [{"role": "assistant", "tool_calls": [CALL, {**CALL, **change}]}])
    name = f"messages[0].tool_calls[1].{place}"
    assert error.param == name and error.sentence.startswith(f"{name} {problem}")


def tools_of(body: dict[str, Any]) -> Tools | None:
    values = CHAT.check({"messages": MESSAGES, **body})
    return requested_tools(values, "response_format", values["response_format"])


def function(**more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", **more}}


def test_tools() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    offered = [
        function(strict=True, parameters=schema, description=None),
        {"function": {"name": "g"}, "type": "function"},
    ]
    tools = tools_of({"tools": offered})
    assert tools is not None and (tools.choice, tools.parallel, tools.enforced) == ("auto", True, True)
    # In the client's order, and without what models were not trained with.
    assert json.dumps(tools.shown) == json.dumps([function(parameters=schema), offered[1]])
    named = tools_of({"tools": offered, "tool_choice": {"type": "function", "function": {"name": "g"}},
                      "parallel_tool_calls": False})  # fmt: skip
    assert named is not None and not named.parallel and [tool.name for tool in named.callable] == ["g"]
    for body in (
        {}, {"tools": []}, {"tools": None, "tool_choice": "auto", "parallel_tool_calls": False},
        {"tools": offered, "tool_choice": "none", "response_format": {"type": "json_object"}},
    ):  # fmt: skip
        assert tools_of(body) is None
    free = tools_of({"tools": offered[1:], "tool_choice": "auto"})
    assert free is not None and not free.enforced
    most = tools_of({"tools": [function(name=f"f{number}") for number in range(128)]})
    assert most is not None and len(most.offered) == 128


@pytest.mark.parametrize(
    ("body", "param", "problem"),
    [
        ({"tools": {}}, "tools", "is {}; it must be a list of at most 128 tools"),
        ({"tools": [function(name=f"f{number}") for number in range(129)]}, "tools", "is [{"),
        ({"tools": [3]}, "tools[0]", "is 3; it must be an object with type and function"),
        ({"tools": [{"type": "custom"}]}, "tools[0].type", 'is "custom"; it must be "function"'),
        ({"tools": [{"type": "function", "x": 1}]}, "tools[0].x", "is not a field of a tool"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "is null; it must be an object with a name"),
        ({"tools": [function(x=1)]}, "tools[0].function.x", "is not a field of a function"),
        ({"tools": [function(name="")]}, "tools[0].function.name", 'is ""; it must be a name of 1 to 64 letters'),
        ({"tools": [function(name="ö")]}, "tools[0].function.name", 'is "ö"; it must'),
        ({"tools": [function(name="x" * 65)]}, "tools[0].function.name", 'is "xxx'),
        ({"tools": [function(), function()]}, "tools[1].function.name", 'is "f"; it must be a name of 1 to 64 letters'),
        ({"tools": [function(description=1)]}, "tools[0].function.description", "is 1; it must be a text"),
        ({"tools": [function(parameters=[])]}, "tools[0].function.parameters", "is []; it must be an object, a JSON"),
        ({"tools": [function(parameters={"a": 2**63})]}, "tools[0].function.parameters", "is {"),
        (
            {"tools": [function(parameters={"type": "string"})]},
            "tools[0].function.parameters.type",
            'is "string"; it m',
        ),
        ({"tools": [function(parameters={"type": None})]}, "tools[0].function.parameters.type", "is null; it must be"),
        ({"tools": [function(strict=1)]}, "tools[0].function.strict", "is 1; it must be true or false"),
        ({"tool_choice": 1}, "tool_choice", 'is 1; it must be "none", "auto", "required" or an object'),
        ({"tool_choice": ""}, "tool_choice", 'is ""; it must be "none", "auto", "required" or an object'),
        ({"tool_choice": "required"}, "tool_choice", "is given without tools, which it needs"),
        ({"tool_choice": {}}, "tool_choice.type", 'is null; it must be "function"'),
        ({"tool_choice": {"type": "function", "x": 1}}, "tool_choice.x", "is not a field of a choice of a function"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function", "is null; it must be an object with a name"),
        ({"tools": [function()], "tool_choice": function(x=1)}, "tool_choice.function.x", "is not a field of a choice"),
        ({"tools": [function()], "tool_choice": function(name="g")}, "tool_choice.function.name", 'is "g"; it must be'),
        ({"tool_choice": function()}, "tool_choice.function.name", 'is "f"; it must be the name of one of the tools'),
        ({"tools": [function()], "response_format": {"type": "json_object"}}, "response_format", "and tools are both"),
        ({"parallel_tool_calls": 0}, "parallel_tool_calls", "is 0; it must be true or false"),
    ],
)
def test_tools_that_are_refused(body: dict[str, Any], param: str, problem: str) -> None:
    error = refused(tools_of, body)
    assert error.param == param and error.sentence.startswith(f"{param} {problem}")


@pytest.mark.parametrize(
    ("message", "param", "problem"),
    [
        ("hello", "messages[1]", 'is "hello"; it must be an object with role and content'),
        ({"content": "x"}, "messages[1].role", "is null; it must be"),
        ({"role": "tools", "content": "x"}, "messages[1].role", 'is "tools"; it must be'),
        ({"role": "tool", "content": "x"}, "messages[1].tool_call_id", "is null; it must be a text of 1 to 256 charac"),
        ({"role": "tool", "content": None, "tool_call_id": "x"}, "messages[1].content", "is null; it must be a text"),
        ({"role": "tool", "content": "x", "tool_call_id": "x", "name": "a b"}, "messages[1].name", 'is "a b"; it must'),
        ({"role": "user", "content": "x", "tool_call_id": "x"}, "messages[1].tool_call_id", "is not a field of a mess"),
        ({"role": "user", "content": "x", "tool_calls": [1]}, "messages[1].tool_calls", "is [1], which is not support"),
        ({"role": ["user"], "content": "x"}, "messages[1].role", 'is ["user"]; it must be'),
        ({"role": "user"}, "messages[1].content", "is null; it must be a text, or a list of parts of type text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[1].content[0].type", 'is "image_url"; it mus'),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text", "is null; it must be a text"),
        ({"role": "user", "content": "x", "name": "Ann"}, "messages[1].name", "is not a field of a message"),
        ({"role": "assistant", "content": "x", "tool_calls": {}}, "messages[1].tool_calls", "is {}; it must be a list"),
        ({"role": "assistant", "content": "x", "tool_calls": [1]}, "messages[1].tool_calls[0]", "is 1; it must be an"),
        ({"role": "assistant", "tool_calls": []}, "messages[1].content", "is null; it must be a text, or a list"),
    ],
)
def test_messages_that_are_refused(message: object, param: str, problem: str) -> None:
    error = refused(plain_messages, [MESSAGES[0], message])
    assert error.param == param and error.sentence.startswith(f"{param} {problem}")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b"{",
        b'{"a": 1, "a": 2}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b'{"\\udc00": 1}',
        b'{"a":' * 600 + b"1" + b"}" * 600,
        b'{"a":' + b"[" * 100_000,
        b'{"a": ' + b"1" * 5000 + b"}",
    ],
)
def test_bodies_that_are_not_json(body: bytes) -> None:
    assert refused(json_object, body).code == "not_json"


def test_pairs_of_surrogates_are_characters() -> None:
    assert json_object(b'{"a": "\\ud83d\\ude00\\u0000"}') == {"a": "\U0001f600\0"}
