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
    """A function. `shown` is what the template sees of it. No parameters are those of a function that takes none."""

    name: str
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


def requested_tools(values: dict[str, Any]) -> Tools | None:
    """The tools of a request's fields; None where the model is not to call any. ApiError where they are wrong."""
    offered = _tools(values["tools"] or [])
    choice = "auto" if values["tool_choice"] is None else values["tool_choice"]
    if isinstance(choice, dict):
        choice = _chosen(choice, offered)
    elif choice not in ("none", "auto", "required"):
        raise _wrong("tool_choice", choice, "choice")
    if not offered and choice == "required":
        raise ApiError("needs_field", "tool_choice", name="tool_choice", other="tools")
    if not offered or choice == "none":
        return None
    form = values["response_format"]
    if form is not None and form.get("type") != "text":
        raise ApiError("both_fields", "response_format", name="response_format", other="tools")
    return Tools(tuple(offered), choice, values["parallel_tool_calls"])


def _tools(given: list[Any]) -> list[Tool]:
    tools: list[Tool] = []
    taken: set[str] = set()
    for number, one in enumerate(given):
        tools.append(_tool(f"tools[{number}]", one, taken))
        taken.add(tools[-1].name)
    return tools


def _tool(place: str, given: Any, taken: set[str]) -> Tool:
    if not isinstance(given, dict):
        raise _wrong(place, given, "tool")
    check_keys(given, place, ("type", "function"), "a_tool")
    if given.get("type") != "function":
        raise _wrong(f"{place}.type", given.get("type"), "function_type")
    function, place = given.get("function"), f"{place}.function"
    if not isinstance(function, dict):
        raise _wrong(place, function, "function")
    check_keys(function, place, ("name", "description", "parameters", "strict"), "a_function")
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
    shown = {key: value for key, value in function.items() if key != "strict" and value is not None}
    whole = {key: shown if key == "function" else value for key, value in given.items()}
    return Tool(name, parameters, strict is True, whole)


def _chosen(choice: dict[str, Any], offered: list[Tool]) -> Tool:
    check_keys(choice, "tool_choice", ("type", "function"), "a_choice")
    if choice.get("type") != "function":
        raise _wrong("tool_choice.type", choice.get("type"), "function_type")
    function = choice.get("function")
    if not isinstance(function, dict):
        raise _wrong("tool_choice.function", function, "chosen")
    check_keys(function, "tool_choice.function", ("name",), "a_choice")
    for tool in offered:
        if tool.name == function.get("name"):
            return tool
    raise _wrong("tool_choice.function.name", function.get("name"), "chosen_name")


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
