"""Texts with calls of tools and what is read of them, grammars of calls, for the tests of all languages.

    python tests/serve/tool_fixtures.py

writes tool_calls.json: for each text its pieces (what they are is written here), and `seen`, how many characters of
them are certain after each character, so that it shows when each is given. And call_grammars.json: for a request's
tools what llguidance is asked to see to.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nncuda.serve.call_grammars import call_grammar
from nncuda.serve.tool_calls import FORMS, Arguments, Call, CallForm, Piece, ToolCallReader, Words
from nncuda.serve.tools import requested_tools

FOLDER = Path(__file__).parent
NAMES = ["f", "get_sea-2"]

#: A text of each form, and its pieces: words, a call with its name, arguments of the last call.
TEXTS: list[tuple[str, str, list[list[str]]]] = [
    ("hermes", "", []),
    ("hermes", "just words, <b> and { \n", [["words", "just words, <b> and { \n"]]),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": [1, {"b": "}\\""}]}}\n</tool_call>',
     [["call", "f"], ["arguments", '{"a": [1, {"b": "}\\""}]}']]),
    ("hermes", 'Let me see.\n\n<tool_call>{"name":"f","arguments":{}}</tool_call>\n <tool_call>'
     '{"name":"get_sea-2","arguments":{"ö":"\U0001f30a"}}</tool_call>\n',
     [["words", "Let me see."], ["call", "f"], ["arguments", "{}"], ["call", "get_sea-2"],
      ["arguments", '{"ö":"\U0001f30a"}']]),
    ("hermes", '<tool_call>{"name":"f","arguments":{}}</tool_call> That is all.',
     [["call", "f"], ["arguments", "{}"], ["words", " That is all."]]),
    # Arguments before the name; further keys.
    ("hermes", '<tool_call>{"arguments": {"a": true}, "type": "function", "name": "f"}</tool_call>',
     [["call", "f"], ["arguments", '{"a": true}']]),
    ("hermes", '<tool_call>{"id": "x", "name": "f", "arguments": {}, "id": "y"} </tool_call>',
     [["call", "f"], ["arguments", "{}"]]),
    # Without its end, before another call and at the end.
    ("hermes", '<tool_call>{"name":"f","arguments":{}}\n<tool_call>{"name":"f","arguments":{"a":null}}',
     [["call", "f"], ["arguments", "{}"], ["call", "f"], ["arguments", '{"a":null}']]),
    ("hermes", '<tool_call>{"name":"f","arguments":{}}</tool_', [["call", "f"], ["arguments", "{}"]]),
    # What is cut off.
    ("hermes", '<tool_call>{"name":"f","arguments":{"a":"b', [["call", "f"], ["arguments", '{"a":"b']]),
    ("hermes", '<tool_call>{"name":"f","argum', [["words", '<tool_call>{"name":"f","argum']]),
    ("hermes", "the sea <tool_c", [["words", "the sea <tool_c"]]),
    # What is no call: another name, no name, no arguments, no object, no JSON.
    ("hermes", '<tool_call>{"name":"g","arguments":{}}</tool_call>',
     [["words", '<tool_call>{"name":"g","arguments":{}}</tool_call>']]),
    ("hermes", '<tool_call>{"arguments":{}}</tool_call>', [["words", '<tool_call>{"arguments":{}}</tool_call>']]),
    ("hermes", '<tool_call>{"name":"f"}</tool_call>', [["words", '<tool_call>{"name":"f"}</tool_call>']]),
    ("hermes", '<tool_call>{"name":"f","arguments":"{}"}', [["words", '<tool_call>{"name":"f","arguments":"{}"}']]),
    ("hermes", '<tool_call>{"name":"f","parameters":{}}', [["words", '<tool_call>{"name":"f","parameters":{}}']]),
    ("hermes", '<tool_call>{"name":"f","name":"f","arguments":{}}',
     [["words", '<tool_call>{"name":"f","name":"f","arguments":{}}']]),
    ("hermes", '<tool_call>{"\\u006eame":"f","arguments":{}}',
     [["words", '<tool_call>{"\\u006eame":"f","arguments":{}}']]),
    ("hermes", '<tool_call>f()</tool_call>', [["words", "<tool_call>f()</tool_call>"]]),
    ("hermes", "<tool_call><tool_call>{}<<tool_call>[", [["words", "<tool_call><tool_call>{}<<tool_call>["]]),
    ("hermes", '<tool_call>{"name": <tool_call>{"name":"f","arguments":{}}</tool_call>',
     [["words", '<tool_call>{"name": '], ["call", "f"], ["arguments", "{}"]]),
    # Arguments that are no JSON end where that shows; what follows is text.
    ("hermes", '<tool_call>{"name":"f","arguments":{"a":1,}}</tool_call>x',
     [["call", "f"], ["arguments", '{"a":1,'], ["words", "}}</tool_call>x"]]),
    ("hermes", '<tool_call>{"name":"f","arguments":{"a":"\n"}}', [["call", "f"], ["arguments", '{"a":"'],
     ["words", '\n"}}']]),
    ("hermes", '<tool_call>{"name":"f","arguments":{"a":01}}', [["call", "f"], ["arguments", '{"a":0'],
     ["words", "1}}"]]),
    ("hermes", '<tool_call>{"name":"f","arguments":{}, "more": 1}</tool_call>',
     [["call", "f"], ["arguments", "{}"], ["words", ', "more": 1}</tool_call>']]),
    ("hermes", '<tool_call>{"name":"f","arguments":{}}, <tool_call>{"name":"f","arguments":{}}',
     [["call", "f"], ["arguments", "{}"], ["words", ","], ["call", "f"], ["arguments", "{}"]]),
    # Numbers, words and escapes of all kinds.
    ("hermes", '<tool_call>{"name":"f","arguments":{"a":[-0,0.5,1e9,-12E-3,2.5e+1, [ ] ,{ },false,null,"\\u00e9\\/"]}}',
     [["call", "f"], ["arguments", '{"a":[-0,0.5,1e9,-12E-3,2.5e+1, [ ] ,{ },false,null,"\\u00e9\\/"]}']]),
    ("hermes", '<tool_call>{"name":"f","arguments":{"a":[1.]}}', [["call", "f"], ["arguments", '{"a":[1.'],
     ["words", "]}}"]]),
    ("hermes", '<tool_call>{"name":"f","arguments":{"a":nul}}', [["call", "f"], ["arguments", '{"a":nul'],
     ["words", "}}"]]),
    ("hermes", '<tool_call>{"name":"f","arguments":{"a":"\\x"}}', [["call", "f"], ["arguments", '{"a":"\\'],
     ["words", 'x"}}']]),
    ("hermes", '<tool_call>{"name":"f","arguments":{"a":' + "[" * 260, [["call", "f"],
     ["arguments", '{"a":' + "[" * 254], ["words", "[" * 6]]),
    ("llama", '{"name": "f", "parameters": {"x": 1}}', [["call", "f"], ["arguments", '{"x": 1}']]),
    ("llama", '\n<|python_tag|>{"type": "function", "name": "f", "parameters": {}}; {"name":"f","parameters":{}}\n',
     [["call", "f"], ["arguments", "{}"], ["call", "f"], ["arguments", "{}"]]),
    ("llama", '{"name":"f","parameters":{}} {"name":"g","parameters":{}}',
     [["call", "f"], ["arguments", "{}"], ["words", ' {"name":"g","parameters":{}}']]),
    ("llama", '{"name":"f","parameters":{}};', [["call", "f"], ["arguments", "{}"], ["words", ";"]]),
    ("llama", '{"sea": {"name":"f","parameters":{}}}', [["words", '{"sea": {"name":"f","parameters":{}}}']]),
    ("llama", 'The sea: {"name":"f","parameters":{}}', [["words", 'The sea: {"name":"f","parameters":{}}']]),
    ("llama", 'The sea: <|python_tag|>{"name":"f","parameters":{}}',
     [["words", "The sea:"], ["call", "f"], ["arguments", "{}"]]),
    ("llama", "<|python_tag|>print(1)", [["words", "<|python_tag|>print(1)"]]),
    ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {"a": []}}, {"name": "f", "arguments": {}, "id": "1"}]',
     [["call", "f"], ["arguments", '{"a": []}'], ["call", "f"], ["arguments", "{}"]]),
    ("mistral", 'Words [1] [TOOL_CALLS][{"name":"f","arguments":{}}]\nand words',
     [["words", "Words [1]"], ["call", "f"], ["arguments", "{}"], ["words", "\nand words"]]),
    ("mistral", '[TOOL_CALLS][{"name":"f","arguments":{}},]', [["call", "f"], ["arguments", "{}"], ["words", ",]"]]),
    ("mistral", '[TOOL_CALLS]{"name":"f","arguments":{}}', [["words", '[TOOL_CALLS]{"name":"f","arguments":{}}']]),
    ("mistral", "[TOOL_CALLS][]", [["words", "[TOOL_CALLS][]"]]),
]  # fmt: skip

#: What is left of texts where one call at most is asked for.
ALONE: list[tuple[str, str, list[list[str]]]] = [
    ("hermes", 'a <tool_call>{"name":"f","arguments":{}}</tool_call> <tool_call>{"name":"f","arguments":{}}',
     [["words", "a"], ["call", "f"], ["arguments", "{}"]]),
    ("hermes", '<tool_call>{"name":"f","arguments":{]}}</tool_call>b', [["call", "f"], ["arguments", "{"]]),
    ("llama", '{"name":"f","parameters":{}}; {"name":"f","parameters":{}}', [["call", "f"], ["arguments", "{}"]]),
    ("mistral", '[TOOL_CALLS][{"name":"f","arguments":{}}, {"name":"f","arguments":{}}]',
     [["call", "f"], ["arguments", "{}"]]),
]  # fmt: skip

OPEN = {"type": "object", "properties": {"to": {"enum": ["sea", "größte \U0001f30a"]}}}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "sail", "parameters": OPEN}},
    {"type": "function", "function": {"name": "stop-2"}},
    {"type": "function", "function": {"name": "wait", "parameters": {"$ref": "#/$defs/a", "x-guidance": {"lenient": 1},
     "$defs": {"a": {"minProperties": 1}}}, "strict": True}},
]  # fmt: skip
CHOICES = ["auto", "required", {"type": "function", "function": {"name": "stop-2"}}]


def form_of(name: str) -> CallForm:
    return next(form for form in FORMS if form.name == name)


def described(piece: Piece) -> list[str]:
    """A piece as the fixtures have it."""
    match piece:
        case Words():
            return ["words", piece.text]
        case Call():
            return ["call", piece.name]
        case Arguments():
            return ["arguments", piece.text]


def joined(pieces: list[Piece]) -> list[list[str]]:
    """Pieces, those that belong together as one."""
    found: list[list[str]] = []
    for kind, text in map(described, pieces):
        if found and found[-1][0] == kind != "call":
            found[-1][1] += text
        else:
            found.append([kind, text])
    return found


def tool_calls() -> list[dict[str, Any]]:
    """The content of tool_calls.json."""
    cases = []
    for parallel, texts in ((True, TEXTS), (False, ALONE)):
        for form, text, pieces in texts:
            reader, seen = ToolCallReader(form_of(form), NAMES, parallel), [0]
            for sign in text:
                seen.append(seen[-1] + sum(len(described(piece)[1]) for piece in reader.push(sign)))
            case = {"form": form, "parallel": parallel, "text": text, "pieces": pieces, "seen": seen[1:]}
            cases.append(case)
    return cases


def call_grammars() -> list[dict[str, Any]]:
    """The content of call_grammars.json, all with the same tools, which stand in the first."""
    cases: list[dict[str, Any]] = []
    for form in FORMS:
        for choice in CHOICES:
            for parallel in (True, False):
                for marks in ({}, {form.begin: 7}, {form.begin: 7, form.end: 8} if form.end else {}):
                    request = {"tool_choice": choice, "parallel_tool_calls": parallel}
                    tools = requested_tools({"tools": TOOLS, **request}, "response_format", None)
                    assert tools is not None
                    case = {"form": form.name, **request, "marks": marks, "grammar": call_grammar(tools, form, marks)}
                    if case not in cases:
                        cases.append(case)
    return [{"tools": TOOLS}, *cases]


def text_of(cases: list[dict[str, Any]]) -> str:
    """Cases as their file has them, one a line."""
    return "[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]\n"


if __name__ == "__main__":
    (FOLDER / "tool_calls.json").write_text(text_of(tool_calls()), encoding="utf-8")
    (FOLDER / "call_grammars.json").write_text(text_of(call_grammars()), encoding="utf-8")
