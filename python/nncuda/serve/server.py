"""Runs the server on a socket, from the loading of a model to the end of its last request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from ..infer import LanguageModel
from ..infer.paged_cache import PAGE
from .access_log import AccessLog, LogLines
from .api import ApiError
from .app import App
from .connection import OPTIONS
from .guard import Guard
from .metrics import Metrics
from .service import Service

#: Seconds for clients to take the error that ends what runs.
_LAST_WORDS = 2.0

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class ServeOptions:
    """How a model is served.

    name            of the model, as requests have it
    keys            API keys, of which a request must have one; without any, loopback names alone are answered, unless
                    `anyone` may ask
    max_queue       texts that may wait beside those that run
    timeout         seconds of a request, from its head to its last byte
    drain_seconds   how long running requests may go on after the first signal
    log_format      text or json
    page            whether there is a page at /
    """

    name: str
    keys: Sequence[str] = ()
    anyone: bool = False
    max_queue: int = 256
    timeout: float = 600.0
    drain_seconds: float = 30.0
    log_format: str = "text"
    page: bool = True


def bound(host: str, port: int) -> socket.socket:
    """A socket of that address, which does not listen yet: until a model is loaded, clients are to be told that nobody
    is there. Port 0 takes a free one. OSError, which says where, when the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen there ({error.strerror or error})", f"{host}:{port}") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"cannot listen there ({error.strerror})", f"{host}:{port}") from None
    return made


class Server:
    """A model on a socket, which it closes. `service` runs the texts.

    ValueError when the model's cache has not room for one text of the context's length.
    """

    def __init__(self, model: LanguageModel, listener: socket.socket, options: ServeOptions):
        room = model.engine.cache.num_pages * PAGE
        if room < model.context:
            raise ValueError(
                f"cache_tokens is {room}, less than the context of {model.context} tokens; make it larger, or the "
                "context smaller"
            )
        self._listener = listener
        self._seconds = options.drain_seconds
        self._log = AccessLog(options.log_format)
        metrics = Metrics(options.name)
        self.service = Service(model, options.max_queue, metrics, self._failed)
        page = Path(__file__).with_name("page.html").read_bytes() if options.page else None
        self._app = App(
            self.service,
            options.name,
            guard=Guard(options.keys, options.anyone),
            log=self._log,
            metrics=metrics,
            timeout=options.timeout,
            page=page,
        )
        self._http = _HttpServer(uvicorn.Config(self._app, **OPTIONS))
        self._failure: BaseException | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, started: Callable[[], None] | None = None) -> None:
        """Answers requests until a signal (SIGTERM or SIGINT) or `stop` ends it. `started` is called when it does.

        Signals are those of the process, if this is its main thread. Raises what ended the engine, should that fail.
        """
        self._loop = asyncio.get_running_loop()
        self._http.on_start = started
        self.service.start()
        try:
            with _logging(self._log), self._signals(self._loop):
                await self._http.serve(sockets=[self._listener])
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await self.service.stop()
            self._app.close()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ends it as a signal does, from any thread: no new requests; those that run go on until they end, or are cut
        after `drain_seconds`. The second time they are cut at once."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop, "stop")

    @contextlib.contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Has signals end the server."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop, number.name)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _stop(self, why: str) -> None:
        if self._http.should_exit:
            self._cut()
            return
        texts = self.service.running + self.service.waiting
        self._log.record(level="info", message=f"{why}: shutting down", texts=texts)
        self._app.ready = False
        self._http.should_exit = True
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._cut)

    def _cut(self) -> None:
        """Ends what runs with an error, and a little later the connections of clients that do not take it."""
        self.service.cut(ApiError("draining"))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_LAST_WORDS, self._http.abort)

    def _failed(self, error: BaseException) -> None:
        self._failure = error
        self._http.should_exit = True


class _HttpServer(uvicorn.Server):
    """uvicorn's, whose signals are handled here: it would end by the signal, and not with 0."""

    on_start: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.on_start is not None:
            self.on_start()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def abort(self) -> None:
        """Closes all connections, whatever is left to send."""
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()


@contextlib.contextmanager
def _logging(log: AccessLog) -> Iterator[None]:
    """Has what this package and uvicorn have to say written as lines of the log."""
    loggers = [logging.getLogger(name) for name in ("nncuda.serve", "uvicorn.error")]
    handler = LogLines(log)
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
        logger.propagate = False
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
        sys.stderr.flush()
