"""A request for texts on its way: from its fields to the last byte of its answer, whether whole or as events.

What an answer says depends on the request alone. So texts of one answer take turns in its stream: event t of each
comes before event t + 1 of any, whichever the engine had first; and nothing in it tells what the cache held.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.types import Send

from ..infer import Event, Sampling
from .api import ApiError
from .logprobs import Scored, TokenNames
from .service import Generation
from .wire import DONE, event, json_text

#: How OpenAI calls the reasons for which a text ends.
_FINISH = {"end": "stop", "stop": "stop", "length": "length"}


class Logprobs(Protocol):
    """The log-probabilities of a text, in the form of a route."""

    def of(self, tokens: Sequence[Scored]) -> dict[str, Any]:
        """Of its next tokens."""
        ...


class Form(Protocol):
    """How a route writes its texts. All give parts of JSON objects, `index` being that of the text, and `logprobs` what
    `Logprobs` gives, None where they were not asked for."""

    id_prefix: str
    whole_object: str
    chunk_object: str

    def logprobs(self, names: TokenNames) -> Logprobs:
        """Of one text."""
        ...

    def mark(self, token: int) -> str:
        """What a token adds to the text that the route reads, beside what it adds to any text."""
        ...

    def choice(self, index: int, text: str, finish: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        """A whole text."""
        ...

    def begin(self, index: int) -> dict[str, Any] | None:
        """What the stream of a text begins with, if anything."""
        ...

    def pieces(self, index: int, text: str, logprobs: dict[str, Any] | None) -> list[dict[str, Any]]:
        """What comes of a text, which is empty where log-probabilities come alone."""
        ...

    def end(self, index: int, finish: str) -> list[dict[str, Any]]:
        """The last of a text."""
        ...


class Usage(enum.Enum):
    """Where a stream counts its tokens: a last event with the count, and each one before with that so far or null."""

    NOWHERE = enum.auto()
    AT_THE_END = enum.auto()
    EVERYWHERE = enum.auto()


@dataclass
class Answer:
    """The texts of a request.

    prompt_tokens are those of all prompts, each once, however many texts continue it. `echoes` has what each text
    begins with. `names` are there when log-probabilities were asked for.
    """

    form: Form
    model: str
    generations: Sequence[Generation]
    prompt_tokens: int
    stream: bool
    usage: Usage
    user: str | None = None
    echoes: Sequence[str] = ()
    names: TokenNames | None = None
    id: str = ""
    created: int = 0
    started: bool = field(default=False, init=False)  # whether a part of the response was sent

    def __post_init__(self) -> None:
        self.id = self.id or new_id(self.form.id_prefix)
        self.created = self.created or int(time.time())
        self.echoes = self.echoes or [""] * len(self.generations)
        self._written = 0
        names, count = self.names, len(self.generations)
        self._logprobs = [None] * count if names is None else [self.form.logprobs(names) for _ in range(count)]

    async def send(self, send: Send) -> None:
        """Writes all of it as the engine gives it. ApiError when the service fails."""
        await (self._send_events(send) if self.stream else self._send_whole(send))

    async def send_error(self, send: Send, error: ApiError) -> None:
        """Ends a stream that has begun with an error."""
        await send({"type": "http.response.body", "body": b"data: " + error.body() + b"\n\n" + DONE})

    async def _next(self, generation: Generation) -> Event:
        new = await generation.next()
        self._written += new.token >= 0  # not what the engine has drawn meanwhile
        return new

    async def _send_whole(self, send: Send) -> None:
        choices = []
        for index, generation in enumerate(self.generations):
            text, finish, scored = self.echoes[index], None, []
            while finish is None:
                new = await self._next(generation)
                text += new.text + self.form.mark(new.token)
                finish = new.finish
                scored += self._scored(index, new)
            logprobs = self._logprobs_of(index, scored)
            choices.append(self.form.choice(index, text, _FINISH.get(finish, finish), logprobs))
        whole = self._head(self.form.whole_object, choices)
        whole["usage"] = self._usage()
        self.started = True
        await respond(send, 200, "application/json", json_text(whole).encode())

    async def _send_events(self, send: Send) -> None:
        unfinished = dict(enumerate(self.generations))
        begun: set[int] = set()
        while unfinished:
            for index, generation in list(unfinished.items()):
                new = await self._next(generation)
                parts = list(self._parts(index, new, index not in begun))
                begun.add(index)
                if new.finish is not None:
                    del unfinished[index]
                if not parts:
                    continue
                if not self.started:
                    await start(send, 200, "text/event-stream; charset=utf-8", {"cache-control": "no-cache"})
                    self.started = True
                body = b"".join(event(self._chunk([part])) for part in parts)
                await send({"type": "http.response.body", "body": body, "more_body": True})
                await asyncio.sleep(0)  # others have their turn, and a connection that was lost can say so
        last = DONE
        if self.usage is not Usage.NOWHERE:
            chunk = self._head(self.form.chunk_object, [])
            chunk["usage"] = self._usage()
            last = event(chunk) + DONE
        await send({"type": "http.response.body", "body": last})

    def _parts(self, index: int, new: Event, first: bool) -> list[dict[str, Any]]:
        """What an event adds to the stream."""
        parts = []
        if first:
            begin = self.form.begin(index)
            if begin is not None:
                parts.append(begin)
        text = (self.echoes[index] if first else "") + new.text + self.form.mark(new.token)
        scored = self._scored(index, new)
        if text or scored:
            parts += self.form.pieces(index, text, self._logprobs_of(index, scored) if scored else None)
        if new.finish is not None:
            parts += self.form.end(index, _FINISH.get(new.finish, new.finish))
        return parts

    def _scored(self, index: int, new: Event) -> list[Scored]:
        """The tokens of an event that belong to the text, if their log-probabilities were asked for."""
        if self.names is None:
            return []
        prompt = self.generations[index].request.prompt.tolist()
        scored = list(zip(prompt, new.prompt_logprobs, strict=True)) if new.prompt_logprobs else []
        if new.logprobs is not None and new.finish != "end":
            scored.append((new.token, new.logprobs))
        return scored

    def _logprobs_of(self, index: int, scored: list[Scored]) -> dict[str, Any] | None:
        logprobs = self._logprobs[index]
        return None if logprobs is None else logprobs.of(scored)

    def _head(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chunk = self._head(self.form.chunk_object, choices)
        if self.usage is not Usage.NOWHERE:
            chunk["usage"] = self._usage() if self.usage is Usage.EVERYWHERE else None
        return chunk

    def _usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self._written,
            "total_tokens": self.prompt_tokens + self._written,
        }


def new_id(prefix: str) -> str:
    """An id that no other answer has."""
    return f"{prefix}-{uuid.uuid4().hex}"


async def start(send: Send, status: int, content_type: str, headers: dict[str, str] | None = None) -> None:
    """Begins a response."""
    fields = {"content-type": content_type, **(headers or {})}
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


async def respond(
    send: Send, status: int, content_type: str, body: bytes, headers: dict[str, str] | None = None
) -> None:
    """Sends a whole response."""
    await start(send, status, content_type, {"content-length": str(len(body)), **(headers or {})})
    await send({"type": "http.response.body", "body": body})


def samplings(values: dict[str, Any]) -> list[Sampling]:
    """How each of the `n` texts of a prompt is drawn; of routes without an `n`, the one."""
    first = Sampling(
        temperature=values["temperature"],
        top_k=values["top_k"] if values["top_k"] > 0 else None,
        top_p=values["top_p"],
        seed=values["seed"],
        min_p=values["min_p"],
        presence_penalty=values["presence_penalty"],
        frequency_penalty=values["frequency_penalty"],
        repetition_penalty=values["repetition_penalty"],
        logit_bias=values["logit_bias"] or {},
    )
    return [dataclasses.replace(first, seed=first.seed + number) for number in range(values.get("n", 1))]


def check_choices(count: int, places: int) -> None:
    """ApiError for more texts at once than a server ever takes, before any of them is looked into."""
    if count > places:
        raise ApiError("too_many_choices", choices=count, places=places)


def check_bias(bias: dict[int, float] | None, vocab_size: int) -> None:
    """ApiError for a bias of a token that is not in the vocabulary."""
    for token in bias or ():
        if token >= vocab_size:
            name = f"logit_bias.{token}"
            raise ApiError("unknown_token", name, name=name, most=vocab_size - 1)


def check_length(length: int, context: int, param: str) -> None:
    """ApiError for a prompt that is empty or longer than the context."""
    if length == 0:
        raise ApiError("empty_prompt", param, name=param)
    if length > context:
        raise ApiError("context_length_exceeded", param, tokens=length, context=context)
