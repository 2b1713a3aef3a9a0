"""Reads the body of a request, within limits of size, time and shape."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from ..formats.json_values import json_value
from .api import LIMITS, ApiError

if TYPE_CHECKING:  # who encodes conversations has no server
    from starlette.types import Receive, Scope

#: What may be an unpaired surrogate, which only an escape can write.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

#: Bytes from which on a body is parsed beside the event loop.
_LARGE = 1 << 16


class ClientGone(Exception):
    """The client closed the connection."""


async def read_json_body(scope: Scope, receive: Receive) -> dict[str, Any]:
    """The JSON object that a request holds. ApiError for anything else, ClientGone when the client leaves."""
    content_type = header(scope, b"content-type").split(b";")[0].strip().lower()
    if content_type != b"application/json":
        raise ApiError("not_a_json_type")
    body = await read_body(scope, receive)
    if len(body) < _LARGE:
        return json_object(body)
    return await asyncio.get_running_loop().run_in_executor(None, json_object, body)


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """The bytes of a body. ApiError when they are too many or come too slowly."""
    most, seconds = LIMITS["body_bytes"], LIMITS["body_seconds"]
    length = header(scope, b"content-length")
    too_large = ApiError("body_too_large", most=most)
    if length.isdigit() and int(length[:20]) > most:
        raise too_large
    parts, size = [], 0
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            message = await asyncio.wait_for(receive(), deadline - asyncio.get_running_loop().time())
        except asyncio.TimeoutError:
            raise ApiError("body_too_slow", seconds=seconds, headers={"connection": "close"}) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise too_large
        if not message.get("more_body", False):
            return b"".join(parts)


def json_object(body: bytes) -> dict[str, Any]:
    """The object of a body. ApiError when it is none, or breaks the rules."""
    try:
        value = json_value(body)
        if _SURROGATE.search(body):
            _check_text(value)
    except ValueError:
        raise ApiError("not_json") from None
    if not isinstance(value, dict):
        raise ApiError("not_json")
    return value


def _check_text(value: object) -> None:
    """ValueError (of the encoder) when a string holds an unpaired surrogate."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            one.encode()
        elif isinstance(one, dict):
            left += [*one, *one.values()]
        elif isinstance(one, list):
            left += one


def header(scope: Scope, name: bytes) -> bytes:
    """A header of a request, empty when it is missing."""
    return next((value for key, value in scope["headers"] if key == name), b"")
