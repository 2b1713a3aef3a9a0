"""A connection of the server: uvicorn's for HTTP/1.1, with limits of time, size and number, and OpenAI's errors.

uvicorn bounds neither how long a request may take to come nor how long an answer may take to be read.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .api import LIMITS, ApiError


class Connection(H11Protocol):
    """Waits `header_seconds` for the head of a request, and `write_seconds` for a client to read."""

    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > LIMITS["connections"]:
            self._refuse(ApiError("too_many_connections", most=LIMITS["connections"]))
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect_head()
        elif self.conn.our_state is h11.DONE:
            self._linger()
        else:
            self._stop_head_timer()

    def send_400_response(self, msg: str) -> None:
        """Bytes that are no request, or a head that is too large: h11 has refused them."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # in the middle of an answer
            return
        trailing, _ = self.conn.trailing_data
        large = len(trailing) > LIMITS["header_bytes"]
        code = "headers_too_large" if large else "bad_http"
        self._refuse(ApiError(code, most=LIMITS["header_bytes"], count=LIMITS["headers"]))

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(LIMITS["write_seconds"], self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _expect_head(self) -> None:
        """Gives the client time for the head of a request, from its first byte on; of a first one from the start."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(LIMITS["header_seconds"], self._head_too_slow)

    def _linger(self) -> None:
        """Reads on for a while where the answer came before the end of the request: a client that still sends when the
        connection is closed may lose the answer."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(LIMITS["linger_seconds"], self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_too_slow(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._refuse(ApiError("body_too_slow", seconds=LIMITS["header_seconds"]))

    def _refuse(self, error: ApiError) -> None:
        """Answers without the application, and closes."""
        body = error.body()
        head = f"HTTP/1.1 {error.status} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self._stop_timers()
        self.transport.close()

    def _stop_timers(self) -> None:
        self._stop_head_timer()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


#: What uvicorn's configuration takes for it.
OPTIONS: dict[str, Any] = {
    "http": Connection,
    "ws": "none",
    "h11_max_incomplete_event_size": LIMITS["header_bytes"],
    "timeout_keep_alive": LIMITS["keep_alive_seconds"],
    "lifespan": "off",
    "access_log": False,
    "log_config": None,
    "server_header": False,
    "proxy_headers": False,
}
