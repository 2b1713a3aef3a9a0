"""Who may ask: API keys, and the names by which a server without keys may be called."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable

from starlette.types import Scope

from .api import LIMITS, ApiError
from .bodies import header

#: Routes that need no key: the page, which has a place to enter one, and what asks whether the server lives.
OPEN_ROUTES = frozenset({"/", "/health", "/health/live", "/health/ready"})


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine alone."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Checks each request. Without keys it answers only to loopback names, unless `anyone` may ask: otherwise a page of
    a stranger could, by a name of its own that leads to this machine."""

    def __init__(self, keys: Iterable[str], anyone: bool):
        self._digests = [_digest(key.encode()) for key in keys]
        self._anyone = anyone

    def check(self, scope: Scope) -> None:
        """ApiError for a request that may not go on."""
        if len(scope["headers"]) > LIMITS["headers"]:
            raise ApiError("headers_too_large", most=LIMITS["header_bytes"], count=LIMITS["headers"])
        if self._digests:
            if scope["path"] not in OPEN_ROUTES and not self._knows(header(scope, b"authorization")):
                raise ApiError("invalid_api_key", headers={"www-authenticate": "Bearer"})
        elif not self._anyone:
            host = header(scope, b"host").decode("latin-1")
            if not is_loopback(_without_port(host).lower()):
                raise ApiError("wrong_host", host=host[:64])

    def _knows(self, authorization: bytes) -> bool:
        scheme, _, key = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            return False
        digest, known = _digest(key.strip()), False
        for one in self._digests:  # all of them, so that the time tells nothing
            known |= hmac.compare_digest(digest, one)
        return known


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
