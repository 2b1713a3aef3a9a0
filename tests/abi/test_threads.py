"""Worker pools, contexts, streams and ranks in many threads; `sanitize.sh thread` adds ThreadSanitizer."""

from __future__ import annotations

import pytest
from toolchain import HERE, ROOT, link, run


@pytest.mark.parametrize("program", ["threads.c", "../comm/ranks.c"])
def test_threads(program, tmp_path):
    assert run(link(HERE / program, tmp_path / "program"), timeout=120) == "ok\n"


def test_threads_on_several_nodes(tmp_path):
    program = link(HERE / "nodes.c", tmp_path / "program", ROOT / "cuda/cpu_device/workers.c")
    assert run(program, timeout=120) == "ok\n"
