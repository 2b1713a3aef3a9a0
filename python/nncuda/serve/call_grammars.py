"""What the text of a model must be where calls of tools are enforced, as a grammar of llguidance.

Calls are written as chat templates write those of earlier turns, to the space. The arguments of each function are a
grammar of their own, so that references in a schema lead where they led.
(https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..infer.grammar import NO_FORCING, SPACES
from .tool_calls import CallForm
from .tools import Tool, Tools


def call_grammar(tools: Tools, form: CallForm, marks: Mapping[str, int]) -> str:
    """The grammar of texts with calls. `marks` are those texts of the form that are control tokens.

    Where a call is required, the text is nothing else. Where the choice is the model's, the text is free up to what
    begins a call.
    """
    functions = tools.callable
    rules = [_start(tools, form, marks), f"item: {' | '.join(f'item{number}' for number in range(len(functions)))}"]
    for number, tool in enumerate(functions):
        head = f'{{"name": "{tool.name}", "{form.arguments}": '
        rules.append(f'item{number}: {_text(head)} @arguments{number} "}}"')
    grammars: list[dict[str, Any]] = [{"name": "calls", "lark_grammar": NO_FORCING + "\n".join(rules) + "\n"}]
    for number, tool in enumerate(functions):
        grammars.append({"name": f"arguments{number}", "json_schema": arguments_schema(tool, tools.enforces(tool))})
    return schema_grammar(grammars)


def schema_grammar(grammars: list[dict[str, Any]]) -> str:
    """Grammars as llguidance takes them; the first one is that of the text."""
    return json.dumps({"grammars": grammars}, ensure_ascii=False, separators=(",", ":"))


def arguments_schema(tool: Tool, enforced: bool) -> dict[str, Any]:
    """The schema of a function's arguments: its own where that is enforced, otherwise that of any object."""
    schema: dict[str, Any] = {"type": "object"}
    if enforced and tool.parameters is None:
        schema |= {"properties": {}, "additionalProperties": False}
    elif enforced and tool.parameters is not None:
        schema |= tool.parameters
    return {**schema, "x-guidance": {"whitespace_pattern": SPACES}}


def _start(tools: Tools, form: CallForm, marks: Mapping[str, int]) -> str:
    """The first rules: where calls stand in the text."""

    def mark(text: str) -> str:
        return f"<[{marks[text]}]>" if text in marks else _text(text)

    between = ", " if form.listed else "; "
    block = f"item ({_text(between)} item)*" if tools.parallel else "item"
    if form.listed:
        block = f'"[" {block} "]"'
    elif form.end:
        block = f'"\\n" item "\\n" {mark(form.end)}'
    if tools.choice != "auto":
        start = "block" if form.bare else f"{mark(form.begin)} block"
        again = form.end and not form.listed and tools.parallel
        return f"start: {start}" + (f' ("\\n" {start})*' if again else "") + f"\nblock: {block}"
    start = "block | begun | WORDS" if form.bare else f"begun{'*' if tools.parallel else '?'} WORDS"
    begun = f"begun: WORDS {mark(form.begin)} block"
    if form.begin not in marks:  # the first place where it stands begins a call
        begun = f"begun: begin block\nbegin[lazy]: WORDS {mark(form.begin)}"
    words = r"/[ \n\r\t]*([^{ \n\r\t](.|\n)*)?/" if form.bare else r"/(.|\n)*/"
    return f"start: {start}\nblock: {block}\n{begun}\nWORDS: {words}"


def _text(text: str) -> str:
    """A text as the grammar has it."""
    return json.dumps(text)
