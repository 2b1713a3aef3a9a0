"""Programs for what strangers wrote. Each runs in a process of its own with limits of memory and time, so that the
worst that a template or a tokenizer from elsewhere can do is to fail."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_WORKER = Path(__file__).with_name("sandbox_worker.py")


class SandboxError(Exception):
    """A request failed. The text ends a sentence that begins with who made it: "ran for more than 10 s"."""


class Sandbox:
    """A process that answers requests by a program, started with the first of them and again when it ended.

    `program` is a file of this package with a function `answer(request, data)` from and to plain values. It needs
    nothing else of the package, and runs isolated from the user's paths. `memory` is how many bytes it may map; it may
    set another limit itself. `first` is a request that each process gets before any other, with its seconds and bytes.
    """

    def __init__(self, program: str, memory: int, first: tuple[Mapping[str, Any], float, bytes] | None = None):
        self._command = [sys.executable, "-I", str(_WORKER), str(_WORKER.with_name(program)), str(memory)]
        self._first = first
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Mapping[str, Any], seconds: float, data: bytes = b"") -> dict[str, Any]:
        """The answer to a request and the bytes that belong to it. SandboxError when the program refuses it, fails, or
        takes more than so many seconds or too much memory; the next request then gets a new process."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
                if self._first is not None:
                    self._exchange(*self._first)
            return self._exchange(request, seconds, data)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a panic of a library prints there
            bufsize=0,
            start_new_session=True,  # an interrupt of the terminal is not for it
        )
        weakref.finalize(self, _end, self._process)

    def _exchange(self, request: Mapping[str, Any], seconds: float, data: bytes) -> dict[str, Any]:
        assert self._process is not None
        head = json.dumps({**request, "seconds": seconds, "bytes": len(data)}).encode() + b"\n"
        try:
            line = _exchange(self._process, head + data, time.monotonic() + seconds)
        except TimeoutError:
            _end(self._process)
            raise SandboxError(f"ran for more than {seconds:g} s") from None
        except BaseException:  # an answer that comes later must not be taken for that of another request
            _end(self._process)
            raise
        if not line:
            _end(self._process)
            raise SandboxError("ended its process, perhaps because it ran out of memory")
        answer = json.loads(line)
        if "error" in answer:
            raise SandboxError(f"fails: {answer['error']}")
        return answer


def _exchange(process: subprocess.Popen[bytes], request: bytes, deadline: float) -> bytes:
    """A line for a request; an empty one when the process ended."""
    assert process.stdin is not None and process.stdout is not None
    inlet, outlet = process.stdin.fileno(), process.stdout.fileno()
    os.set_blocking(inlet, False)
    left, answer = memoryview(request), []
    while True:
        readable, writable, _ = select.select(
            [outlet], [inlet] if left else [], [], max(deadline - time.monotonic(), 0)
        )
        if not readable and not writable:
            raise TimeoutError
        if writable:
            try:
                left = left[os.write(inlet, left[:65536]) :]
            except BrokenPipeError:
                return b""
        if readable:
            part = os.read(outlet, 1 << 20)
            answer.append(part)
            if not part:
                return b""
            if part.endswith(b"\n"):
                return b"".join(answer)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
