"""Servers of other languages answer as Python's does, to the byte: texts, streams, refusals, at any concurrency."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import languages
import pytest
from conftest import find
from servers import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, SHAPE, Asked, Served, idle, neutral, served
from small_models import write_adapter

from nncuda.bench.random_model import write_folder
from nncuda.models.stored import StoredModel

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role | upper }}] {{ m['content'].strip() }}\n{% endfor %}"
    "{% if messages[0].content == 'fail' %}{{ raise_exception('no such thing') }}{% endif %}[ASSISTANT]"
)
TEXTS = ["the sea", "a small ship sails the wide sea, " * 3, "waves", 'die größte Welle: \U0001f30a \\ "quoted"\n\t']
SERVING = [name for name in languages.SERVING if name != "python"]


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


def of_text(format: dict[str, Any]) -> dict[str, Any]:
    """The `text` of a response that has a response_format of the chat."""
    return {"format": {"type": format["type"], **format.get("json_schema", {})}}


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
            common["stream_options"] = {"include_usage": True, "continuous_usage_stats": number % 3 == 0}
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
    for number in range(10):
        how: dict[str, Any] = {
            "seed": number, "stream": number % 2 == 0, "ignore_eos": number < 5, "max_output_tokens": 10 + 3 * number,
            "temperature": (1, 0.7, 1e-9, 0.123456789, 0)[number % 5], "top_p": 1 - number / 77,
        }  # fmt: skip
        if number % 3 == 1:
            how |= {"include": ["message.output_text.logprobs"], "top_logprobs": number % 4}
        if number % 4 == 1:
            how |= {"stop": ["e", "wa"], "presence_penalty": -0.0, "frequency_penalty": 1.1, "user": "ö", "text": {}}
        if number % 5 == 4:
            how |= {"text": {"format": {"type": "text"}}, "max_output_tokens": None, "instructions": TEXTS[3]}
        found.append((RESPONSES, {**how, "input": ITEMS if number % 2 else TEXTS[number % 4]}))
    for number, format in enumerate(FORMATS * 2):
        how = {"seed": number, "stream": number % 2 == 0, "max_output_tokens": 20 + 10 * number}
        found.append((RESPONSES, {**how, "input": TEXTS[number % len(TEXTS)], "text": of_text(format)}))
    for encoding in ({}, {"encoding_format": "float", "user": "ö"}, {"encoding_format": "base64"}):
        inputs: list[Any] = [TEXTS, TEXTS[3], [7] * 250, [[3, 4, 5], "waves", [599]]]
        found += [(EMBEDDINGS, {"input": one, **encoding}) for one in inputs]
    long = {"prompt": [7] * 250, "max_tokens": 1000, "ignore_eos": True}
    return [
        *found,
        (COMPLETIONS, long),
        ("/tokenize", {"prompt": TEXTS[3], "return_token_strs": True}),
        ("/tokenize", {"prompt": "", "add_special_tokens": False}),
        ("/detokenize", {"tokens": [5, 300, 401, 599]}),
    ]


#: An input of messages, of which one was an answer.
ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "sail"}]},
    {"role": "user", "content": "waves"},
    {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "phase": "commentary", "content": [
        {"type": "output_text", "text": "the ", "annotations": [], "logprobs": [{"token": "the"}]},
        {"type": "output_text", "text": "sea"},
    ]},
    {"role": "user", "content": TEXTS[3]},
]  # fmt: skip


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
        {"enum": [[{"a": number}] for number in range(1000)], "const": 3}, {"multipleOf": 9999991},
        {"allOf": [{"multipleOf": 997}, {"multipleOf": 991}]}, {"pattern": "x", "enum": ["a"] * 2001},
        {"patternProperties": {f"^{number:040}": {} for number in range(250)}},
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
        {"tools": [{"type": "function", "function": {"name": "f"}}]}, {"functions": [{}]},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "x"}]}, {"metadata": {"a": "b"}},
        {"top_logprobs": 2}, {"logprobs": 2},
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
    part = {"type": "output_text", "text": "x"}
    items: list[Any] = [
        None, [], {}, 3, True, "word " * 300, ["x"], [{"type": "item_reference", "id": "msg_1"}], [{"type": 3}],
        [{"role": "user", "content": "x"}, {"type": "function_call_output", "output": 1.5}], [{"content": "x"}],
        [{"role": "tool", "content": "x"}], [{"role": "user"}], [{"role": "user", "content": []}],
        [{"role": "user", "content": "x", "name": "y"}], [{"role": "user", "content": "x", "id": 3}],
        [{"role": "user", "content": "x", "status": "done"}], [{"role": "user", "content": "x", "status": ["done"]}],
        *([{"role": "assistant", "content": "x", "phase": phase}] for phase in ("said", ["commentary"], 3)),
        [{"role": "user", "content": "x", "phase": None}], [{"phase": "commentary", "content": "x"}],
        *(
            [{"role": "user", "content": content}]
            for content in (
                ["x"], [{}], [{"type": "input_image"}], [{**part, "text": 3}], [{**part, "x" * 300: 3}],
                [part, {**part, "annotations": [1]}], [{**part, "annotations": {}}], [{**part, "logprobs": "x"}],
            )
        ),
    ]  # fmt: skip
    answered: list[dict[str, Any]] = [
        {"instructions": ["x"]}, {"max_output_tokens": 0}, {"max_output_tokens": 2**31}, {"model": "other"}, {"n": 1},
        {"include": ["reasoning.encrypted_content"]}, {"include": "message.output_text.logprobs"}, {"include": [3]},
        {"top_logprobs": 2}, {"top_logprobs": 21, "include": ["message.output_text.logprobs"]}, {"store": True},
        {"stream_options": {"include_obfuscation": True}}, {"stream_options": {"include_obfuscation": 0}},
        {"stream_options": {"include_obfuscation": False, "more": 1}}, {"previous_response_id": "resp_1"},
        {"background": True}, {"tools": [{}]}, {"max_tool_calls": 3},
        {"tools": [{"type": "function", "name": "f"}]}, {"reasoning": {"effort": "low"}},
        {"truncation": "auto"}, {"conversation": "x"}, {"prompt": {"id": "x"}}, {"messages": []}, {"text": "x"},
        {"text": {"format": "text"}}, {"text": {"verbosity": "low"}}, {"text": {"x" * 300: 1}},
        {"text": {"format": {"type": "grammar"}}}, {"text": {"format": {}}}, {"logit_bias": {"600": 1}},
        {"text": {"format": {"type": "text", "schema": {}}}}, {"temperature": 3}, {"stop": [""]}, {"user": "x" * 257},
        *({"text": of_text(of_schema(schema))} for schema in unenforceable()),
        *({"text": {"format": {"type": "json_schema", **one}}} for one in (
            {}, {"schema": 3}, {"schema": []}, {"schema": {}, "strict": 1}, {"schema": {}, "name": 2.5},
            {"schema": {}, "description": {}}, {"schema": {}, "x" * 300: 1}, {"json_schema": {"schema": {}}},
        )),
        {"text": {"format": {"type": "json_object", "schema": {}}}},
    ]  # fmt: skip
    return [
        *((RESPONSES, {"input": item}) for item in items),
        *((RESPONSES, {"input": "x", **one}) for one in answered),
        *((COMPLETIONS, {"prompt": prompt}) for prompt in prompts),
        *((EMBEDDINGS, {"input": prompt}) for prompt in [*prompts, ["x"] * 53, ["x", []], ["x", "word " * 300]]),
        *((EMBEDDINGS, {"input": "x", **one}) for one in (
            {"dimensions": 8}, {"encoding_format": "hex"}, {"encoding_format": ["float"]}, {"encoding_format": 1},
            {"user": 3}, {"model": "other"}, {"stream": True}, {"prompt": "x"},
        )), (EMBEDDINGS, {}),
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


def chosen() -> list[Asked]:
    """Requests of every route for the model and its adapters, by name, and for what is not there."""
    found: list[Asked] = []
    for name in ({}, {"model": "sea"}, {"model": "small"}, {"model": "a/ship"}, {"model": "ship"}):
        how: dict[str, Any] = {"ignore_eos": True, "seed": 3, **name}
        found += [
            (COMPLETIONS, {"prompt": TEXTS[1], "max_tokens": 9, "logprobs": 2, "echo": True, **how}),
            (CHAT, {**CHATTED, "max_tokens": 9, "stream": True, "n": 2, **how}),
            (RESPONSES, {"input": TEXTS[2], "max_output_tokens": 9, **how}),
            (EMBEDDINGS, {"input": [TEXTS[1], [3, 4]], **name}),
            ("/tokenize", {"prompt": "waves", **name}),
            ("/detokenize", {"tokens": [5, 300], **name}),
        ]
    return found


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[object], list[Any]]:
    """A model, the options of its adapters, and what Python answers."""
    place = tmp_path_factory.mktemp("adapted")
    write_folder(place / "model", SHAPE)
    config = StoredModel.open(place / "model").config
    options: list[object] = []
    for seed, (name, target) in enumerate((("sea", "self_attn.q_proj"), ("a/ship", "mlp.down_proj"))):
        write_adapter(place / str(seed), config, (target,), seed)
        options += ["--adapter", f"{name}={place / str(seed)}"]
    with served("python", place / "model", *options, "--max-batch", 1) as server:
        answers: list[Any] = [neutral(server.post(asked)) for asked in chosen()]
        answers += [neutral(server.request("GET", path)) for path in LISTED]
    return place, options, answers


LISTED = ["/v1/models", "/v1/models/sea", "/v1/models/a/ship", "/v1/models/small", "/v1/models/ship"]


@pytest.mark.case("a server with adapters: which requests choose, and what is refused")
@pytest.mark.parametrize("language", SERVING)
def test_adapters(adapted: tuple[Path, list[object], list[Any]], language: str) -> None:
    place, options, wanted = adapted
    with served(language, place / "model", *options) as server, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda asked: neutral(server.post(asked)), chosen()))
        assert found + [neutral(server.request("GET", path)) for path in LISTED] == wanted
        assert idle(server)
    statuses = [status for status, _ in wanted]
    assert statuses == [200] * 24 + [404] * 6 + [200] * 4 + [404]
    assert len({body for status, body in wanted[:24:6] if status == 200}) == 3  # the model's twice
    run = find(language).run
    for given, words in (
        (["nothing"], "'nothing' is not NAME=PATH, such as sql=adapters/sql"),
        (["=."], "'=.' is not NAME=PATH"),
        (["a\n=."], "is not NAME=PATH"),
        (["x" * 257 + "=."], "is not NAME=PATH"),
        (["a="], "'a=' is not NAME=PATH"),
        (["a=nowhere"], "'nowhere' does not exist"),
        (["a=.", "a=."], "'a' is the name of two adapters"),
        (["model=."], "--adapter model has the name of the model; choose another, or a --model-name"),
    ):
        line = [part for one in given for part in ("--adapter", one)]
        assert words in run("serve", place / "model", *line, code=2).stderr
    config = place / "0" / "adapter_config.json"
    whole = json.loads(config.read_text())
    other = place / language
    shutil.copytree(place / "0", other)
    for changed, words in (({"r": 5}, "with r 5 the model makes it"), ({"use_dora": True}, "use_dora")):
        (other / "adapter_config.json").write_text(json.dumps({**whole, **changed}))
        said = run("serve", place / "model", "--port", 0, "--adapter", f"a={other}", code=3).stderr
        assert words in said and "Error: " in said


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
            ("GET", "/v1/models", {}), ("GET", "/v1/models/small", {}), ("GET", "/tokenizer_info", {}),
            ("GET", RESPONSES, {}), ("GET", EMBEDDINGS, {}), ("POST", "/tokenizer_info", {}), ("GET", "/", {}),
            ("HEAD", "/", {}),
            ("GET", "/%E2%82%AC", {}),
            ("POST", COMPLETIONS, {"content-length": "5000000", "content-type": "application/json"}),
            ("POST", COMPLETIONS, {"content-length": "0", "content-type": "text/plain"}),
        ):  # fmt: skip
            wanted, found = (neutral(one.request(method, path, headers=headers)) for one in (server, other))
            assert found == wanted, (method, path, headers)
        # Python's counts a head that comes in several parts only.
        status, body = other.request("GET", "/health", headers={"x": "y" * 17000})
        assert (status, json.loads(body)["error"]["code"]) == (431, "headers_too_large")
        for asked in (failing, (RESPONSES, {"input": "fail"})):
            wanted, found = (neutral(one.post(asked)) for one in (server, other))
            assert found[0] == wanted[0] and found[0] == (400 if (folder / "chat_template.jinja").exists() else 200)


def costly() -> dict[str, Any]:
    """Arrays in arrays of twenty kinds: after two brackets llguidance would follow too many at once."""
    kinds = [str(one) for one in range(20)]
    inner: dict[str, Any] = {"$ref": "#/$defs/0"}
    for _ in range(2):
        inner = {"type": "array", "minItems": 1, "items": inner}
    any_kind = {"anyOf": [{"type": "array", "items": {"$ref": f"#/$defs/{one}"}} for one in kinds]}
    return {**inner, "$defs": dict.fromkeys(kinds, any_kind)}


@pytest.mark.case("what a server refuses")
@pytest.mark.parametrize("language", SERVING)
def test_a_limit_that_is_reached_while_a_text_is_written(folder: Path, language: str) -> None:
    """A refusal, or the error that ends a stream; and the server goes on."""
    format = of_schema(costly())
    asked = [
        *((COMPLETIONS, {"prompt": "x", "response_format": format, "max_tokens": 200, "stream": stream})
          for stream in (False, True)),
        *((RESPONSES, {"input": "x", "text": of_text(format), "max_output_tokens": 200, "stream": stream})
          for stream in (False, True)),
    ]  # fmt: skip
    with served("python", folder) as server, served(language, folder) as other:
        for one in asked:
            wanted, found = (neutral(each.post(one)) for each in (server, other))
            assert found == wanted and b'"schema_too_costly"' in found[1], found
            assert found[0] == (200 if one[1]["stream"] else 400)
        assert idle(other)
        assert other.post((COMPLETIONS, {"prompt": "x", "max_tokens": 3}))[0] == 200


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
        status, body = server.post((RESPONSES, {"input": "x", "text": {"format": {"type": "json_object"}}}))
        assert (status, json.loads(body)["error"]["param"]) == (400, "text.format")
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
@pytest.mark.parametrize("language", SERVING)
def test_what_operators_see(folder: Path, language: str) -> None:
    """The same series of metrics, and records of the log with the same keys."""
    seen: list[tuple[set[frozenset[str]], list[Any]]] = []
    texts = {"prompt": [3, 4, 5], "n": 3, "max_tokens": 2, "ignore_eos": True, "user": "some one"}
    for name in ("python", language):
        with served(name, folder, "--log-format", "json", "--max-batch", 1, "--threads", 1) as server:
            embedded = {"input": [[3, 4, 5], [6, 7]], "user": "some one"}
            for asked in (
                (COMPLETIONS, texts),
                (CHAT, {**CHATTED, "n": 0}),
                ("/tokenize", {"prompt": "x"}),
                (EMBEDDINGS, embedded),
            ):
                server.post(asked)
            server.request("GET", "/nothing")
            lines = metrics_of(server, 5)
        server.wait_for_log()
        # Labels stand in any order.
        series = {frozenset(re.split("[{},]", line.rsplit(" ", 1)[0])) for line in lines}
        # As the requests end, which is a moment after their answers, and so in an order of its own.
        records = [json.loads(line) for line in server.log if line.startswith("{")]
        (last,) = (record for record in records if "shutting down" in record.get("message", ""))
        records = [record for record in records if record.get("path") != "/metrics"]
        if language == "rust":  # docs/serving-running.md says how it words its end
            records.remove(last)
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
    assert seen[0][1] == seen[1][1] and len(seen[0][1]) == (5 if language == "rust" else 6)


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
