"""The input of /v1/responses, a text or items, as the messages that chat templates know."""

from __future__ import annotations

from typing import Any

from .api import WORDS, ApiError, quoted
from .messages import call_id, called_function, content_text

#: What a template is told for each role.
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

#: What answers of this API have for their messages, and clients therefore send back.
_STATUSES = ("in_progress", "completed", "incomplete")

#: How messages of an assistant may be labelled.
_PHASES = ("commentary", "final_answer")

_PARTS = ("input_text", "output_text")


def input_messages(given: str | list[Any], instructions: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """The messages of an input, after the instructions, and the place of the first item that has to do with tools.
    ApiError, with the place of what is wrong, for others."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}], None
    about_tools = None
    turn: dict[str, Any] | None = None  # of an assistant, which calls that follow it belong to
    for number, item in enumerate(given):
        name = f"input[{number}]"
        if not isinstance(item, dict):
            raise _wrong(name, item, "item")
        kind = item.get("type")
        if kind == "function_call":
            call = _call(name, item)
            if turn is None:
                turn = {"role": "assistant", "content": ""}
                messages.append(turn)
            turn.setdefault("tool_calls", []).append(call)
        else:
            messages.append(_output(name, item) if kind == "function_call_output" else _message(name, item))
            turn = messages[-1] if messages[-1]["role"] == "assistant" else None
        if about_tools is None and kind not in (None, "message"):
            about_tools = f"{name}.type"
    return messages, about_tools


def _call(name: str, item: dict[str, Any]) -> dict[str, Any]:
    """A call that an answer had."""
    _check(name, item, ("type", "call_id", "name", "arguments"), "a_call")
    identity = call_id(f"{name}.call_id", item.get("call_id"))
    function = called_function(name, item)
    return {"id": identity, "type": "function", "function": function}


def _output(name: str, item: dict[str, Any]) -> dict[str, Any]:
    """What a call gave."""
    _check(name, item, ("type", "call_id", "output"), "an_output")
    identity = call_id(f"{name}.call_id", item.get("call_id"))
    content = content_text(f"{name}.output", item.get("output"), WORDS["item_content"], _part)
    return {"role": "tool", "content": content, "tool_call_id": identity}


def _message(name: str, item: dict[str, Any]) -> dict[str, Any]:
    if item.get("type") not in (None, "message"):
        raise _wrong(f"{name}.type", item["type"], "item_type")
    role = item.get("role")
    keys = ("type", "role", "content", "phase") if role == "assistant" else ("type", "role", "content")
    _check(name, item, keys, "a_message")
    if not isinstance(role, str) or role not in _ROLES:
        raise _wrong(f"{name}.role", role, "item_role")
    content = content_text(f"{name}.content", item.get("content"), WORDS["item_content"], _part)
    return {"role": _ROLES[role], "content": content}


def _check(name: str, item: dict[str, Any], keys: tuple[str, ...], route: str) -> None:
    """ApiError for a key that an item of its type does not have. What answers give their items besides says nothing to
    a template, and neither does a label."""
    for key, value in item.items():
        place = f"{name}.{key}"[:256]
        if key == "id":
            if not isinstance(value, str | None):
                raise _wrong(place, value, "text")
        elif key == "status":
            if value not in (None, *_STATUSES):
                raise _wrong(place, value, "item_status")
        elif key not in keys:
            raise ApiError("unknown_field", place, name=place, route=WORDS[route])
        elif key == "phase" and value not in (None, *_PHASES):
            raise _wrong(place, value, "item_phase")


def _part(name: str, part: Any) -> str:
    if not isinstance(part, dict):
        raise _wrong(name, part, "part")
    if part.get("type") not in _PARTS:
        raise _wrong(f"{name}.type", part.get("type"), "item_part_type")
    for key, value in part.items():
        place = f"{name}.{key}"[:256]
        if key == "annotations":
            if value not in (None, []):
                why = WORDS["texts_alone"]
                raise ApiError("unsupported_field", place, name=place, value=quoted(value), why=why)
        elif key == "logprobs":  # of a text that was written: they change nothing in what comes
            if not isinstance(value, list | None):
                raise _wrong(place, value, "log_probabilities")
        elif key not in ("type", "text"):
            raise ApiError("unknown_field", place, name=place, route=WORDS["an_item_part"])
    text = part.get("text")
    if not isinstance(text, str):
        raise _wrong(f"{name}.text", text, "text")
    return text


def _wrong(name: str, value: object, words: str) -> ApiError:
    return ApiError("invalid_value", name, name=name, value=quoted(value), must=WORDS[words])
