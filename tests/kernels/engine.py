"""Calls kernels straight through the C ABI with ctypes: arrays of NumPy, nothing inferred, nothing allocated.

The signatures come from the header.
"""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np

from nncuda.binding import library

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "i8": np.int8,
          "u8": np.uint8}  # fmt: skip
DTYPE_NUMBERS = {"f32": 0, "f16": 1, "bf16": 2, "i32": 3, "i8": 4}
FLOATS = ("f32", "f16", "bf16")
#: Half a unit in the last place of 1.0: the relative error of rounding to each dtype.
ROUNDING = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
THREADS = (1, 2, 3, 7)

_CTYPES = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "float": ctypes.c_float, "double": ctypes.c_double}
_HEADER = library.load().header


_LIBRARY = ctypes.CDLL(library.load().path)
_LIBRARY.nncuda_last_error.restype = ctypes.c_char_p


class KernelError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = next(name for name, value in _HEADER.constants.items() if value == status and "ERROR" in name)
        self.message = message


class Engine:
    """A context. `engine.moe_plan(...)` is `cuda_moe_plan(ctx, ...)`: arrays, numbers or None in the header's order."""

    def __init__(self, threads: int | None = None, isa: int | None = None) -> None:
        self._ctx = ctypes.c_void_p()
        status = _LIBRARY.nncuda_ctx_create(1, 0, ctypes.byref(self._ctx))
        assert status == 0, status
        for attribute, value in ((0, threads), (1, isa)):
            if value is not None:
                status = _LIBRARY.nncuda_ctx_set(self._ctx, attribute, ctypes.c_int64(value))
                if status != 0:
                    raise KernelError(status, _LIBRARY.nncuda_last_error(self._ctx).decode())

    def __del__(self) -> None:
        _LIBRARY.nncuda_ctx_destroy(self._ctx)

    @property
    def isa(self) -> int:
        value = ctypes.c_int64()
        assert _LIBRARY.nncuda_ctx_get(self._ctx, 1, ctypes.byref(value)) == 0
        return value.value

    def __getattr__(self, kernel: str):
        functions = _HEADER.functions
        function = functions.get(f"cuda_{kernel}") or functions[f"nncuda_{kernel}"]
        entry = getattr(_LIBRARY, function.name)
        params = [param for param in function.params if param.kind != "context"]

        def call(*args: object) -> None:
            assert len(args) == len(params), f"{function.name} takes {[param.name for param in params]}"
            values = [self._ctx]
            for param, value in zip(params, args, strict=True):
                if param.kind in ("pointer", "handle"):
                    if value is not None:
                        assert value.flags.c_contiguous
                        value = ctypes.c_void_p(value.ctypes.data)
                    values.append(value)
                elif param.kind == "dtype":
                    values.append(ctypes.c_int32(DTYPE_NUMBERS[value] if isinstance(value, str) else value))
                else:
                    values.append(_CTYPES[param.ctype](value))
            status = entry(*values)
            if status != 0:
                raise KernelError(status, _LIBRARY.nncuda_last_error(self._ctx).decode())

        return call


def isas() -> list[int]:
    """The instruction sets of this machine whose kernels differ outside matrix products, plainest first."""
    return list(range(min(Engine().isa, 2) + 1))


def empty(shape: int | tuple[int, ...], dtype: str) -> np.ndarray:
    """An output with nothing valid in it: NaN, or a number that no result has."""
    fill = np.nan if dtype in FLOATS else -(2**31) if dtype == "i32" else -(2**7)
    return np.full(shape, fill, DTYPES[dtype])
