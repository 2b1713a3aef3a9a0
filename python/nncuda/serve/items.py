"""The input of /v1/responses, a text or items, as the messages that chat templates know."""

from __future__ import annotations

from typing import Any

from .api import WORDS, ApiError, quoted
from .messages import content_text

#: What a template is told for each role.
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

#: What answers of this API have for their messages, and clients therefore send back.
_STATUSES = ("in_progress", "completed", "incomplete")

_PARTS = ("input_text", "output_text")


def input_messages(given: str | list[Any], instructions: str | None) -> list[dict[str, str]]:
    """The messages of an input, after the instructions. ApiError, with the place of what is wrong, for others."""
    messages = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    return [*messages, *(_message(f"input[{number}]", item) for number, item in enumerate(given))]


def _message(name: str, item: Any) -> dict[str, str]:
    if not isinstance(item, dict):
        raise _wrong(name, item, "item")
    if item.get("type") not in (None, "message"):
        raise _wrong(f"{name}.type", item["type"], "item_type")
    for key, value in item.items():
        place = f"{name}.{key}"[:256]
        if key == "id":
            if not isinstance(value, str | None):
                raise _wrong(place, value, "text")
        elif key == "status":
            if value not in (None, *_STATUSES):
                raise _wrong(place, value, "item_status")
        elif key not in ("type", "role", "content"):
            raise ApiError("unknown_field", place, name=place, route=WORDS["a_message"])
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise _wrong(f"{name}.role", role, "item_role")
    content = content_text(f"{name}.content", item.get("content"), WORDS["item_content"], _part)
    return {"role": _ROLES[role], "content": content}


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
