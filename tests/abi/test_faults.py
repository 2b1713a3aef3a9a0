"""Every allocation of the library fails once: the call says OUT_OF_MEMORY, nothing leaks, the context stays usable."""

from __future__ import annotations

from toolchain import HERE, ROOT, link, run


def test_each_allocation_may_fail(tmp_path):
    out = run(link(HERE / "faults.c", tmp_path / "faults", ROOT / "tests/faults/allocations.c"))
    points = int(out.split()[0])
    assert points > 30, out
