"""/v1/responses: answers a conversation, in the newer of OpenAI's forms, of which this server keeps nothing.

(https://www.openresponses.org/specification, whose stateless part this is)
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Send

from ..infer import Event, LanguageModel
from .answers import check_bias, respond, samplings, start
from .api import WORDS, ApiError, quoted
from .chat import answer_stops, conversation
from .completions import end_ids
from .constraints import Formats
from .fields import Checker
from .items import input_messages
from .logprobs import ChatLogprobs, TokenNames
from .names import Names
from .output_items import Change, OutputItems
from .service import Generation
from .tool_calls import ToolCallReader, control_tokens
from .tools import Tool, requested_tools
from .wire import DONE, Given, json_text, named_event


class Responses:
    """Makes responses of bodies, for one model by its names."""

    path = "/v1/responses"

    def __init__(self, model: LanguageModel, names: Names, formats: Formats):
        self._model = model
        self._models = names
        self._names = TokenNames(model.tokenizer)
        self._formats = formats
        self._checker = Checker("responses", self.path)

    def prepare(self, body: dict[str, Any]) -> Response:
        """The response that a body asks for, not submitted yet. ApiError for one that is wrong."""
        values = self._checker.check(body)
        name, adapter = self._models.find(values["model"])
        ends = end_ids(self._model, values)
        check_bias(values["logit_bias"], self._model.config.vocab_size)
        described = _format(values["text"])
        tools = requested_tools(values, "text.format", described, flat=True)
        messages, about_tools = input_messages(values["input"], values["instructions"])
        prompt, calls = conversation(self._model, messages, "input", tools, about_tools)
        length = self._model.room(prompt)
        if values["max_output_tokens"] is not None:
            length = min(length, values["max_output_tokens"])
        alternatives = _alternatives(values)
        grammar = self._formats.of_text(described)
        marks: dict[str, int] = {}
        if tools is not None:
            assert calls is not None and self._model.tokenizer is not None
            marks = control_tokens(calls, self._model.tokenizer, self._names)
            grammar = self._formats.of_calls(tools, calls, marks)
        (sampling,) = samplings(values)
        generation = Generation(
            prompt,
            length,
            sampling,
            end_ids=ends,
            stop=answer_stops(self._model, values),
            logprobs=alternatives,
            constraint=None if grammar is None else grammar.constraint(),
            adapter=adapter,
        )
        return Response(
            name,
            [generation],
            len(prompt),
            values["stream"],
            values,
            _shown(described),
            [] if tools is None else list(map(_shown_tool, tools.offered)),
            None if tools is None or calls is None else ToolCallReader(calls, tools.names, tools.parallel),
            {token: text for text, token in marks.items()},
            names=None if alternatives is None else self._names,
        )


@dataclass
class Response:
    """A response: what was asked for, and the text that is written. `reader` is there where tools may be called, and
    `marks` are the texts of its form that are control tokens; `names` are there when log-probabilities were asked for.
    Its bytes depend on the request alone, but for ids and times."""

    model: str
    generations: list[Generation]
    prompt_tokens: int
    stream: bool
    values: dict[str, Any]
    format: dict[str, Any]
    tools: list[Any]
    reader: ToolCallReader | None
    marks: Mapping[int, str]
    names: TokenNames | None = None
    id: str = ""
    created: int = 0
    _number: int = field(default=0, init=False)  # of the next event

    def __post_init__(self) -> None:
        hexadecimal = uuid.uuid4().hex
        self.id = self.id or f"resp_{hexadecimal}"
        self.created = self.created or int(time.time())
        self.user: str | None = self.values["user"]
        self._output = OutputItems(self.id.removeprefix("resp_"), self.reader)
        self._scores = None if self.names is None else ChatLogprobs(self.names)

    async def send(self, send: Send) -> None:
        """Writes all of it as the engine gives it. ApiError when the service fails."""
        await (self._send_events(send) if self.stream else self._send_whole(send))

    async def send_error(self, send: Send, error: ApiError) -> None:
        """Ends a stream that has begun with an error."""
        whole = {"type": error.kind, "code": error.code, "message": error.sentence, "param": error.param}
        failed = self._resource("failed", [], error={"code": error.code, "message": error.sentence})
        body = self._event("error", error=whole) + self._event("response.failed", response=failed) + DONE
        await send({"type": "http.response.body", "body": body})

    async def _send_whole(self, send: Send) -> None:
        self._output.begin()
        finish = None
        while finish is None:
            new = await self.generations[0].next()
            self._take(new)
            finish = new.finish
        self._output.end(_status(finish))
        whole = json_text(self._finished(finish))
        await respond(send, 200, "application/json", whole.encode())

    async def _send_events(self, send: Send) -> None:
        begun, finish = False, None
        while finish is None:
            new = await self.generations[0].next()
            body = b"" if begun else self._beginning()
            body += self._events(self._take(new))
            finish = new.finish
            if finish is not None:
                body += self._events(self._output.end(_status(finish)))
                finished = self._finished(finish)
                body += self._event(f"response.{finished['status']}", response=finished)
            if not begun:
                await start(send, 200, "text/event-stream; charset=utf-8", {"cache-control": "no-cache"})
                begun = True
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
                await asyncio.sleep(0)  # others have their turn, and a connection that was lost can say so
        await send({"type": "http.response.body", "body": DONE})

    def _take(self, new: Event) -> list[Change]:
        """What an event changes by its text, and the log-probabilities of a token that belongs to it."""
        added: list[Any] = []
        if self._scores is not None and new.logprobs is not None and new.finish != "end":
            added = self._scores.of([(new.token, new.logprobs)])["content"]
        return self._output.push(new.text + self.marks.get(new.token, ""), added)

    def _beginning(self) -> bytes:
        """The events before the first of the text."""
        events = [
            self._event(f"response.{kind}", response=self._resource("in_progress", []))
            for kind in ("created", "in_progress")
        ]
        return b"".join(events) + self._events(self._output.begin())

    def _events(self, changes: list[Change]) -> bytes:
        return b"".join(self._event(kind, **values) for kind, values in changes)

    def _event(self, kind: str, **values: Any) -> bytes:
        number = self._number
        self._number += 1
        return named_event({"type": kind, "sequence_number": number, **values})

    def _finished(self, finish: str) -> dict[str, Any]:
        """The response with all of its items."""
        return self._resource(_status(finish), self._output.done, usage=self._usage())

    def _resource(
        self,
        status: str,
        output: list[Any],
        *,
        error: dict[str, Any] | None = None,
        usage: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The response as it is now, with what it was asked for."""
        values = self.values
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": values["instructions"],
            "max_output_tokens": values["max_output_tokens"],
            "model": self.model,
            "output": output,
            "previous_response_id": None,
            "reasoning": None,
            "text": {"format": self.format},
            "tools": self.tools,
            "tool_choice": Given(values["tool_choice"] or "auto") if self.tools else "none",
            "parallel_tool_calls": values["parallel_tool_calls"],
            "max_tool_calls": None,
            "temperature": values["temperature"],
            "top_p": values["top_p"],
            "presence_penalty": values["presence_penalty"],
            "frequency_penalty": values["frequency_penalty"],
            "top_logprobs": values["top_logprobs"] or 0,
            "truncation": "disabled",
            "store": False,
            "background": False,
            "service_tier": "default",
            "metadata": {},
            "user": self.user,
            "safety_identifier": None,
            "prompt_cache_key": None,
            "usage": usage,
        }

    def _usage(self) -> dict[str, Any]:
        written = self.generations[0].tokens
        return {
            "input_tokens": self.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},  # an answer does not tell what the cache held
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.prompt_tokens + written,
        }


