"""response_format: what the model writes obeys, whatever it would rather write."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_server import Running, serving

from nncuda.infer.grammar import NO_FORCING, GrammarConstraint, GrammarError, Grammars
from nncuda.serve.constraints import Formats
from nncuda.serve.fields import Checker
from nncuda.serve.tool_calls import FORMS
from nncuda.serve.tools import requested_tools
from nncuda.tokenizer import Tokenizer

MESSAGES = [{"role": "user", "content": "the sea"}]
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["sea", "ship"]}, "big": {"type": "boolean"}, "waves": {"type": "array",
                   "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3}},
    "required": ["kind", "big", "waves"],
    "additionalProperties": False,
}  # fmt: skip


def of_schema(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **more}}


@pytest.mark.parametrize("stream", [False, True])
def test_of_a_schema(running: Running, stream: bool) -> None:
    """A random model, hot: every text that ends by itself is of the schema."""
    for seed in range(12):
        asked = {
            "messages": MESSAGES,
            "seed": seed,
            "temperature": 1.5,
            "response_format": of_schema(SCHEMA, strict=True),
        }
        _, _, body = running.request("POST", "/v1/chat/completions", {**asked, "stream": stream})
        if stream:
            parts = [json.loads(part[6:])["choices"][0] for part in body.decode().split("\n\n")[:-2]]
            text = "".join(part["delta"].get("content", "") for part in parts)
            finish = parts[-1]["finish_reason"]
        else:
            (choice,) = json.loads(body)["choices"]
            text, finish = choice["message"]["content"], choice["finish_reason"]
        assert finish == "stop"
        found = json.loads(text)
        assert set(found) == {"kind", "big", "waves"} and found["kind"] in ("sea", "ship")
        assert isinstance(found["big"], bool) and len(found["waves"]) <= 3
        assert all(isinstance(wave, int) and 0 <= wave <= 99 for wave in found["waves"])


def test_any_object(running: Running) -> None:
    """What is cut for its length begins as an object does, and what ends is one."""
    ended = 0
    for seed in range(8):
        asked = {
            "prompt": "the sea",
            "seed": seed,
            "max_tokens": 200,
            "response_format": {"type": "json_object"},
            "n": 2,
        }
        for choice in running.post("/v1/completions", asked)[1]["choices"]:
            assert choice["text"].startswith("{")
            if choice["finish_reason"] == "stop":
                ended += 1
                assert isinstance(json.loads(choice["text"]), dict)
    assert ended


def test_without_an_end_id(tokenizer: Tokenizer, running: Running) -> None:
    """The text ends when the grammar allows nothing more, as where end ids are ignored."""
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    asked = {"prompt": "the sea", "max_tokens": 300, "response_format": of_schema(schema)}
    _, found = running.post("/v1/completions", {**asked, "ignore_eos": True})
    assert found["choices"][0]["finish_reason"] == "stop" and json.loads(found["choices"][0]["text"])["a"] in (1, 2)
    bare = Tokenizer(tokenizer.model, end_ids=())
    with serving(bare) as (other, _):
        _, found = other.post("/v1/completions", asked)
        assert found["choices"][0]["finish_reason"] == "stop" and json.loads(found["choices"][0]["text"])["a"] in (1, 2)


@pytest.mark.parametrize(
    ("given", "param", "problem"),
    [
        ({}, ".type", 'is null; it must be "text", "json_object" or "json_schema"'),
        ({"type": "xml"}, ".type", 'is "xml"; it must be "text", "json_object" or "json_schema"'),
        ({"type": "json_object", "schema": {}}, ".schema", "is not a field of response_format"),
        ({"type": "json_schema"}, ".json_schema", "is null; it must be an object with a schema"),
        (of_schema(None), ".json_schema.schema", "is null; it must be an object, a JSON Schema"),
        (of_schema({}, more=1), ".json_schema.more", "is not a field of response_format.json_schema"),
        (of_schema({}, strict=1), ".json_schema.strict", "is 1; it must be true or false"),
        (of_schema({"not": {}}), ".json_schema.schema", "cannot be enforced: Unimplemented keys"),
        (of_schema({"not": {}, "x-guidance": {"lenient": True}}), ".json_schema.schema", "cannot be enforced: Unimpl"),
        (of_schema({"type": "wrong"}), ".json_schema.schema", "cannot be enforced: Invalid type: wrong"),
        (of_schema({"format": "x", "type": "string"}), ".json_schema.schema", "cannot be enforced: Unknown format: x"),
        (of_schema({"$ref": "https://example.org/x"}), ".json_schema.schema", "cannot be enforced"),
        (of_schema({"type": "string", "pattern": "(?=a)"}), ".json_schema.schema", "cannot be enforced"),
    ],
)
def test_what_is_refused(running: Running, given: dict[str, Any], param: str, problem: str) -> None:
    error = running.error("/v1/chat/completions", {"messages": MESSAGES, "response_format": given})
    assert (error["status"], error["param"]) == (400, "response_format" + param)
    assert error["message"].startswith(f"response_format{param} {problem}")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"enum": list(range(5000))}, "it has more than 4096 brackets, commas and colons"),
        ({"$ref": "#"}, "NoExtensionBias"),
        ({"allOf": [{"anyOf": [{"properties": {f"{a}{b}": {}}} for a in range(4)]} for b in range(12)]}, "schema too"),
    ],
)  # fmt: skip
def test_what_costs_too_much(running: Running, schema: dict[str, Any], problem: str) -> None:
    """What llguidance could not bear is refused at once, and so is what no text obeys."""
    begun = time.monotonic()
    error = running.error("/v1/completions", {"prompt": "x", "response_format": of_schema(schema)})
    assert error["message"].startswith(f"response_format.json_schema.schema cannot be enforced: {problem}")
    assert time.monotonic() - begun < 30


def test_a_constraint_that_fails_ends_its_own_text_alone(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: GrammarConstraint, token: int) -> None:
        raise LookupError("the grammar is lost")

    monkeypatch.setattr(GrammarConstraint, "accept", fail)
    asked = {"prompt": "the sea", "max_tokens": 9, "response_format": {"type": "json_object"}}
    error = running.error("/v1/completions", asked)
    assert (error["status"], error["code"]) == (500, "internal_error")
    assert running.post("/v1/completions", {"prompt": "the sea", "max_tokens": 3})[0] == 200
    assert running.at_rest


def costly() -> dict[str, Any]:
    """Arrays in arrays, of which each may be one of twenty kinds: after two brackets llguidance would follow too many
    at once. It says so while the text is written."""
    kinds = range(20)
    lists = [{"anyOf": [{"type": "array", "items": {"$ref": f"#/$defs/{one}"}} for one in kinds]} for _ in kinds]
    inner: dict[str, Any] = {"$ref": "#/$defs/0"}
    for _ in range(2):
        inner = {"type": "array", "minItems": 1, "items": inner}
    return {**inner, "$defs": {str(one): kind for one, kind in zip(kinds, lists, strict=True)}}


@pytest.mark.parametrize("stream", [False, True])
def test_a_limit_that_is_reached_while_a_text_is_written(
    running: Running, log: list[dict[str, Any]], wait: Callable[[Callable[[], bool]], None], stream: bool
) -> None:
    asked = {"prompt": "the sea", "max_tokens": 400, "stream": stream, "response_format": of_schema(costly())}
    status, _, body = running.request("POST", "/v1/completions", asked)
    *_, error = [body] if not stream else body.removesuffix(b"data: [DONE]\n\n").strip().split(b"\n\n")
    found = json.loads(error.removeprefix(b"data: "))["error"]
    assert status == (200 if stream else 400)
    assert (found["code"], found["type"], found["param"]) == ("schema_too_costly", "invalid_request_error", None)
    assert found["message"].startswith("the text cannot go on: what it must obey is too costly to enforce from here on")
    wait(lambda: any(record.get("path") == "/v1/completions" for record in log))  # which comes after the last byte
    line = next(record for record in reversed(log) if record.get("path") == "/v1/completions")
    assert (line["error"], line["finish"]) == ("schema_too_costly", "failed")
    assert running.post("/v1/completions", {"prompt": "the sea", "max_tokens": 3})[0] == 200
    assert running.at_rest


def test_each_schema_is_counted_once(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tools: by itself, so that its name is told, and with all others."""
    counted: list[int] = []
    monkeypatch.setattr("nncuda.infer.grammar.check_cost", lambda schemas: counted.append(len(schemas)))
    offered = [{"type": "function", "function": {"name": name, "strict": True}} for name in "fg"]
    values = Checker("chat", "/x").check({"messages": MESSAGES, "tools": offered})
    tools = requested_tools(values, "response_format", None)
    assert tools is not None and Formats(running.model).of_calls(tools, FORMS[0], {}) is not None
    assert counted == [1, 1, 2]


