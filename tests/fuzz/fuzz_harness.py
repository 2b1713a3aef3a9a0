"""Runs one case as the program would meet it, within limits, and judges what came of it.

A reader may hand out what it read, or raise FormatError with a sentence that names the file. Anything else is a
finding: another exception, more than LIMIT_SECONDS of processor time, more memory than a small multiple of the file,
a crash.
"""

from __future__ import annotations

import os
import resource
import signal
import tempfile
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzz_targets import Target

# Processor seconds a case. The slowest valid seed takes a hundredth of this.
LIMIT_SECONDS = 2.0

# Python objects take more room than the bytes they were read from: an empty object of JSON, two bytes and a comma,
# becomes 64 bytes of dict and 8 of the list that holds it; an array of GGUF of one byte an element, 8 bytes a pointer.
# A tokenizer keeps each piece in several tables. So a case may take 64 bytes a byte, and what its target takes anyway.
MEMORY_FACTOR = 64

# What a process may map beyond what it has mapped at the start: for what the readers' libraries take in C++ and Rust,
# which tracemalloc does not see. A request above this fails, and so shows.
ADDRESS_SPACE = 2 << 30


class TooSlow(BaseException):
    """The case used up its processor time. Not an Exception, so that no reader takes it for a fault of the file."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case: `verdict` is "read", "refused" or "finding", `text` the sentence that goes with it."""

    verdict: str
    text: str


def limit_address_space() -> None:
    """Lets this process map ADDRESS_SPACE more than it has now. For the rest of its life."""
    with open("/proc/self/statm", encoding="ascii") as file:
        mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESS_SPACE, resource.RLIM_INFINITY))


def _stop(*_: object) -> None:
    raise TooSlow


def run_case(target: Target, data: bytes, folder: Path) -> Outcome:
    """Writes `data` to a file in `folder` and lets the target open it and do with it what the program does."""
    path = folder / target.name
    path.write_bytes(data)
    before = tracemalloc.is_tracing()
    if not before:
        tracemalloc.start()
    tracemalloc.reset_peak()
    start_bytes = tracemalloc.get_traced_memory()[0]
    start = time.process_time()
    signal.signal(signal.SIGVTALRM, _stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_SECONDS)
    outcome = Outcome("read", "")
    try:
        target.use(path)
    except ValueError as error:
        outcome = _judge(error, path)
    except (KeyboardInterrupt, SystemExit):
        raise
    except TooSlow:
        outcome = Outcome("finding", f"takes more than {LIMIT_SECONDS} s")
    except BaseException as error:  # a panic of Rust's is no Exception
        outcome = Outcome("finding", f"{type(error).__name__}: {error}")
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    seconds = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1] - start_bytes
    if not before:
        tracemalloc.stop()
    if outcome.verdict != "finding" and seconds > LIMIT_SECONDS:  # in C++, where no signal handler of ours runs
        return Outcome("finding", f"takes {seconds:.1f} s")
    allowed = target.memory + MEMORY_FACTOR * len(data)
    if outcome.verdict != "finding" and peak > allowed:
        return Outcome("finding", f"takes {peak} bytes of memory for a file of {len(data)}, more than {allowed}")
    return outcome


def _judge(error: ValueError, path: Path) -> Outcome:
    # A reader raises FormatError, which names the file. Another ValueError is one that nobody expected.
    from nncuda.formats import FormatError

    if not isinstance(error, FormatError):
        return Outcome("finding", f"{type(error).__name__}: {error}")
    if str(path.parent) not in str(error):
        return Outcome("finding", f"the sentence does not name the file: {error}")
    return Outcome("refused", str(error))


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for the files of a run, in memory where the system has such a file system."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="nncuda-fuzz-", dir=memory if memory.is_dir() else None)