def _status(finish: str) -> str:
    return "incomplete" if finish == "length" else "completed"


def _shown_tool(tool: Tool) -> dict[str, Any]:
    """A function as responses have it."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": Given(tool.parameters),
        "strict": tool.strict,
    }


def _alternatives(values: dict[str, Any]) -> int | None:
    """How many likely tokens are to come with each one's log-probability; None for no log-probabilities."""
    if values["include"]:
        return values["top_logprobs"] or 0
    if values["top_logprobs"] is not None:
        raise ApiError("needs_field", "top_logprobs", name="top_logprobs", other="include")
    return None


def _format(text: dict[str, Any] | None) -> dict[str, Any] | None:
    """The `format` of a `text`, if there is one; whoever builds the grammar looks into it."""
    for key, value in (text or {}).items():
        name = f"text.{key}"[:256]
        if key not in ("format", "verbosity"):
            raise ApiError("unknown_field", name, name=name, route="text")
        if value is not None and key == "verbosity":
            raise ApiError("unsupported_field", name, name=name, value=quoted(value), why=WORDS["short"])
        if value is not None and not isinstance(value, dict):
            raise ApiError("invalid_value", name, name=name, value=quoted(value), must=WORDS["format"])
    return None if text is None else text.get("format")


def _shown(described: dict[str, Any] | None) -> dict[str, Any]:
    """A format as responses have it: without its schema, as Open Responses wants."""
    kind = "text" if described is None else described["type"]
    if described is None or kind != "json_schema":
        return {"type": kind}
    return {
        "type": kind,
        "name": described.get("name") or "",
        "description": described.get("description"),
        "schema": None,
        "strict": bool(described.get("strict")),
    }
