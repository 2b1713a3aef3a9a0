"""What the gguf package stores and reads, and how well llama.cpp chooses the scales of the K formats. Records both."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path

import numpy as np
import pytest
import quant_cases as cases

from nncuda.formats.block_formats import FORMATS

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("needs the gguf package: make interop", allow_module_level=True)

RECORDED = Path(__file__).parent / "recorded"


def write(name: str, record: object) -> None:
    (RECORDED / name).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def test_record_gguf() -> None:
    from importlib.metadata import version

    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    def kind(name: str) -> GGMLQuantizationType:
        return GGMLQuantizationType(FORMATS[name].gguf_type)

    with np.errstate(all="ignore"):
        stored = {
            name: {n: cases.digest(quantize(cases.numbers(n), kind(name)).view(np.uint8)) for n in cases.NUMBERS}
            for name in cases.STORED
        }
        read = {name: cases.digest(dequantize(cases.stored_bytes(name), kind(name))) for name in FORMATS}
    write("quant_by_gguf.json", {"gguf": version("gguf"), "stored": stored, "read": read})


def test_record_llama_cpp() -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    library = ctypes.CDLL(str(next((Path(llama_cpp.__file__).parent / "lib").glob("libggml-base.so"))))
    function = library.ggml_quantize_chunk
    function.restype = ctypes.c_size_t
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [ctypes.c_int, pointer, pointer, size, size, size, pointer]
    errors: dict[str, dict[str, float]] = {}
    for name in cases.SEARCHED:
        kind = GGMLQuantizationType(FORMATS[name].gguf_type)
        for n in cases.ORDINARY:
            x = cases.numbers(n)
            out = np.zeros((len(x), FORMATS[name].row_bytes(cases.K)), np.uint8)
            function(int(kind), x.ctypes.data, out.ctypes.data, 0, len(x), cases.K, None)
            errors.setdefault(name, {})[n] = squared_error(dequantize(out, kind), x)
    write("quant_by_llama_cpp.json", {"llama_cpp": llama_cpp.__version__, "squared_error": errors})


def squared_error(y: np.ndarray, x: np.ndarray) -> float:
    """Of each row against its own size, so that no row hides the others."""
    wide = x.astype(np.float64)
    return float(np.mean(np.sum((y - wide) ** 2, axis=1) / np.sum(wide**2, axis=1)))
