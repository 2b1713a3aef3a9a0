"""Clients that a server does not like: they leave at any moment, are killed, or send and read at a snail's pace."""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from servers import COMPLETIONS, Asked

#: A client of its own process: it sends what it is told, and reads until somebody kills it.
_CLIENT = """
import json, socket, sys
port, *asked = json.loads(sys.stdin.read())
held = [socket.create_connection(("127.0.0.1", port)) for _ in asked]
for connection, text in zip(held, asked):
    connection.sendall(text.encode())
print("sent", flush=True)
while True:
    for connection in held:
        connection.recv(100)
"""


def head_of(path: str, length: int) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {length}\r\n\r\n".encode()


def bytes_of(asked: Asked) -> bytes:
    body = json.dumps(asked[1]).encode()
    return head_of(asked[0], len(body)) + body


def leave(port: int, asked: Asked, draw: random.Random) -> None:
    """Asks, and leaves at a random moment: within the request, before the answer, or after some of it; or runs out of
    patience. It ends the connection as it should be ended, or by a reset."""
    sent = bytes_of(asked)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(sent[: draw.randrange(len(sent))] if draw.random() < 0.3 else sent)
        connection.settimeout(draw.choice((0.001, 0.01, 0.1)))
        left = draw.choice((0, 1, 300, 3000))
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            while left > 0 and (part := connection.recv(left)):
                left -= len(part)
        if draw.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def wait_for_nothing(port: int, asked: Asked) -> bytes:
    """Sends all but the last byte, and waits for what the server has to say."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(bytes_of(asked)[:-1])
        return connection.recv(12)


def be_killed(port: int, asked: Sequence[Asked], draw: random.Random) -> None:
    """A process that has asked for all of these is killed."""
    with subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps([port, *(bytes_of(one).decode("latin-1") for one in asked)]).encode())
        process.stdin.close()
        assert process.stdout.readline() == b"sent\n"
        time.sleep(draw.choice((0, 0.01, 0.1)))
        process.kill()


class Snails:
    """Connections that send heads and bodies byte by byte, and some that never read their stream.

    `heads`, `bodies` and `readers` are the sockets; a sender stops when the server answers or
    closes.
    """

    def __init__(self, port: int, each: int):
        self.heads = [self._open(port) for _ in range(each)]
        self.bodies = [self._open(port) for _ in range(each)]
        self.readers = [self._open(port, 4096) for _ in range(each)]
        for connection in self.bodies:
            connection.sendall(head_of(COMPLETIONS, 1 << 20))
        asked = {"prompt": "waves", "max_tokens": 200, "ignore_eos": True, "stream": True, "logprobs": 5}
        for connection in self.readers:
            connection.sendall(bytes_of((COMPLETIONS, asked)))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _open(self, port: int, buffer: int | None = None) -> socket.socket:
        made = socket.socket()
        if buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        made.settimeout(60)
        made.connect(("127.0.0.1", port))
        return made

    def _send(self) -> None:
        left = dict.fromkeys(self.bodies, b"{ ")
        left |= dict.fromkeys(self.heads, b"GET /health HTTP/1.1\r\nx: ")
        at = 0
        while not self._ended.wait(0.05):
            for connection in select.select(list(left), [], [], 0)[0]:
                del left[connection]
            for connection, text in list(left.items()):
                try:
                    connection.sendall(text[min(at, len(text) - 1) :][:1])
                except OSError:  # closed
                    del left[connection]
            at += 1

    @staticmethod
    def told(connections: Sequence[socket.socket]) -> list[bytes]:
        """The statuses with which the server ended these; waits for them."""
        return [connection.recv(12) for connection in connections]

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        for connection in (*self.heads, *self.bodies, *self.readers):
            connection.close()