def allowed(constraint: GrammarConstraint) -> set[int]:
    """The tokens that a constraint allows next."""
    return set(np.flatnonzero(np.unpackbits(constraint.mask().view(np.uint8), bitorder="little")).tolist())


def test_masks(running: Running) -> None:
    """Bit by bit: at the beginning of an object a brace or a space may come, and no token that is no text."""
    tokenizer = running.model.tokenizer
    grammar = Grammars(tokenizer, running.model.config.vocab_size).json_schema({"type": "object"})
    one, other = grammar.constraint(), grammar.constraint()
    (brace,) = [token for token in range(tokenizer.vocab_size) if tokenizer.piece(token) == "<0x7B>"]
    may = allowed(one)
    assert brace in may and tokenizer.begin_id not in may and tokenizer.end_id not in may
    one.accept(brace)
    assert allowed(one) != allowed(other)  # each has a state of its own


class Spaced:
    """A tokenizer of a few words, which puts a space before every text, as those of Llama do."""

    words = ("</s>", "a", " ", "{", "}", '"', ":", '{"', ' {"', '"}', "kind", '":', '":"', ' "', "sea", "1")
    vocab_size, ordinary_id, end_ids = len(words), 1, frozenset({0})

    def decode(self, ids: list[int]) -> str:
        return "".join(self.words[token] for token in ids if token)

    def piece(self, token: int) -> str:
        return self.words[token]

    def encode(self, text: str) -> list[int]:
        raise AssertionError("no text of a grammar is cut")


