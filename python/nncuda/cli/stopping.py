"""How a run is stopped from outside: an interrupt, or a scheduler's request to end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """While it lasts, SIGINT or SIGTERM calls `stop`, and a second of them ends the program at once.

    Python's own handlers run between two of its instructions, and a call of the library is one, which may take minutes.
    The number of the signal goes through a pipe to a thread, which need not wait for that.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    thread = threading.Thread(target=_watch, args=(read, stop), daemon=True)
    before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
    waked = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(waked)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(write)  # which ends the thread
        thread.join()
        os.close(read)


def _watch(read: int, stop: Callable[[], None]) -> None:
    stopped = False
    while number := os.read(read, 1):
        if number[0] not in SIGNALS:
            continue
        if stopped:
            if sys.stdout.isatty():
                os.write(sys.stdout.fileno(), b"\x1b[?25h\n")  # the cursor, which the progress bar hides
            os._exit(128 + number[0])
        stopped = True
        stop()
