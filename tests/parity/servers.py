"""Servers of the three languages as processes: what they are asked, and the bytes of their answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conftest import find

from nncuda.bench.random_model import Shape

SHAPE = Shape(layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, vocabulary=600, context=256)
COMPLETIONS, CHAT, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"
EMBEDDINGS = "/v1/embeddings"

#: A route and the body of a request.
Asked = tuple[str, dict[str, Any]]


class Served:
    """A server by its port, with what it has written to its log."""

    def __init__(self, process: subprocess.Popen[str], language: str):
        self.process = process
        self.language = language
        self.log: deque[str] = deque(maxlen=400)
        self._ready = threading.Event()
        self.port = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._ready.wait(60) and self.port, "".join(self.log)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            found = re.match(r"serving \S+ on http://127\.0\.0\.1:(\d+)$", line.strip())
            if found is not None:
                self.port = int(found[1])
                self._ready.set()
        self._ready.set()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            sent = {"content-type": "application/json"} if body is not None else {}
            connection.request(method, path, body, {**sent, **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def post(self, asked: Asked) -> tuple[int, bytes]:
        return self.request("POST", asked[0], json.dumps(asked[1]).encode())

    def wait_for_log(self) -> None:
        """Of a server that has ended."""
        self._reader.join(60)

    def end(self) -> None:
        """SIGTERM ends it, and well."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, "".join(self.log)


@contextlib.contextmanager
def served(language: str, folder: Path, *options: object, name: str = "small") -> Iterator[Served]:
    process = find(language).start("serve", folder, "--port", 0, "--model-name", name, *options)
    try:
        found = Served(process, language)
        yield found
        found.end()
    finally:
        process.kill()
        process.wait()


def neutral(found: tuple[int, bytes]) -> tuple[int, bytes]:
    """Without ids and times."""
    status, body = found
    body = re.sub(rb'"(cmpl-|chatcmpl-|resp_|msg_|fc_)[0-9a-f]{32}"', rb'"\1ID"', body)
    return status, re.sub(rb'"(created|created_at|completed_at)":\d{10}', rb'"\1":0', body)


def idle(server: Served) -> bool:
    """Whether no request holds a place or pages, a moment after the last one has its answer."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        lines = server.request("GET", "/metrics")[1].decode().splitlines()
        held = [float(line.split()[-1]) for line in lines if re.match(r"nncuda_(requests|cache_usage)\w+\{", line)]
        assert len(held) == 3
        if held == [0.0] * 3:
            return True
    return False
