"""Checks the messages of a chat, and puts them into the form that chat templates know: a role and a text each."""

from __future__ import annotations

from typing import Any

from .api import WORDS, ApiError, quoted

#: What a template is told for each role. OpenAI calls the system's turn the developer's by now, which templates do not.
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

#: What answers of this API hold besides, and what clients therefore send back: it must be empty.
_EMPTY = ("refusal", "tool_calls", "function_call", "audio", "annotations")


def plain_messages(messages: list[Any]) -> list[dict[str, str]]:
    """The messages as templates take them. ApiError, with the place of what is wrong, for anything else."""
    return [_plain(f"messages[{number}]", message) for number, message in enumerate(messages)]


def _plain(name: str, message: Any) -> dict[str, str]:
    if not isinstance(message, dict):
        raise _wrong(name, message, WORDS["message"])
    for key, value in message.items():
        place = f"{name}.{key}"[:256]
        if key in _EMPTY:
            if value not in (None, [], ""):
                why = WORDS["texts_alone"]
                raise ApiError("unsupported_field", place, name=place, value=quoted(value), why=why)
        elif key not in ("role", "content"):
            raise ApiError("unknown_field", place, name=place, route=WORDS["a_message"])
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise _wrong(f"{name}.role", role, WORDS["role"])
    return {"role": _ROLES[role], "content": _text(f"{name}.content", message.get("content"))}


def _text(name: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise _wrong(name, content, WORDS["content"])
    return "".join(_part(f"{name}[{number}]", part) for number, part in enumerate(content))


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
