"""Which GPUs these tests find: real ones or, with NNCUDA_LIBRARY=libnncuda_emulated_<arch>.so, emulated ones. And
arrays that go there."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import nncuda
from nncuda.binding import library

CUDA = 2
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
#: Half a unit in the last place of 1.0: the relative error of rounding to each dtype.
ROUNDING = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}

#: The fixture `same_digests`: compares the digests of a part of the tests, by name, with those of another run.
SameDigests = Callable[[str, dict[str, str]], None]


def gpus() -> int:
    return library.load().device_count(CUDA)


def driver() -> ctypes.CDLL:
    """The functions of the driver; an emulated library is its own."""
    own = os.environ.get("NNCUDA_LIBRARY", "")
    return ctypes.CDLL(own if "emulated" in own else "libcuda.so.1")


def launch_counter() -> Callable[[], int]:
    """How many kernels this process has launched. Only an emulated GPU counts them: elsewhere the test is skipped."""
    if not hasattr(driver(), "nn_emulated_launches"):
        pytest.skip("a GPU does not count launches")
    count = driver().nn_emulated_launches
    count.restype = ctypes.c_int64
    return count


def placed(ctx: nncuda.Context, array: np.ndarray, shift: int = 0) -> nncuda.Tensor:
    """A copy that begins `shift` elements behind an aligned address."""
    memory = ctx.tensor(np.concatenate([np.zeros(shift, array.dtype), array.reshape(-1)]))
    return memory.narrow(0, shift, array.size).view(*array.shape)


def random(rng: np.random.Generator, *shape: int, dtype: str) -> np.ndarray:
    return rng.standard_normal(shape, np.float32).astype(DTYPES[dtype])


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)
