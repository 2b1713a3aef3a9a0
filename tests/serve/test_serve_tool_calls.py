"""Calls of tools in texts: what is read, when, and what is asked of llguidance."""

from __future__ import annotations

import itertools
import json
from typing import Any

import llguidance
import pytest
import tool_fixtures
from hypothesis import given
from hypothesis import strategies as st
from tool_fixtures import FOLDER, NAMES, described, form_of, joined, tool_calls

from nncuda.infer.grammar import _Vocabulary
from nncuda.serve.json_follower import JsonFollower, Part
from nncuda.serve.tool_calls import Piece, ToolCallReader, call_form
from nncuda.tokenizer import Tokenizer

CASES = tool_calls()


def test_the_fixtures_are_those_of_their_program() -> None:
    """Otherwise: python tests/serve/tool_fixtures.py."""
    assert (FOLDER / "tool_calls.json").read_text() == tool_fixtures.text_of(CASES)
    assert (FOLDER / "call_grammars.json").read_text() == tool_fixtures.text_of(tool_fixtures.call_grammars())


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_texts_cut_anywhere(case: dict[str, Any]) -> None:
    """In one piece, in two at every place, and character by character."""
    text = case["text"]
    for cuts in [[text], list(text), *([text[:at], text[at:]] for at in range(1, len(text)))]:
        reader = ToolCallReader(form_of(case["form"]), NAMES, case["parallel"])
        pieces = [piece for part in cuts for piece in reader.push(part)] + reader.end()
        assert joined(pieces) == case["pieces"]
        assert reader.count == sum(kind == "call" for kind, _ in case["pieces"])


def test_what_is_written_is_given_at_once() -> None:
    """Each character of arguments, and of words but for spaces."""
    text = 'ab <tool_call>{"name": "f", "arguments": {"a": 1}}'
    reader = ToolCallReader(form_of("hermes"), NAMES)
    seen = [[described(piece) for piece in reader.push(sign)] for sign in text]
    start = text.index('{"a"')
    assert seen[:2] == [[["words", "a"]], [["words", "b"]]] and not any(seen[2:start])
    assert seen[start] == [["call", "f"], ["arguments", "{"]]
    assert seen[start + 1 : -1] == [[["arguments", sign]] for sign in '"a": 1}']


def test_templates_have_forms() -> None:
    for template, form in (
        ("{% if tools %}<tool_call>{% endif %}", "hermes"),
        ("{% if tools %}<tool_call><function={% endif %}", None),
        ("<tool_call>", None),
        ("{% if tools %}{% endif %}", None),
        ("{{ tools }}[TOOL_CALLS]", "mistral"),
        ("{{ tools }}[TOOL_CALLS][ARGS]", None),
        ("{{ tools }}<|python_tag|>", "llama"),
        ('{% for tool in tools %}{% endfor %}{{ \'{"name": "\' }}{{ \'"parameters": \' }}', "llama"),
    ):
        found = call_form(template)
        assert (None if found is None else found.name) == form


@pytest.fixture(scope="module")
def vocabulary(tokenizer: Tokenizer) -> llguidance.LLTokenizer:
    names = _Vocabulary(tokenizer, 280)
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(names), n_vocab=len(names.tokens), eos_token=names.ends)


def accepted(grammar: str, tokenizer: Tokenizer, vocabulary: llguidance.LLTokenizer, text: str) -> bool | None:
    """Whether a text may stand so, and end there; None when it may only go on."""
    matcher = llguidance.LLMatcher(vocabulary, grammar, log_level=0)
    ids = tokenizer.encode(text)
    assert not matcher.is_error() and tokenizer.decode(ids) == text
    if matcher.validate_tokens(ids) < len(ids):
        return False
    matcher.consume_tokens(ids)
    return True if matcher.is_accepting() else None


PARTS = st.sampled_from(
    [*'{}[],:"\\ \n;', "0", "1", "-", ".", "e", "+", "true", "null", "nul", "u00e9", '"name"', '"f"', '"arguments"',
     "ö", '"parameters"', '"id":"x"', "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", '{"name":"f","']
)  # fmt: skip


@given(st.lists(PARTS, max_size=12).map("".join))
def test_objects_are_followed_as_json_has_them(text: str) -> None:
    """Each that Python reads to its end, and no other."""
    text = ("{" + text).rstrip(" \n")
    follower = JsonFollower()
    fits = all(follower.push(sign) for sign in text)
    try:
        json.loads(text)
    except ValueError:
        assert not (fits and follower.part is Part.DONE)
    else:
        assert fits and follower.part is Part.DONE


