"""The GPU code inside a built library, read without NVIDIA's tools.

A fatbin is a header (magic, version, its size, the size of what follows) and entries, each a header (kind, version, its
size, the size of the code) and code. The architecture, and a bit for those that are not portable, stand in an entry's
header.
"""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

_MAGIC = struct.pack("<I", 0xBA55ED50)
_PTX, _ELF = 1, 2
_ARCH_SPECIFIC = 1 << 20


def codes(library: Path) -> Counter[str]:
    """How many source files there is code of, by architecture: sm_80 is machine code, compute_80 is PTX."""
    data = library.read_bytes()
    found: Counter[str] = Counter()
    start = data.find(_MAGIC)
    while start >= 0:
        _, version, header, size = struct.unpack_from("<IHHQ", data, start)
        end = start + header + size
        if version != 1 or end > len(data):  # the four bytes stand there by chance
            start = data.find(_MAGIC, start + 1)
            continue
        entry = start + header
        while entry < end:
            kind, _, length, code = struct.unpack_from("<HHIQ", data, entry)
            arch, _, _, flags = struct.unpack_from("<4I", data, entry + 28)
            letter = "a" if flags & _ARCH_SPECIFIC else ""
            found[{_ELF: "sm_", _PTX: "compute_"}[kind] + f"{arch}{letter}"] += 1
            entry += length + code
        start = data.find(_MAGIC, end)
    return found
