"""/v1/responses: answers a conversation, in the newer of OpenAI's forms, of which this server keeps nothing.

(https://www.openresponses.org/specification, whose stateless part this is)
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Send

from ..infer import Event, LanguageModel
from .answers import check_bias, respond, samplings, start
from .api import WORDS, ApiError, quoted
from .chat import answer_stops, conversation_ids
from .completions import check_model, end_ids
from .constraints import Formats
from .fields import Checker
from .items import input_messages
from .logprobs import ChatLogprobs, TokenNames
from .service import Generation
from .wire import DONE, json_text, named_event


class Responses:
    """Makes responses of bodies, for one model by its name."""

    path = "/v1/responses"

    def __init__(self, model: LanguageModel, name: str, formats: Formats):
        self._model = model
        self._name = name
        self._names = TokenNames(model.tokenizer)
        self._formats = formats
        self._checker = Checker("responses", self.path)

    def prepare(self, body: dict[str, Any]) -> Response:
        """The response that a body asks for, not submitted yet. ApiError for one that is wrong."""
        values = self._checker.check(body)
        check_model(values["model"], self._name)
        ends = end_ids(self._model, values)
        check_bias(values["logit_bias"], self._model.config.vocab_size)
        messages = input_messages(values["input"], values["instructions"])
        prompt = conversation_ids(self._model, messages, "input")
        length = self._model.room(prompt)
        if values["max_output_tokens"] is not None:
            length = min(length, values["max_output_tokens"])
        alternatives = _alternatives(values)
        described = _format(values["text"])
        grammar = self._formats.of_text(described)
        (sampling,) = samplings(values)
        generation = Generation(
            prompt,
            length,
            sampling,
            end_ids=ends,
            stop=answer_stops(self._model, values),
            logprobs=alternatives,
            constraint=None if grammar is None else grammar.constraint(),
        )
        return Response(
            self._name,
            [generation],
            len(prompt),
            values["stream"],
            values,
            _shown(described),
            names=None if alternatives is None else self._names,
        )


@dataclass
class Response:
    """A response: what was asked for, and the text that is written. `names` are there when log-probabilities were asked
    for. Its bytes depend on the request alone, but for ids and times."""

    model: str
    generations: list[Generation]
    prompt_tokens: int
    stream: bool
    values: dict[str, Any]
    format: dict[str, Any]
    names: TokenNames | None = None
    id: str = ""
    created: int = 0
    _number: int = field(default=0, init=False)  # of the next event

    def __post_init__(self) -> None:
        hexadecimal = uuid.uuid4().hex
        self.id = self.id or f"resp_{hexadecimal}"
        self.created = self.created or int(time.time())
        self.user: str | None = self.values["user"]
        self._item_id = f"msg_{hexadecimal}"
        self._place = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        self._texts, self._logprobs = list[str](), list[Any]()  # so far
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
        finish = None
        while finish is None:
            new = await self.generations[0].next()
            self._take(new)
            finish = new.finish
        whole = json_text(self._finished(finish))
        await respond(send, 200, "application/json", whole.encode())

    async def _send_events(self, send: Send) -> None:
        begun, finish = False, None
        while finish is None:
            new = await self.generations[0].next()
            body = b"" if begun else self._beginning()
            delta, logprobs = self._take(new)
            if delta or logprobs:
                body += self._event("response.output_text.delta", **self._place, delta=delta, logprobs=logprobs)
            finish = new.finish
            if finish is not None:
                body += self._end(finish)
            if not begun:
                await start(send, 200, "text/event-stream; charset=utf-8", {"cache-control": "no-cache"})
                begun = True
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
                await asyncio.sleep(0)  # others have their turn, and a connection that was lost can say so
        await send({"type": "http.response.body", "body": DONE})

    def _take(self, new: Event) -> tuple[str, list[Any]]:
        """What an event adds: its text, and the log-probabilities of a token that belongs to it."""
        added: list[Any] = []
        if self._scores is not None and new.logprobs is not None and new.finish != "end":
            added = self._scores.of([(new.token, new.logprobs)])["content"]
        self._texts.append(new.text)
        self._logprobs += added
        return new.text, added

    def _beginning(self) -> bytes:
        """The events before the first of the text."""
        events = [
            self._event(f"response.{kind}", response=self._resource("in_progress", []))
            for kind in ("created", "in_progress")
        ]
        item = self._item("in_progress", [])
        events.append(self._event("response.output_item.added", output_index=0, item=item))
        events.append(self._event("response.content_part.added", **self._place, part=_part("", [])))
        return b"".join(events)

    def _end(self, finish: str) -> bytes:
        """The events after the last of the text."""
        finished = self._finished(finish)
        (item,) = finished["output"]
        (part,) = item["content"]
        return b"".join(
            (
                self._event("response.output_text.done", **self._place, text=part["text"], logprobs=self._logprobs),
                self._event("response.content_part.done", **self._place, part=part),
                self._event("response.output_item.done", output_index=0, item=item),
                self._event(f"response.{finished['status']}", response=finished),
            )
        )

    def _event(self, kind: str, **values: Any) -> bytes:
        number = self._number
        self._number += 1
        return named_event({"type": kind, "sequence_number": number, **values})

    def _finished(self, finish: str) -> dict[str, Any]:
        """The response with all of its text."""
        status = "incomplete" if finish == "length" else "completed"
        item = self._item(status, [_part("".join(self._texts), self._logprobs)])
        return self._resource(status, [item], usage=self._usage())

    def _item(self, status: str, content: list[Any]) -> dict[str, Any]:
        return {"type": "message", "id": self._item_id, "status": status, "role": "assistant", "content": content}

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
            "tools": [],
            "tool_choice": "none",
            "parallel_tool_calls": True,
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


def _part(text: str, logprobs: list[Any]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


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