@given(st.sampled_from(["hermes", "llama", "mistral"]), st.lists(PARTS, max_size=30), st.booleans())
def test_any_text_cut_anywhere(form: str, parts: list[str], parallel: bool) -> None:
    """What is read depends on the text alone, and no text is lost but around calls."""
    found = []
    for cuts in (parts, ["".join(parts)]):
        reader = ToolCallReader(form_of(form), NAMES, parallel)
        found.append(joined([piece for part in cuts for piece in reader.push(part)] + reader.end()))
        if not reader.count:
            assert found[-1] == ([["words", "".join(parts)]] if "".join(parts) else [])
    assert found[0] == found[1]


def joined_in_time(pieces: list[Piece]) -> list[list[str]]:
    """`joined`, for many pieces."""
    kinds = itertools.groupby(map(described, pieces), key=lambda one: one[0])
    return [[kind, "".join(text for _, text in several)] for kind, several in kinds]


SAIL, STOP = '{"name": "sail", "%s": {"to":"sea"}}', '{"name": "stop-2", "%s": { }}'
WAIT, BAD = '{"name": "wait", "%s": {"a":3}}', '{"name": "wait", "%s": {}}'


H = "<tool_call>\n{}\n</tool_call>"


@pytest.mark.parametrize(
    ("form", "choice", "parallel", "yes", "no"),
    [
        ("hermes", 1, True, [H, f"{H}\n{H}"], ["", "words", f" {H}", f"{H}words"]),
        ("hermes", 1, False, [H], [f"{H}\n{H}"]),
        ("hermes", 0, True, ["", "words < <tool", f"words {H}\n{H} more"], ["<tool_call>{}"]),
        ("llama", 1, True, ["{}", "{}; {}"], ["", "words", "words {}"]),
        ("llama", 1, False, ["{}"], ["{}; {}"]),
        ("llama", 0, True, ["", "words {", "{}; {}", "words <|python_tag|>{}"], ["<|python_tag|> {}", '{"sea']),
        ("mistral", 1, True, ["[TOOL_CALLS][{}]", "[TOOL_CALLS][{}, {}]"], ["", "[TOOL_CALLS]{}", "words"]),
        ("mistral", 1, False, ["[TOOL_CALLS][{}]"], ["[TOOL_CALLS][{}, {}]"]),
        ("mistral", 0, True, ["words [1]", "words [TOOL_CALLS][{}, {}] more"], ["[TOOL_CALLS]{}"]),
    ],
)  # fmt: skip
def test_grammars(
    tokenizer: Tokenizer, vocabulary: llguidance.LLTokenizer, form: str, choice: int, parallel: bool, yes: list[str],
    no: list[str],
) -> None:  # fmt: skip
    """What they allow, with calls for {}: of those parameters that are enforced."""
    (case,) = (
        one for one in tool_fixtures.call_grammars()[1:]
        if (one["form"], one["tool_choice"], one["parallel_tool_calls"], one["marks"])
        == (form, tool_fixtures.CHOICES[choice], parallel, {})
    )  # fmt: skip
    assert not llguidance.LLMatcher.validate_grammar(case["grammar"], vocabulary)
    key = form_of(form).arguments
    free = '{"name": "sail", "%s": {"to":"ship"}}'  # of a function that is not strict
    for call, fits in ((SAIL, True), (STOP, True), (WAIT, True), (BAD, False), (free, choice == 0)):
        for text in yes:
            whole = text.replace("{}", call % key)
            assert accepted(case["grammar"], tokenizer, vocabulary, whole) is (fits or "{}" not in text), whole
        for text in no:
            assert accepted(case["grammar"], tokenizer, vocabulary, text.replace("{}", call % key)) is not True


def test_reading_takes_time_in_proportion() -> None:
    """Of texts that begin many calls, none of which is one, and of those that are held for long, in a long piece or in
    many short ones: each character is looked at and copied a few times."""
    begin, long = '<tool_call>{"', "x" * 50_000
    for text, pieces in (
        (f'{begin}name": "' * 2_000, None),
        (f"{begin}{long}", None),
        (f'{begin}name": "{long}', None),
        (f'{begin}arguments": {{"a": "{long}', None),
        (f"{long} {long}", None),
        (f'{begin}name": "f", "arguments": {{"a": "{long}', [["call", "f"], ["arguments", f'{{"a": "{long}']]),
    ):
        for step in (5, len(text)):
            reader = ToolCallReader(form_of("hermes"), NAMES)
            found = [one for at in range(0, len(text), step) for one in reader.push(text[at : at + step])]
            assert joined_in_time(found + reader.end()) == (pieces or [["words", text]])
