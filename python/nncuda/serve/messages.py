"""Checks the messages of a chat, and puts them into the form that chat templates know.

Each has a role and a text. An assistant's may have calls of tools, whose arguments are then objects, and a tool's
answer names the call that it is for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .api import WORDS, ApiError, quoted
from .bodies import json_object
from .tools import check_keys, is_name, is_plain

#: What a template is told for each role. OpenAI calls the system's turn the developer's by now, which templates do not.
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}

#: What answers of this API hold besides, and what clients therefore send back: it must be empty.
_EMPTY = ("refusal", "function_call", "audio", "annotations")

#: What messages of some roles have besides.
_MORE = {"assistant": ("tool_calls",), "tool": ("tool_call_id", "name")}

_MOST_CALLS = 128
_LONGEST_ID = 256


def plain_messages(messages: list[Any]) -> list[dict[str, Any]]:
    """The messages as templates take them. ApiError, with the place of what is wrong, for anything else."""
    return [_message(f"messages[{number}]", message) for number, message in enumerate(messages)]


def place_of_tools(messages: list[dict[str, Any]]) -> str | None:
    """Where messages for a template first have something of tools."""
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            return f"messages[{number}].role"
        if "tool_calls" in message:
            return f"messages[{number}].tool_calls"
    return None


def _message(name: str, message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise _wrong(name, message, WORDS["message"])
    role = message.get("role")
    more = _MORE.get(role, ()) if isinstance(role, str) else ()
    for key, value in message.items():
        place = f"{name}.{key}"[:256]
        if key in more or key in ("role", "content"):
            continue
        if key not in _EMPTY and key != "tool_calls":
            raise ApiError("unknown_field", place, name=place, route=WORDS["a_message"])
        if value not in (None, [], ""):
            why = WORDS["texts_alone"]
            raise ApiError("unsupported_field", place, name=place, value=quoted(value), why=why)
    if not isinstance(role, str) or role not in _ROLES:
        raise _wrong(f"{name}.role", role, WORDS["role"])
    calls = _calls(f"{name}.tool_calls", message.get("tool_calls")) if role == "assistant" else []
    # Templates put a text together with others, which null is not.
    content = message.get("content")
    text = "" if content is None and calls else content_text(f"{name}.content", content, WORDS["content"], _part)
    made: dict[str, Any] = {"role": _ROLES[role], "content": text}
    if calls:
        made["tool_calls"] = calls
    if role == "tool":
        made["tool_call_id"] = call_id(f"{name}.tool_call_id", message.get("tool_call_id"))
        called = message.get("name")
        if called is not None:
            if not is_name(called):
                raise _wrong(f"{name}.name", called, WORDS["called_name"])
            made["name"] = called
    return made


def _calls(name: str, calls: Any) -> list[dict[str, Any]]:
    if calls is None:
        return []
    if not isinstance(calls, list) or len(calls) > _MOST_CALLS:
        raise _wrong(name, calls, WORDS["calls"])
    return [_call(f"{name}[{number}]", call) for number, call in enumerate(calls)]


def _call(name: str, call: Any) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise _wrong(name, call, WORDS["call"])
    check_keys(call, name, ("id", "type", "function"), "a_call")
    identity = call_id(f"{name}.id", call.get("id"))
    if call.get("type") != "function":
        raise _wrong(f"{name}.type", call.get("type"), WORDS["function_type"])
    function, name = call.get("function"), f"{name}.function"
    if not isinstance(function, dict):
        raise _wrong(name, function, WORDS["called"])
    check_keys(function, name, ("name", "arguments"), "a_call")
    return {"id": identity, "type": "function", "function": called_function(name, function)}


def called_function(place: str, given: dict[str, Any]) -> dict[str, Any]:
    """The name and the arguments, as an object, of a call."""
    name, text = given.get("name"), given.get("arguments")
    if not is_name(name):
        raise _wrong(f"{place}.name", name, WORDS["called_name"])
    arguments = _arguments(text)
    if arguments is None:
        raise _wrong(f"{place}.arguments", text, WORDS["arguments"])
    return {"name": name, "arguments": arguments}


def _arguments(given: Any) -> dict[str, Any] | None:
    """The arguments that a text is the JSON of; an empty one is that of none. None where it is no such text."""
    if not isinstance(given, str):
        return None
    try:
        found = json_object(given.encode()) if given else {}
    except ApiError:
        return None
    return found if is_plain(found) else None


def call_id(name: str, value: Any) -> str:
    """The id of a call."""
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST_ID:
        raise _wrong(name, value, WORDS["call_id"])
    return value


def content_text(name: str, content: Any, words: str, part_text: Callable[[str, Any], str]) -> str:
    """The text of a content: a text, or a list of parts whose texts follow one another. `words` say what it must be."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise _wrong(name, content, words)
    return "".join(part_text(f"{name}[{number}]", part) for number, part in enumerate(content))


def _part(name: str, part: Any) -> str:
    if not isinstance(part, dict):
        raise _wrong(name, part, WORDS["part"])
    if part.get("type") != "text":
        raise _wrong(f"{name}.type", part.get("type"), WORDS["part_type"])
    for key in part:
        if key not in ("type", "text"):
            place = f"{name}.{key}"[:256]
            raise ApiError("unknown_field", place, name=place, route=WORDS["a_part"])
    text = part.get("text")
    if not isinstance(text, str):
        raise _wrong(f"{name}.text", text, WORDS["text"])
    return text


def _wrong(name: str, value: object, must: str) -> ApiError:
    return ApiError("invalid_value", name, name=name, value=quoted(value), must=must)
