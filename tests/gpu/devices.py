"""Which GPUs these tests find: real ones or, with NNCUDA_LIBRARY=libnncuda_emulated_<arch>.so, emulated ones."""

from __future__ import annotations

from nncuda.binding import library

CUDA = 2


def gpus() -> int:
    return library.load().device_count(CUDA)