def test_the_model_cuts_texts_into_tokens() -> None:
    """Where a grammar leaves one text, every way to cut it is allowed, and none with a space that the text lacks."""
    schema = {"type": "object", "properties": {"kind": {"enum": ["sea"]}}, "required": ["kind"]}
    grammar = Grammars(Spaced(), 17).json_schema({**schema, "additionalProperties": False})  # type: ignore[arg-type]
    constraint, steps = grammar.constraint(), []
    for word in ('{"', "kind", '":"', "sea", '"}'):
        steps.append({Spaced.words[token] for token in allowed(constraint)})
        constraint.accept(Spaced.words.index(word))
    assert steps == [{"{", '{"'}, {"kind"}, {'"', '":', '":"'}, {"sea"}, {'"', '"}'}]
    assert not constraint.mask().any()


def test_a_grammar_in_lark() -> None:
    """Texts around JSON; what is wrong is said in one line."""
    grammars = Grammars(Spaced(), 16)  # type: ignore[arg-type]
    constraint = grammars.llguidance(f'{NO_FORCING}start: "a" ("1" | %json {{"enum": ["sea"]}}) "a"').constraint()
    constraint.accept(1)
    assert {Spaced.words[token] for token in allowed(constraint)} == {"1", '"'}
    constraint.accept(Spaced.words.index("1"))
    constraint.accept(1)
    assert not constraint.mask().any()
    with pytest.raises(RuntimeError, match="the grammar failed: "):
        constraint.accept(2)
    for wrong in ("start: @nothing", "start: (", ""):
        with pytest.raises(GrammarError) as failed:
            grammars.llguidance(NO_FORCING + wrong)
        assert "\n" not in str(failed.value) and len(str(failed.value)) <= 300
