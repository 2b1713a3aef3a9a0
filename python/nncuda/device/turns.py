"""Who uses a context now, when several threads want to.

A context serves one call at a time. A model makes many calls, and two models' calls must not be mixed: `LanguageModel`
lets threads take turns, `MoETransformer` and `Trainer`, where a second thread is a mistake, refuse it.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from .. import errors

_BUSY = 52

Method = TypeVar("Method", bound=Callable[..., Any])


class Turns:
    """A lock that threads get in the order in which they ask for it, and that its holder may take again.

    Python's own locks are not in order: who releases one and asks again at once, as a loop over tokens does, may keep
    all others waiting.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()  # for the fields below, never held for long
        self._waiting: deque[tuple[int, threading.Lock]] = deque()
        self._holder = 0  # the thread whose turn it is, 0 for none, and how often it took it
        self._depth = 0
        self._taken = _Taken(self)

    @property
    def mine(self) -> bool:
        """Whether it is this thread's turn."""
        return self._holder == threading.get_ident()

    def acquire(self, wait: bool = True) -> bool:
        """Takes the turn, or, without `wait`, returns False when another thread has it."""
        thread = threading.get_ident()
        with self._mutex:
            if self._holder in (0, thread):  # no thread waits while there is no holder
                self._holder = thread
                self._depth += 1
                return True
            if not wait:
                return False
            called = threading.Lock()
            called.acquire()
            place = thread, called
            self._waiting.append(place)
        try:
            called.acquire()
        except BaseException:  # an interrupt
            with self._mutex:
                given = place not in self._waiting
                if not given:
                    self._waiting.remove(place)
            if given:
                self.release()
            raise
        return True

    def release(self) -> None:
        """Gives the turn to the thread that has waited longest."""
        with self._mutex:
            self._depth -= 1
            if self._depth:
                return
            self._holder = 0
            if self._waiting:
                self._holder, called = self._waiting.popleft()
                self._depth = 1
                called.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def alone(self, who: str) -> _Taken:
        """For a with block: takes the turn, or raises StateError, which names `who`, when another thread has it."""
        if not self.acquire(wait=False):
            raise errors.StateError(
                _BUSY,
                f"the {who} is in use by another thread, or something else on its context is: use one thread, take "
                "turns with a threading.Lock, or give each thread a context of its own",
                "NNCUDA_ERROR_BUSY",
            )
        return self._taken


class _Taken:
    """A turn that was taken, to be given at the end of a with block. There for its speed: it is once for all blocks."""

    __slots__ = ("_release",)

    def __init__(self, turns: Turns) -> None:
        self._release = turns.release

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._release()


def one_thread(method: Method) -> Method:
    """A method of something with a `ctx` that one thread at a time may call: StateError for another."""

    @functools.wraps(method)
    def alone(self: Any, *args: Any, **options: Any) -> Any:
        with self.ctx._turns.alone(type(self).__name__):
            return method(self, *args, **options)

    return cast(Method, alone)
