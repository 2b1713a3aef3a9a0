"""The process of a sandbox: a request, a line of JSON and perhaps bytes, on the standard input, an answer, a line of
JSON, on the standard output. Started by `sandbox.py` as a file, outside the package.

    python -I sandbox_worker.py PROGRAM MEMORY

The limits are set before the program is loaded and the first request is seen.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any


def _answer(program: Callable[[dict, bytes], dict[str, Any]], request: dict, data: bytes) -> dict[str, Any]:
    """What the program says, or what was wrong: whatever a request does, the answer is a sentence."""
    try:
        return program(request, data)
    except MemoryError:
        return {"error": "it needs too much memory"}
    except RecursionError:
        return {"error": "it is nested too deeply"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:1000]}
    except BaseException as error:  # a library in Rust that gives up is no Exception
        if type(error).__name__ != "PanicException":
            raise
        return {"error": "the library that reads it gave up"}


def main() -> None:
    """Answers requests until the input ends."""
    path, memory = sys.argv[1], int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    spec = importlib.util.spec_from_file_location("program", path)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is not an answer
    for line in sys.stdin.buffer:
        request = json.loads(line)
        # Who asked ends this process in time; unless it is gone, and a request runs on.
        signal.setitimer(signal.ITIMER_REAL, request.pop("seconds") + 5)
        answer = _answer(program.answer, request, sys.stdin.buffer.read(request.pop("bytes")))
        signal.setitimer(signal.ITIMER_REAL, 0)
        out.write(json.dumps(answer).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    main()
