"""The tools of a request: checks them, and says what of them the chat template sees and which may be called."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from .api import WORDS, ApiError, quoted

#: Levels of parameters and arguments, which templates write out.
_LEVELS = 64

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclass(frozen=True)
class Tool:
    """A function. `place` is where a request has it; `shown` is what the template sees of it. No parameters are those
    of a function that takes none."""

    place: str
    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool
    shown: dict[str, Any]


@dataclass(frozen=True)
class Tools:
    """The tools that a request offers, at least one. `choice` is "auto", "required", or the function that must be
    called; with `parallel`, an answer may have several calls."""

    offered: tuple[Tool, ...]
    choice: str | Tool
    parallel: bool

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.offered)

    @property
    def shown(self) -> list[dict[str, Any]]:
        """What the template sees."""
        return [tool.shown for tool in self.offered]

    @property
    def callable(self) -> tuple[Tool, ...]:
        """Those that may be called."""
        return (self.choice,) if isinstance(self.choice, Tool) else self.offered

    def enforces(self, tool: Tool) -> bool:
        """Whether the arguments of a function must obey its parameters."""
        return self.choice != "auto" or tool.strict

    @property
    def enforced(self) -> bool:
        """Whether texts are to be constrained."""
        return any(map(self.enforces, self.callable))


def requested_tools(
    values: dict[str, Any], format_field: str, format: dict[str, Any] | None, flat: bool = False
) -> Tools | None:
    """The tools of a request's fields; None where the model is not to call any. ApiError where they are wrong, or where
    `format_field` asks for another format than that of calls. `flat`: what a tool or a choice says of its function
    stands beside its type, and not in an object of its own."""
    offered = _tools(values["tools"] or [], flat)
    choice = "auto" if values["tool_choice"] is None else values["tool_choice"]
    if isinstance(choice, dict):
        choice = _chosen(choice, offered, flat)
    elif choice not in ("none", "auto", "required"):
        raise _wrong("tool_choice", choice, "flat_choice" if flat else "choice")
    if not offered and choice == "required":
        raise ApiError("needs_field", "tool_choice", name="tool_choice", other="tools")
    if not offered or choice == "none":
        return None
    if format is not None and format.get("type") != "text":
        raise ApiError("both_fields", format_field, name=format_field, other="tools")
    return Tools(tuple(offered), choice, values["parallel_tool_calls"])


def _tools(given: list[Any], flat: bool) -> list[Tool]:
    tools: list[Tool] = []
    taken: set[str] = set()
    for number, one in enumerate(given):
        tools.append(_tool(f"tools[{number}]", one, taken, flat))
        taken.add(tools[-1].name)
    return tools


_OF_FUNCTION = ("name", "description", "parameters", "strict")


def _tool(place: str, given: Any, taken: set[str], flat: bool) -> Tool:
    if not isinstance(given, dict):
        raise _wrong(place, given, "flat_tool" if flat else "tool")
    check_keys(given, place, ("type", *_OF_FUNCTION) if flat else ("type", "function"), "a_tool")
    if given.get("type") != "function":
        raise _wrong(f"{place}.type", given.get("type"), "function_type")
    function: Any = given
    if not flat:
        function, place = given.get("function"), f"{place}.function"
        if not isinstance(function, dict):
            raise _wrong(place, function, "function")
        check_keys(function, place, _OF_FUNCTION, "a_function")
    name = function.get("name")
    if not is_name(name) or name in taken:
        raise _wrong(f"{place}.name", name, "function_name")
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise _wrong(f"{place}.description", description, "text")
    parameters = function.get("parameters")
    if parameters is not None:
        if not isinstance(parameters, dict) or not is_plain(parameters):
            raise _wrong(f"{place}.parameters", parameters, "parameters")
        if parameters.get("type", "object") != "object":
            raise _wrong(f"{place}.parameters.type", parameters["type"], "object_type")
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise _wrong(f"{place}.strict", strict, "flag")
    # Templates get what models were trained with, in the client's order.
    shown = {key: value for key, value in function.items() if key not in ("type", "strict") and value is not None}
    whole = {"type": "function"} if flat else given
    return Tool(place, name, description, parameters, strict is True, {**whole, "function": shown})


def _chosen(choice: dict[str, Any], offered: list[Tool], flat: bool) -> Tool:
    place = "tool_choice"
    check_keys(choice, place, ("type", "name" if flat else "function"), "a_choice")
    if choice.get("type") != "function":
        raise _wrong("tool_choice.type", choice.get("type"), "function_type")
    function: Any = choice
    if not flat:
        function, place = choice.get("function"), "tool_choice.function"
        if not isinstance(function, dict):
            raise _wrong(place, function, "chosen")
        check_keys(function, place, ("name",), "a_choice")
    for tool in offered:
        if tool.name == function.get("name"):
            return tool
    raise _wrong(f"{place}.name", function.get("name"), "chosen_name")


def is_name(value: object) -> bool:
    """Whether a function may be called so."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def is_plain(value: Any, levels: int = _LEVELS) -> bool:
    """Whether all languages can give a value to a template: its depth, and the size of its numbers."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if not isinstance(value, (dict, list)):
        return True
    return levels > 0 and all(
        is_plain(one, levels - 1) for one in (value.values() if isinstance(value, dict) else value)
    )


def check_keys(found: dict[str, Any], place: str, known: tuple[str, ...], route: str) -> None:
    """ApiError for a key that is not known; `route` is the word for what has these keys."""
    for key in found:
        if key not in known:
            name = f"{place}.{key}"[:256]
            raise ApiError("unknown_field", name, name=name, route=WORDS[route])


def _wrong(name: str, value: object, must: str) -> ApiError:
    return ApiError("invalid_value", name, name=name, value=quoted(value), must=WORDS[must])
