"""Worker pools, contexts and streams under many threads; `sanitize.sh thread` runs the same under ThreadSanitizer."""

from __future__ import annotations

from toolchain import HERE, link, run


def test_threads(tmp_path):
    assert run(link(HERE / "threads.c", tmp_path / "threads"), timeout=120) == "ok\n"
