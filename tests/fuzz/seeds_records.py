"""Small JSONL files of records to train on, valid and hostile."""

from __future__ import annotations

import json
from typing import Any

from seeds_gguf import Seed

ASKED = {"role": "user", "content": "Hi"}
SAID = {"role": "assistant", "content": "Yes, what is it?"}


def talk(*messages: Any, **more: Any) -> bytes:
    """A conversation."""
    return json.dumps({"messages": messages, **more}).encode() + b"\n"


def text(value: Any) -> bytes:
    """A text."""
    return json.dumps({"text": value}).encode() + b"\n"


def records() -> list[Seed]:
    """Files that `nncuda data encode` reads."""
    call = {"id": "a1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        Seed("valid", text("Hello") + talk(ASKED, SAID), None),
        Seed("valid_nothing", b"\n  \n", None),
        Seed("valid_other_keys", json.dumps({"text": "a", "meta": [[], {}], "id": 1e300}).encode(), None),
        Seed("valid_parts", talk({"role": "user", "content": [{"type": "text", "text": "Hi"}]}, SAID), None),
        Seed("valid_calls", talk(ASKED, {**SAID, "content": None, "tool_calls": [call]}, tools=[{}]), None),
        Seed("valid_names_of_tokens", talk({**ASKED, "content": "</s><s>\0\u2028"}, SAID), None),
        Seed("valid_last_line_without_an_end", text("a").strip(), None),
        Seed("half_a_line", text("a") + b'{"text": "b', "line 2: it is not JSON"),
        Seed("not_utf8", b'{"text": "\xff"}', "line 1: it is not JSON ('utf-8' codec"),
        Seed("mark_of_byte_order", b"\xef\xbb\xbf" + text("a"), "line 1: it is not JSON"),
        Seed("utf16", text("a").decode().encode("utf-16"), "line 1: it is not JSON"),
        Seed("list", b"[]", "line 1: it is []; it must be an object"),
        Seed("null", b"\n\nnull", "line 3: it is None; it must be an object"),
        Seed("key_twice", b'{"text": "a", "text": "b"}', "the key 'text' is twice"),
        Seed("neither", b"{}", "line 1: it has neither text nor messages"),
        Seed("both", talk(ASKED, SAID, text="a"), "line 1: it has both of text and messages"),
        Seed("text_null", text(None), "line 1: text is None; it must be a text"),
        Seed("text_of_texts", text(["a"]), "line 1: text is ['a']; it must be a text"),
        Seed("half_a_character", b'{"text": "a\\udc00"}', "which is half a character"),
        Seed("deep", b'{"text": ' + b"[" * 100_000, "nested deeper than 512 levels"),
        Seed("deep_beside", b'{"text": "a", "x": ' + b"[" * 600 + b"]" * 600 + b"}", "nested deeper than 512 levels"),
        Seed("many_digits", b'{"text": "a", "x": ' + b"9" * 5000 + b"}", "more than 4300 digits"),
        Seed("no_messages", talk(), "line 1: messages is []; it must be a list of messages"),
        Seed("messages_of_texts", talk("Hi"), "messages[0] is"),
        Seed("role_of_nobody", talk({**ASKED, "role": "robot"}), "messages[0].role is"),
        Seed("role_null", talk({**ASKED, "role": None}), "messages[0].role is null"),
        Seed("role_of_objects", talk({**ASKED, "role": {"role": "user"}}), "messages[0].role is"),
        Seed("content_null", talk({**ASKED, "content": None}), "messages[0].content is null"),
        Seed("content_of_numbers", talk({**ASKED, "content": [1]}), "messages[0].content"),
        Seed("key_of_nobody", talk({**ASKED, "weight": 1}, SAID), "messages[0].weight"),
        Seed("half_a_character_in_a_key", talk(ASKED, SAID, tools=[{"\ud800": 1}]), "which is half a character"),
        Seed("tools_of_texts", talk(ASKED, SAID, tools=["look"]), "line 1: tools is ['look']; it must be a list"),
        Seed("no_answer", talk(ASKED), "line 1: the conversation has no message of the assistant"),
    ]
