"""Signals to a process that trains: the first lets the step end, the second does not wait for it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# Says when it was asked to stop and goes on inside one call of C code, which no handler of Python's can interrupt.
DEAF = """
import ctypes, signal, sys
from nncuda.cli.stopping import stopping

asked = []
def stop():
    asked.append(1)
    print("asked", flush=True)

with stopping(stop):
    print("ready", flush=True)
    ctypes.CDLL(None).pause()
    while True:
        ctypes.CDLL(None).sleep(60)
"""

ONCE = """
import os, signal
from nncuda.cli.stopping import SIGNALS, stopping

before = [signal.getsignal(number) for number in SIGNALS]
for number in SIGNALS:
    asked = []
    with stopping(lambda: asked.append(1)):
        os.kill(os.getpid(), number)
        while not asked:
            pass
    assert asked == [1]
assert [signal.getsignal(number) for number in SIGNALS] == before and signal.set_wakeup_fd(-1) == -1
"""


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_ends_the_program_at_once(second: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(second)
        assert process.wait(timeout=60) == 128 + second


def test_handlers_are_put_back() -> None:
    subprocess.run([sys.executable, "-c", ONCE], check=True, timeout=60)
