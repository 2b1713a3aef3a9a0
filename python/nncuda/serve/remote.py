"""A model on a server that speaks OpenAI's API, this program's or another's, and a conversation with it.

It needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ..formats.errors import excerpt, printable
from ..formats.limits import PROBLEM_CHARACTERS
from ..infer import Sampling
from ..infer.conversation import Turns
from ..infer.language_model import Flag
from ..infer.sampling import GREEDY

#: Seconds to reach the server, and between two looks at whether an answer is to be stopped.
_CONNECT, _LOOK = 30.0, 0.05

#: Bytes of a line of a stream, and of an error; a server of strangers may send anything.
_LINE_BYTES = 1 << 22


class RemoteError(ValueError):
    """What a server answered, or how it did not. `code` is that of OpenAI's errors, if there is one."""

    def __init__(self, message: str, code: str | None = None):
        super().__init__(message)
        self.code = code


class RemoteModel:
    """A model of the server at `url`, such as http://127.0.0.1:8000 (with or without /v1).

    `name` is what the server calls it, by default the first that it lists. `key` is an API key. RemoteError when there
    is no such server or model. `context` is how many tokens it sees, None where the server does not say.
    """

    def __init__(self, url: str, name: str | None = None, key: str | None = None):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise RemoteError(f"the URL is {excerpt(url)}; it must be like http://127.0.0.1:8000")
        try:
            self._port = parts.port
        except ValueError:
            raise RemoteError(f"the URL is {excerpt(url)}, whose port is none") from None
        self._host, self._tls = parts.hostname, parts.scheme == "https"
        self._path = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self.url = url
        models = self._models()
        known = {entry["id"]: entry for entry in models}
        if not models:
            raise RemoteError(f"{url} has no model")
        self.name: str = models[0]["id"] if name is None else name
        if self.name not in known:
            raise RemoteError(f"{url} has no model {self.name}; it has {printable(excerpt(', '.join(known)))}")
        length = known[self.name].get("max_model_len")
        self.context: int | None = length if type(length) is int else None

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        max_new_tokens: int | None = None,
        sampling: Sampling = GREEDY,
        *,
        cancel: Flag | None = None,
    ) -> Iterator[str]:
        """The answer to a conversation, piece by piece. When `cancel` is set, or the loop is left, the connection is
        closed, which ends the answer there, too. Options that do nothing are not sent, as not every server knows them.
        """
        body: dict[str, Any] = {"model": self.name, "messages": list(messages), "stream": True, **_fields(sampling)}
        if max_new_tokens is not None:
            body["max_completion_tokens"] = max_new_tokens
        with self._request("POST", "/v1/chat/completions", body, cancel) as lines:
            for line in lines:
                if not line.startswith(b"data: "):
                    continue
                data = line[6:].strip()
                if data == b"[DONE]":
                    return
                yield _piece(self._parsed(data))
        if cancel is None or not cancel.is_set():
            raise RemoteError(f"{self.url} broke off its answer")

    def _models(self) -> list[dict[str, Any]]:
        with self._request("GET", "/v1/models") as lines:
            found = self._parsed(b"".join(lines))
        data = found.get("data")
        if not isinstance(data, list) or not all(
            isinstance(entry, dict) and isinstance(entry.get("id"), str) for entry in data
        ):
            raise RemoteError(f"{self.url} lists no models at /v1/models; it is no server of this API")
        return data

    @contextlib.contextmanager
    def _request(
        self, method: str, path: str, body: object = None, cancel: Flag | None = None
    ) -> Iterator[Iterator[bytes]]:
        """The lines of a response, until they end or `cancel` is set."""
        make = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        connection = make(self._host, self._port, timeout=_CONNECT)
        lines: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()
        # Reading waits as long as the server takes: another thread does it, and closing the socket ends that.
        reader = threading.Thread(target=self._read, args=(connection, method, path, body, lines), daemon=True)
        reader.start()
        try:
            yield _taken(lines, cancel)
        finally:
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _read(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: object,
        lines: queue.SimpleQueue[bytes | Exception | None],
    ) -> None:
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.connect()
            connection.sock.settimeout(None)
            connection.request(method, self._path + path, data, self._headers)
            response = connection.getresponse()
            if response.status != 200:
                lines.put(_refusal(self.url, response.status, response.read(_LINE_BYTES)))
                return
            while line := response.readline(_LINE_BYTES):
                lines.put(line)
            lines.put(None)
        except (OSError, http.client.HTTPException) as error:
            problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
            lines.put(RemoteError(f"{self.url} cannot be reached ({problem})"))
        finally:
            connection.close()

    def _parsed(self, data: bytes) -> dict[str, Any]:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise RemoteError(f"{self.url} answered with something else than JSON")
        if "error" in found:
            raise _error(found["error"], f"{self.url} failed")
        return found


class RemoteConversation(Turns):
    """A conversation with a model on a server, which says itself when the history has become too long."""

    def __init__(
        self,
        remote: RemoteModel,
        system: str | None = None,
        sampling: Sampling = GREEDY,
        max_new_tokens: int | None = None,
    ):
        super().__init__(system, sampling, max_new_tokens)
        self.remote = remote

    @property
    def context(self) -> int | None:
        """How many tokens the model sees, None where the server does not say."""
        return self.remote.context

    def _pieces(self, sampling: Sampling, cancel: Flag | None) -> Iterator[str]:
        while True:
            visible = self._head() + self.messages[self.left_out :]
            try:
                yield from self.remote.chat(visible, self.max_new_tokens, sampling, cancel=cancel)
                return
            except RemoteError as error:
                # It comes before any piece.
                if error.code != "context_length_exceeded" or self.left_out + 2 >= len(self.messages):
                    raise
                self.left_out += 2


def _fields(sampling: Sampling) -> dict[str, Any]:
    """The options of drawing as fields of a request."""
    found: dict[str, Any] = {"temperature": sampling.temperature, "seed": sampling.seed}
    usual = Sampling()
    for name in ("top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"):
        value = getattr(sampling, name)
        if value is not None and value != getattr(usual, name):
            found[name] = value
    if sampling.logit_bias:
        found["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    return found


def _piece(chunk: dict[str, Any]) -> str:
    """What an event adds to the answer."""
    with contextlib.suppress(KeyError, IndexError, TypeError):
        text = chunk["choices"][0]["delta"]["content"]
        if isinstance(text, str):
            return text
    return ""  # the first and the last of them, or one that counts tokens


def _taken(lines: queue.SimpleQueue[bytes | Exception | None], cancel: Flag | None) -> Iterator[bytes]:
    while cancel is None or not cancel.is_set():
        try:
            line = lines.get(timeout=_LOOK)
        except queue.Empty:
            continue
        if line is None:
            return
        if isinstance(line, Exception):
            raise line
        yield line


def _refusal(url: str, status: int, body: bytes) -> RemoteError:
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(body)
        if isinstance(found, dict) and "error" in found:
            return _error(found["error"], f"{url} answered {status}")
    return RemoteError(f"{url} answered {status}")


def _error(error: Any, otherwise: str) -> RemoteError:
    """An error in OpenAI's form."""
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return RemoteError(otherwise)
    code = error.get("code")
    return RemoteError(printable(error["message"][:PROBLEM_CHARACTERS]), code if isinstance(code, str) else None)
