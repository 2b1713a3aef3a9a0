"""Servers on loopback ports, with a small random model, in a thread of the test."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from small_models import llama_config, stored_model

import nncuda
from nncuda import LanguageModel
from nncuda.models.adapter import Adapter
from nncuda.models.stored import StoredModel
from nncuda.serve.server import ServeOptions, Server, bound
from nncuda.tokenizer import Tokenizer
from nncuda.tokenizer.chat_template import ChatTemplate

CONTEXT = 512


class Steps:
    """Holds the engine's steps: each waits until it is allowed."""

    def __init__(self, model: LanguageModel):
        self._step = model.scheduler.step
        self._allowed = threading.Semaphore(0)
        self._free = False
        self.taken = 0
        self.held = False  # whether one waits now

    def step(self) -> None:
        if not self._free:
            self.held = True
            self._allowed.acquire()
            self.held = False
        self.taken += 1
        self._step()

    def allow(self, count: int = 1) -> None:
        self._allowed.release(count)

    def free(self) -> None:
        """Lets all of them go."""
        self._free = True
        self._allowed.release(1000)


class Running:
    """A server that runs, and requests to it."""

    def __init__(self, server: Server, model: LanguageModel, port: int):
        self.server = server
        self.model = model
        self.port = port

    def connection(self, timeout: float = 60) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the response."""
        connection = self.connection()
        try:
            data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            sent = {"content-type": "application/json"} if data is not None else {}
            connection.request(method, path, data, {**sent, **(headers or {})})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def post(self, path: str, body: object, **headers: str) -> tuple[int, Any]:
        """Status and JSON of the response."""
        status, _, found = self.request("POST", path, body, headers)
        return status, json.loads(found)

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        status, _, found = self.request("GET", path, None, headers)
        return status, json.loads(found)

    def error(self, path: str, body: object) -> dict[str, Any]:
        """The error that a request gets."""
        status, found = self.post(path, body)
        assert status >= 400 and list(found) == ["error"], found
        assert list(found["error"]) == ["message", "type", "param", "code"]
        return {"status": status, **found["error"]}

    def metric(self, name: str) -> float:
        """The value of a series without further labels."""
        _, _, text = self.request("GET", "/metrics")
        (line,) = [line for line in text.decode().splitlines() if line.startswith(name + "{")]
        return float(line.split()[-1])

    @property
    def at_rest(self) -> bool:
        """Whether no text has a place anywhere."""
        service = self.server.service
        return (
            service.running == service.waiting == 0 and self.model.scheduler.idle and self.model.engine.cache.used == 0
        )


@contextlib.contextmanager
def serving(
    tokenizer: Tokenizer | None,
    *,
    max_batch: int = 4,
    hold: bool = False,
    context: int = CONTEXT,
    cache_tokens: int | None = None,
    threads: int = 2,
    template: str | None = None,
    folder: Path | None = None,
    adapters: dict[str, Adapter] | None = None,
    **options: Any,
) -> Iterator[tuple[Running, Steps]]:
    """A server that runs until the block ends; `options` are those of `ServeOptions`. With `hold` its steps wait.
    `template` is its model's, `folder` that of another model, `adapters` are of the former."""
    with nncuda.Context(threads=threads) as ctx, contextlib.ExitStack() as stack:
        if folder is None:
            stored = stored_model(ctx, llama_config(vocab_size=280), "q8_0")
            stored.__dict__["tokenizer"] = tokenizer
            if template is not None:
                stored.__dict__["chat_template"] = ChatTemplate(template, "small")
        else:
            stored = StoredModel.open(folder)
        sizes = {"context": context, "max_batch": max_batch, "cache_tokens": cache_tokens}
        with LanguageModel(stored, ctx, adapters=adapters, **sizes) as model:
            steps = Steps(model)
            if hold:
                model.scheduler.step = steps.step  # type: ignore[method-assign]
            listener = stack.enter_context(bound("127.0.0.1", 0))
            server = Server(model, listener, ServeOptions(**{"name": "small", "page": False, **options}))
            started = threading.Event()
            ended: list[BaseException] = []

            def run() -> None:
                try:
                    asyncio.run(server.run(started.set))
                except BaseException as error:
                    ended.append(error)
                finally:
                    started.set()

            thread = threading.Thread(target=run)
            thread.start()
            assert started.wait(30) and not ended
            try:
                yield Running(server, model, listener.getsockname()[1]), steps
            finally:
                steps.free()
                if thread.is_alive():
                    with contextlib.suppress(RuntimeError):  # its loop may have ended by now
                        server.stop()
                        server.stop()
                thread.join(30)
                assert not thread.is_alive()
            if ended:
                raise ended[0]
