"""Exceptions: what a status of the library becomes in Python.

`Error` is the base of them all and carries the status; its subclasses are also the built-in exception that fits, so
that ``except IndexError`` catches a token id out of range and ``except MemoryError`` a device that is full.
"""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """A call of the library failed. `status` is its code, `name` the code's name, the text the library's sentence."""

    def __init__(self, status: int, message: str, name: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} ({self.name})" if self.name else self.message

    def __reduce__(self) -> Any:
        return type(self), (self.status, self.message, self.name)


class ArgumentError(Error, ValueError):
    """An argument is null, misaligned, of a wrong size, dtype, value or device, or overlaps another."""


class OutOfRangeError(Error, IndexError):
    """A token id, target, expert index or position is outside its range."""


class OutOfMemoryError(Error, MemoryError):
    """The device or the host has no memory left. The context stays usable."""


class UnsupportedError(Error, NotImplementedError):
    """The call is valid, but this engine cannot do it."""


class DeviceNotFoundError(Error, RuntimeError):
    """No such device on this machine, or no driver for it."""


class StateError(Error, RuntimeError):
    """Not allowed now: the context is closed, captures a graph, is in use by another thread, or the like."""


class DeviceError(Error, RuntimeError):
    """The device reported a fault (the context is lost), or the library has a defect."""


class PeerError(Error, ConnectionError):
    """Another rank of a job failed, left, hung or does not match this one. The communicator is lost."""


class LibraryError(Error, ImportError):  # type: ignore[misc]  # both have a `name`; Error's is first
    """libnncuda was not found, cannot be loaded, or speaks another version of the ABI than this package."""

    def __init__(self, message: str) -> None:
        super().__init__(0, message)

    def __reduce__(self) -> Any:
        return type(self), (self.message,)


#: Which class a status becomes: by the number, as in bindings.h.
CLASS_OF_STATUS: dict[int, type[Error]] = {
    10: StateError,  # INVALID_CONTEXT: a handle was closed
    11: ArgumentError,
    12: ArgumentError,
    13: ArgumentError,
    14: ArgumentError,
    15: ArgumentError,
    16: ArgumentError,
    17: ArgumentError,
    20: OutOfRangeError,
    30: OutOfMemoryError,
    40: UnsupportedError,
    41: DeviceNotFoundError,
    50: StateError,
    51: StateError,
    52: StateError,
    60: DeviceError,
    61: PeerError,
    70: DeviceError,
}


def from_status(status: int, message: str, name: str) -> Error:
    """The exception of a status; `Error` itself for a status that a newer library has added."""
    return CLASS_OF_STATUS.get(status, Error)(status, message or name, name)
