"""A small valid call of every kernel, made from its documentation in bindings.h, for tests that spoil one argument."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from raw import HEADER, LIB, C, Context, status_name

from nncuda.binding.header import Function, Param

_ELEMENT_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i32": 4, "i8": 1, "i64": 8, "u8": 1}
#: Sizes that must stand in a relation to others; the rest are small and different.
_SIZES = {"heads": 4, "kv_heads": 2, "head_dim": 16, "capacity": 6, "len": 2, "k": 2, "cols": 5, "experts": 5,
          "kv_len": 7, "max_position": 9, "vocab": 11, "blocks": 1}  # fmt: skip
#: And those of functions that take a format, by the size that it says: whole blocks in rows, a page a sequence.
_FORMAT_SIZES = {"row_bytes": {"groups": 1, "k": 64, "dim": 64, "n": 5},
                 "page_bytes": {"tokens": 5, "batch": 2, "max_pages": 1, "pages": 3}}  # fmt: skip
#: And those of single functions.
_KERNEL_SIZES = {"interleave_rows": {"rows": 32}, "gemm_quant_route": {"k": 2},
                 "gemm_quant_experts": {"k": 2, "n": 64}, "bias_logits": {"rows": 3, "biases": 3},
                 "flash_attention": {"q_len": 7}, "flash_attention_backward": {"q_len": 7}}  # fmt: skip
#: Rows and columns of packed ternary weights that lie together, and the bytes of the columns.
_TERNARY, _TERNARY_BYTES = 16, 4
#: Options without a default in the header.
_OPTIONS = {"eps": 1e-5, "max_norm": 1.0, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "growth": 2.0,
            "backoff": 0.5, "interval": 4, "warmup": 2, "total": 10, "max_lr": 1e-3, "min_lr": 1e-4, "n_decay": 0,
            "keep": 0, "alpha": 0.5, "value": 2.0, "seed": 7, "scale": 0.25, "separator": 1, "cap": 30.0,
            **dict.fromkeys(("format", "format_q", "format_k", "format_v", "format_gate", "format_up", "format_down"),
                            HEADER.constants["NNCUDA_FORMAT_Q8_0"])}  # fmt: skip
#: Rows of a cache's page.
_PAGE_ROWS = 128
#: Integer arrays in which zero is no valid value.
_ONES = ("step", "top_k")
#: Integer arrays that are a permutation.
_PERMUTATIONS = ("slot_row", "row_slot", "page_table")
#: Half in the bits of each dtype: valid as weight, probability, rate, scale and temperature.
_HALF = {"f32": 0x3F000000, "f16": 0x3800, "bf16": 0x3F00}

_GUARD = 256
_ADDRESS = re.compile("0x[0-9a-f]+")


class Memory:
    """Bytes of the context's device. On the CPU `host` is they; on a GPU it is what put() brings there."""

    def __init__(self, host: np.ndarray, context: Context | None) -> None:
        self.host = host
        self._context = context if context is not None and context.on_gpu else None
        self.address = int(host.ctypes.data)
        if self._context is not None:
            self.address = self._context.made("nncuda_malloc", host.nbytes).value or 0
            self.put()

    def put(self) -> None:
        if self._context is not None:
            size = self.host.nbytes
            self._context.ok("nncuda_memcpy", self.address, self.host.ctypes.data, size, C.HOST_TO_DEVICE)

    def get(self) -> np.ndarray:
        """What the device holds now."""
        if self._context is None:
            return self.host
        now = np.empty_like(self.host)
        self._context.ok("nncuda_memcpy", now.ctypes.data, self.address, now.nbytes, C.DEVICE_TO_HOST)
        return now


@dataclass
class Buffer:
    """Memory between guards. `data` is the tensor's part as bytes, `memory` all of them, both on the host."""

    param: Param
    dtype: str
    rows: int
    stride: int  # bytes
    width: int  # bytes
    memory: np.ndarray = field(repr=False)
    place: Memory = field(repr=False)

    @property
    def bytes(self) -> int:
        return (self.rows - 1) * self.stride + self.width if self.rows and self.width else 0

    @property
    def element(self) -> int:
        return _ELEMENT_BYTES[self.dtype]

    @property
    def address(self) -> int:
        return self.place.address + _GUARD

    @property
    def data(self) -> np.ndarray:
        return self.memory[_GUARD : _GUARD + self.bytes]

    def now(self) -> np.ndarray:
        """The tensor's part as it is on the device."""
        return self.place.get()[_GUARD : _GUARD + self.bytes]

    def numbers(self) -> np.ndarray:
        """The elements of an i32 or f32 tensor."""
        return self.data.view(np.int32 if self.dtype == "i32" else np.float32)


