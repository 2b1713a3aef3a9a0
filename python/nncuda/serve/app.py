"""The routes of the server, as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias, Union

from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from ..infer import LanguageModel
from .access_log import AccessLog
from .answers import Answer, respond
from .api import ApiError
from .bodies import ClientGone, read_json_body
from .chat import Chat
from .completions import Completions
from .constraints import Formats
from .embeddings import Embeddings, Vectors
from .guard import Guard
from .metrics import CONTENT_TYPE, Metrics
from .names import Names
from .responses import Response, Responses
from .service import Service
from .tokens import Tokens
from .wire import json_text

_log = logging.getLogger("nncuda.serve")

_Reply: TypeAlias = Union[Answer, Response, Vectors]  # noqa: UP007

#: Seconds for a client to take the error that ends its stream.
_LAST_WORDS = 1.0


@dataclass
class _Exchange:
    """A request and what became of it, for the log."""

    scope: Scope
    receive: Receive
    raw_send: Send
    begun: float = field(default_factory=time.monotonic)
    status: int = 0
    complete: bool = False  # whether all of the response was sent
    answer: _Reply | None = None
    gone: bool = False
    error: str | None = None

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self.raw_send(message)
        if message["type"] == "http.response.body":
            self.complete = not message.get("more_body", False)


Endpoint = Callable[[_Exchange], Coroutine[Any, Any, None]]


class App:
    """Answers requests for one model. `service` must have been started; `ready` is False while the server drains."""

    def __init__(
        self,
        service: Service,
        name: str,
        *,
        guard: Guard,
        log: AccessLog,
        metrics: Metrics,
        timeout: float,
        page: bytes | None = None,
    ):
        self.ready = True
        self._service = service
        self._guard = guard
        self._log = log
        self._metrics = metrics
        self._timeout = timeout
        self._page = page
        self._created = int(time.time())
        self._model: LanguageModel = service.model
        self._names = names = Names.of(self._model, name)
        # Tokenizers are not made for several threads, and long texts take them long: one thread makes ids of all texts.
        self._texts = ThreadPoolExecutor(1, "nncuda-texts")
        self._preparing = 0  # requests that wait for it, or that it works on
        formats, places = Formats(self._model), service.places
        completions, chat = (kind(self._model, names, formats, places) for kind in (Completions, Chat))
        responses, tokens = Responses(self._model, names, formats), Tokens(self._model, names)
        embeddings = Embeddings(self._model, names, places)
        self._routes = [
            _route(path, method, endpoint)
            for path, method, endpoint in (
                ("/health", "GET", self._health),
                ("/health/live", "GET", self._live),
                ("/health/ready", "GET", self._health),
                ("/metrics", "GET", self._send_metrics),
                ("/v1/models", "GET", self._models),
                ("/v1/models/{id:path}", "GET", self._one_model),
                (completions.path, "POST", self._answering(completions.prepare)),
                (chat.path, "POST", self._answering(chat.prepare)),
                (responses.path, "POST", self._answering(responses.prepare)),
                (embeddings.path, "POST", self._answering(embeddings.prepare)),
                ("/tokenize", "POST", self._converting(tokens.tokenize)),
                ("/detokenize", "POST", self._converting(tokens.detokenize)),
                ("/tokenizer_info", "GET", self._telling(tokens.info)),
                *([("/", "GET", self._send_page)] if page is not None else []),
            )
        ]

    def close(self) -> None:
        """Ends the thread of the texts."""
        self._texts.shutdown(cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"there is nothing to do with {scope['type']}")
        exchange = _Exchange(scope, receive, send)
        route = "other"
        try:
            try:
                self._guard.check(scope)
                found = self._find(scope)
                route = found.path
                await self._in_time(exchange, found.endpoint(exchange))
            except ApiError as error:
                await self._send_error(exchange, error)
            except ClientGone:
                exchange.gone = True
            except Exception:
                _log.exception("a request failed")
                await self._send_error(exchange, ApiError("internal_error"))
        finally:
            self._give_up(exchange)
            self._finish(exchange, route)

    def _find(self, scope: Scope) -> Route:
        other_method = None
        for route in self._routes:
            match, more = route.matches(scope)
            if match is Match.FULL:
                scope.update(more)
                return route
            if match is Match.PARTIAL:
                other_method = route
        if other_method is not None:
            allow = {"allow": ", ".join(sorted(other_method.methods or ()))}
            raise ApiError("method_not_allowed", route=other_method.path, method=scope["method"][:32], headers=allow)
        raise ApiError("route_not_found", route=scope["path"][:256])

    async def _in_time(self, exchange: _Exchange, work: Coroutine[Any, Any, None]) -> None:
        """Runs an endpoint, for as long as the server's timeout allows."""
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._timeout)
        finally:
            if not task.done():
                await _cancelled(task)
        if not done:
            raise ApiError("timeout", seconds=f"{self._timeout:g}")
        task.result()

    async def _send_error(self, exchange: _Exchange, error: ApiError) -> None:
        """An error as the response, or, when one has begun, as its end; after the end there is nobody to tell."""
        self._give_up(exchange)  # at once: a client may take its time to read why
        if exchange.complete:
            return
        exchange.error = error.code
        if exchange.status == 0:
            await respond(exchange.send, error.status, "application/json", error.body(), error.headers)
        elif isinstance(exchange.answer, Answer | Response) and exchange.answer.stream:
            # A client that does not read must not keep the server: what is left unsent closes the connection.
            await asyncio.wait({asyncio.ensure_future(exchange.answer.send_error(exchange.send, error))},
                               timeout=_LAST_WORDS)  # fmt: skip

    def _give_up(self, exchange: _Exchange) -> None:
        """Ends what is left of an answer."""
        if exchange.answer is not None:
            self._service.cancel(exchange.answer.generations)

    def _finish(self, exchange: _Exchange, route: str) -> None:
        """Counts the request and writes its line."""
        self._metrics.answered(route, str(exchange.status or "none"))
        answer, scope = exchange.answer, exchange.scope
        client = scope.get("client")
        values: dict[str, Any] = {
            "status": exchange.status or None,
            "method": scope["method"][:32],
            "path": scope["path"][:256],
            "client": client[0] if client else None,
            "seconds": round(time.monotonic() - exchange.begun, 6),
            "error": exchange.error,
            "gone": exchange.gone or None,
        }
        if answer is not None:
            first = [one.first - one.submitted for one in answer.generations if one.first is not None]
            begun = [one.admitted - one.submitted for one in answer.generations if one.admitted is not None]
            values |= {
                "id": answer.id,
                "user": answer.user,
                "prompt_tokens": answer.prompt_tokens,
                "shared_tokens": sum(one.request.shared for one in answer.generations),
                "tokens": sum(one.tokens for one in answer.generations),
                "queue_seconds": round(min(begun), 6) if begun else None,
                "first_seconds": round(min(first), 6) if first else None,
                "finish": _counted([one.finish or "cancelled" for one in answer.generations]),
            }
        self._log.record(**values)

    # Texts

    def _answering(self, prepare: Callable[[dict[str, Any]], _Reply]) -> Endpoint:
        """An endpoint that writes texts."""

        async def answering(exchange: _Exchange) -> None:
            if not self.ready:
                raise ApiError("draining", headers={"connection": "close"})
            body = await read_json_body(exchange.scope, exchange.receive)
            await _while_connected(exchange, self._answer(exchange, prepare, body))

        return answering

    async def _answer(
        self, exchange: _Exchange, prepare: Callable[[dict[str, Any]], _Reply], body: dict[str, Any]
    ) -> None:
        # Each has one text at least: what could not be submitted need not be looked into.
        self._service.check_places(self._preparing + 1)
        self._preparing += 1
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._texts, prepare, body)
        finally:
            self._preparing -= 1
        self._service.submit(answer.generations)
        exchange.answer = answer
        await answer.send(exchange.send)

    def _converting(self, convert: Callable[[dict[str, Any]], dict[str, Any]]) -> Endpoint:
        """An endpoint that needs the tokenizer alone."""

        async def converting(exchange: _Exchange) -> None:
            body = await read_json_body(exchange.scope, exchange.receive)
            found = await asyncio.get_running_loop().run_in_executor(self._texts, convert, body)
            await _send_json(exchange, found)

        return converting

    def _telling(self, told: Callable[[], dict[str, Any]]) -> Endpoint:
        """An endpoint that says what the tokenizer is."""

        async def telling(exchange: _Exchange) -> None:
            await _send_json(exchange, await asyncio.get_running_loop().run_in_executor(self._texts, told))

        return telling

    # What the server is

    def _described(self, name: str) -> dict[str, Any]:
        found = {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "nncuda",
            "max_model_len": self._model.context,
        }
        return found if name == self._names.model else {**found, "parent": self._names.model}

    async def _models(self, exchange: _Exchange) -> None:
        names = (self._names.model, *self._names.adapters)
        await _send_json(exchange, {"object": "list", "data": [self._described(name) for name in names]})

    async def _one_model(self, exchange: _Exchange) -> None:
        name, _ = self._names.find(exchange.scope["path_params"]["id"])
        await _send_json(exchange, self._described(name))

    async def _live(self, exchange: _Exchange) -> None:
        await _send_json(exchange, {"live": not self._service.failed}, 503 if self._service.failed else 200)

    async def _health(self, exchange: _Exchange) -> None:
        live = not self._service.failed
        ready = live and self.ready
        await _send_json(exchange, {"live": live, "ready": ready}, 200 if ready else 503)

    async def _send_metrics(self, exchange: _Exchange) -> None:
        await respond(exchange.send, 200, CONTENT_TYPE, self._metrics.text(self._service))

    async def _send_page(self, exchange: _Exchange) -> None:
        assert self._page is not None
        await respond(exchange.send, 200, "text/html; charset=utf-8", self._page, {"cache-control": "no-cache"})


def _route(path: str, method: str, endpoint: Endpoint) -> Route:
    return Route(path, endpoint, methods=[method])


def _counted(reasons: list[str]) -> str:
    """Why texts ended: one word where all have one reason, else how often each was it."""
    counts = sorted(Counter(reasons).items())
    return counts[0][0] if len(counts) == 1 else ",".join(f"{reason}*{count}" for reason, count in counts)


async def _send_json(exchange: _Exchange, value: object, status: int = 200) -> None:
    await respond(exchange.send, status, "application/json", json_text(value).encode())


async def _while_connected(exchange: _Exchange, work: Coroutine[Any, Any, None]) -> None:
    """Runs what is left to do after a body was read, until it is done or the client leaves: then ClientGone."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(exchange.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            await _cancelled(task)
    if task.cancelled() and not exchange.complete:
        raise ClientGone
    if not task.cancelled():
        task.result()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancelled(task: asyncio.Future[Any]) -> None:
    """Cancels a task and waits until it has ended; its error is lost with it."""
    task.cancel()
    await asyncio.wait({task})