class Sample:
    """The arguments of one call by name, and its buffers, on the device of `context` (the CPU without one)."""

    def __init__(
        self,
        function: Function,
        sizes: Mapping[str, int] | None = None,
        dtype: str = "f32",
        context: Context | None = None,
        options: Mapping[str, int | float] | None = None,
    ) -> None:
        self.function = function
        self._context = context
        options = {param.name: _option(param) for param in function.of_kind("option")} | dict(options or {})
        self.sizes = _sizes(function, sizes or {}, options)
        self.arguments: dict[str, int | float | None] = dict(self.sizes)
        self.dtypes: dict[str, str] = {}
        for param in function.of_kind("dtype"):
            self.dtypes[param.name] = _dtype(param, dtype, self.dtypes)
        self.arguments |= {name: HEADER.constants[f"NNCUDA_{word.upper()}"] for name, word in self.dtypes.items()}
        self.arguments |= {param.name: int(param.name == "causal") for param in function.of_kind("flag")}
        self.arguments |= options
        self.buffers = {param.name: self._buffer(param) for param in function.pointers}
        self.arguments |= {name: buffer.address for name, buffer in self.buffers.items()}

    def _buffer(self, param: Param) -> Buffer:
        dtype = self.dtypes.get(param.dtype, param.dtype)
        element = _ELEMENT_BYTES[dtype]
        dims = [dim.value(self.sizes) for dim in param.dims]
        width = int(np.prod(dims[1:], dtype=np.int64)) * element
        stride = self.sizes[param.ld] * element if param.ld else width
        if not param.ld:
            dims, width, stride = [1], dims[0] * width, dims[0] * width
        bytes_ = dims[0] * stride
        memory = np.full(bytes_ + 2 * _GUARD, 0xA5, np.uint8)
        whole = memory[_GUARD : _GUARD + bytes_]
        if dtype in _HALF:
            whole.view(np.uint32 if element == 4 else np.uint16)[:] = _HALF[dtype]
        elif dtype == "i8":
            whole[:] = 1
        elif dtype in ("i32", "i64"):
            entries = whole.view(np.int32 if element == 4 else np.int64)
            if param.name in _PERMUTATIONS:
                entries[:] = np.arange(entries.size)
            elif param.name == "seen_ids":
                entries[:] = np.arange(entries.size) % self.sizes["capacity"]
            elif param.name == "seen_lengths":
                entries[:] = self.sizes["capacity"]
            elif param.name == "offsets":
                rows = next(self.sizes[name] for name in ("rows", "m", "tokens") if name in self.sizes)
                entries[:] = np.arange(entries.size) * rows // (entries.size - 1)
            elif param.name == "lengths" and "max_pages" in self.sizes:
                entries[:] = _PAGE_ROWS * self.sizes["max_pages"]
            else:
                entries[:] = param.name in _ONES
        return Buffer(param, dtype, dims[0], stride, width, memory, Memory(memory, self._context))

    def put(self) -> None:
        """Brings what was changed on the host to the device."""
        for buffer in self.buffers.values():
            buffer.place.put()

    def on_host(self, value: int | float | None) -> int | float | None:
        """The host's address for one within a buffer; anything else as it is."""
        for buffer in self.buffers.values():
            offset = -1 if value is None else value - buffer.place.address
            if 0 <= offset < buffer.memory.nbytes:
                return int(buffer.memory.ctypes.data) + int(offset)
        return value

    @property
    def derived(self) -> tuple[str, ...]:
        """The sizes that others and the formats say."""
        return tuple(_derived(self.function, self.sizes, self.arguments))

    def following(self, **changed: int) -> dict[str, int]:
        """The changed sizes, and with them those that they say."""
        return changed | _derived(self.function, self.sizes | changed, self.arguments)

    def values(self, **changed: int | float | None) -> list[object]:
        """The arguments in order, without the context, with some of them changed."""
        arguments = self.arguments | changed
        return [arguments[param.name] for param in self.function.params if param.kind != "context"]

    def image(self, outputs: bool = True) -> bytes:
        """All memory of the device, guards included, to see whether a call wrote anything; or all but the outputs."""
        parts = []
        for buffer in self.buffers.values():
            now = buffer.place.get().copy()
            if buffer.param.writes and not outputs:
                now[_GUARD : _GUARD + buffer.bytes] = 0
            parts.append(now.tobytes())
        return b"".join(parts)


def _sizes(function: Function, chosen: Mapping[str, int], options: Mapping[str, int | float]) -> dict[str, int]:
    names = [param.name for param in function.of_kind("size")]
    usual = dict(_SIZES)
    for said, sizes in _FORMAT_SIZES.items():
        if any(name.startswith(said) for name in names):
            usual |= sizes
    usual |= _KERNEL_SIZES.get(function.kernel, {})
    sizes = {name: chosen.get(name, usual.get(name, 3 + i % 3)) for i, name in enumerate(names)}
    sizes |= {name: size for name, size in _derived(function, sizes, options).items() if name not in chosen}
    for param in function.pointers:
        if param.ld and param.ld not in chosen:
            width = int(np.prod([dim.value(sizes) for dim in param.dims[1:]]))
            sizes[param.ld] = max(width + 2, sizes[param.ld])
    return sizes


def _derived(
    function: Function, sizes: Mapping[str, int], arguments: Mapping[str, int | float | None]
) -> dict[str, int]:
    """The sizes that others and the formats say: bytes of rows and pages, columns of a joint product."""
    said = {}
    for name in sizes:
        kind, _, which = name.partition("_bytes")
        if name == "stored":
            said[name] = -(-sizes["n"] // _TERNARY) * _TERNARY
        elif kind == "row" and "stored" in sizes:
            said[name] = -(-sizes["k"] // _TERNARY) * _TERNARY_BYTES
        elif kind == "row":
            elements = sizes["n" if which == "_down" else "dim" if "dim" in sizes else "k"]
            said[name] = _format_bytes(arguments["format" + which], elements)
        elif name == "page_bytes":
            said[name] = _PAGE_ROWS * sizes["kv_heads"] * _format_bytes(arguments["format"], sizes["head_dim"])
        elif name == "n" and "n_kv" in sizes:
            said[name] = sizes["n_q"] + 2 * sizes["n_kv"]
    return said


def _format_bytes(format_: int | float | None, elements: int) -> int:
    bytes_ = ctypes.c_int64()
    assert LIB.nncuda_format_row_bytes(int(format_ or 0), elements, ctypes.byref(bytes_)) == C.SUCCESS
    return bytes_.value


def _dtype(param: Param, wanted: str, chosen: dict[str, str]) -> str:
    """The one wanted, if it may be; `chosen` are those of parameters before this one, which it may have to be like."""
    allowed = [chosen.get(word, word) for word in param.dtypes]
    return wanted if wanted in allowed or not set(allowed) <= set(_ELEMENT_BYTES) else allowed[0]


def _option(param: Param) -> int | float:
    whole = param.ctype in ("int32_t", "int64_t")
    if param.default in HEADER.constants:
        return HEADER.constants[param.default]
    if param.default and not param.default.startswith("1/"):
        return int(param.default) if whole else float(param.default)
    return _OPTIONS[param.name]


_RANGE = re.compile(r"(?P<low>-?\d+) \.\. (?P<below>below )?(?P<high>[a-z_0-9*+-]+( \* [a-z_0-9]+)?)")
_LEAST = re.compile(r"\bat least (?P<low>-?[a-z0-9_]+)")
_ABOVE = re.compile(r"\babove (?P<low>-?\d+)")
_MOST = re.compile(r"\bat most `?(?P<high>-?[a-z0-9_]+( \* [a-z0-9_]+)?)")


def _number(text: str, names: Mapping[str, int | float | None]) -> int | float:
    value = eval(text, {"__builtins__": {}}, dict(names))  # an expression over sizes from our own header
    assert isinstance(value, int | float)
    return value


def outside(param: Param, names: Mapping[str, int | float | None]) -> list[int | float]:
    """Values that the range in a pointer's text forbids: the nearest ones on either side. Empty when it has none."""
    text = param.text
    whole = "int" in param.ctype
    values: list[int | float] = []
    if match := _RANGE.search(text):
        values.append(_number(match["low"], names) - 1)
        high = _number(match["high"], names)
        values.append(high if match["below"] else high + 1)
    elif match := _LEAST.search(text):
        low = _number(match["low"], names) - 1
        values.append(low - 1 if f"{low} for" in text else low)
    elif match := _ABOVE.search(text):
        values.append(_number(match["low"], names))
    if match := _MOST.search(text):
        values.append(_number(match["high"], names) + 1)
    if values and not whole:
        values.append(float("nan"))
        if text.startswith("finite"):
            values.append(float("inf"))
    return values


def forbidden(param: Param, names: Mapping[str, int | float | None]) -> list[int | float]:
    """Values that the condition of a size or an option forbids: the nearest ones on either side."""
    return [] if param.condition is None else [*param.condition.nearest_outside("int" in param.ctype, names)]


def refuse(
    context: Context,
    cpu: Context,
    sample: Sample,
    statuses: tuple[int, ...],
    word: str,
    **changed: int | float | None,
) -> None:
    """The changed call must fail with one of the statuses, name the argument and write nothing."""
    sample.put()
    at_once = not context.on_gpu or C.ERROR_OUT_OF_RANGE not in statuses
    before = sample.image(outputs=at_once)
    name = sample.function.name
    status = context.call(name, *sample.values(**changed))
    if not at_once:
        assert status == C.SUCCESS, f"{name} with {changed}: {status_name(status)}, {context.error!r}"
        status = context.call("nncuda_ctx_synchronize")
    sentence = context.error
    assert status in statuses, f"{name} with {changed}: {status_name(status)}, {sentence!r}"
    assert sentence.startswith(f"{name}: "), sentence
    assert word in sentence, f"{name} with {changed}: {sentence!r} does not name {word}"
    assert sample.image(outputs=at_once) == before, f"{name} with {changed} wrote although it failed"
    if context.on_gpu:
        there = [sample.on_host(value) for value in sample.values(**changed)]
        assert cpu.call(name, *there) == status
        assert _ADDRESS.sub("0x", sentence) == _ADDRESS.sub("0x", cpu.error)


def pointer(value: int | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(value)


__all__ = ["Buffer", "C", "Memory", "Sample", "forbidden", "outside", "pointer", "refuse"]
