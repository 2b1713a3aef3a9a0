"""What things of ``bindings.h`` are called in Go, and the prose that Go's documentation makes of the header's."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from nncuda.binding.header import Function, Param

MARK = "// Code generated from bindings.h by `make generate`. DO NOT EDIT."

#: How words of the header's names are written in Go where it is not with a capital alone.
_WORDS = {
    "abi": "ABI", "adamw": "AdamW", "bf16": "BF16", "bitlinear": "BitLinear", "fp8": "FP8", "kv": "KV", "lr": "LR",
    "moe": "MoE", "ntk": "NTK", "qk": "QK", "qkv": "QKV", "relu2": "ReLU2", "rmsnorm": "RMSNorm", "silu": "SiLU",
    "swiglu": "SwiGLU", "topk": "TopK", "topp": "TopP", "minp": "MinP", "wgrad": "WGrad",
}  # fmt: skip
#: Parameters whose name means something else in Go.
_TAKEN = {"len": "length", "cap": "capacity", "type": "kind", "range": "span", "check": "checked", "cuda": "kernel"}

#: Enums: the prefix of their constants, the Go type, the prefix of the Go constants. An enum that is not here has no
#: names in Go yet, which the generator refuses.
ENUMS: tuple[tuple[str, str, str], ...] = (
    ("NNCUDA_ERROR_", "Status", "Err"),
    ("NNCUDA_SUCCESS", "Status", "success"),
    ("NNCUDA_DEVICE_", "Device", ""),
    ("NNCUDA_ISA_", "ISA", ""),
    ("NNCUDA_CTX_", "attribute", "ctx"),
    ("NNCUDA_HOST_TO_DEVICE", "copyKind", "hostToDevice"),
    ("NNCUDA_DEVICE_TO_HOST", "copyKind", "deviceToHost"),
    ("NNCUDA_DEVICE_TO_DEVICE", "copyKind", "deviceToDevice"),
    ("NNCUDA_ROPE_", "RopeLayout", "Rope"),
    ("NNCUDA_ACTIVATION_", "Activation", "Activation"),
    ("NNCUDA_FORMAT_", "Format", "Format"),
    ("NNCUDA_REPORT_", "ReportForm", "Report"),
    ("NNCUDA_TRANSPORT_", "Transport", "Transport"),
    ("NNCUDA_EXPERTS_", "ExpertEventKind", "Experts"),
    ("NNCUDA_", "DType", ""),
)
_CONSTANT_WORDS = {
    "Dtype": "DType",
    "Json": "JSON",
    "Silu": "SiLU",
    "Isa": "ISA",
    "Tf32": "TF32",
    "Mpi": "MPI",
    "Nccl": "NCCL",
    "Dotprod": "DotProd",
}
_CAPITALS = re.compile(r"(CPU|CUDA|AVX2|AVX512|AVX512BF16|AMX|NEON|I8MM|F32|F16|BF16|I32|I8)")


def exported(name: str) -> str:
    """``gemm_beta`` as ``GemmBeta``."""
    return "".join(_WORDS.get(word, word.capitalize()) for word in name.split("_"))


def local(name: str) -> str:
    """``trans_a`` as ``transA``."""
    first, *rest = name.split("_")
    joined = first + "".join(_WORDS.get(word, word.capitalize()) for word in rest)
    return _TAKEN.get(joined, joined)


def constant(name: str) -> tuple[str, str]:
    """The Go type of a constant of the header, and its name in Go."""
    # The copies' names begin like those of devices.
    exact = [entry for entry in ENUMS if entry[0] == name]
    for prefix, kind, go_prefix in exact or ENUMS:
        if name.startswith(prefix):
            rest = name.removeprefix(prefix)
            if not exact and kind == "DType" and not _CAPITALS.fullmatch(rest):
                break
            words = rest if _CAPITALS.fullmatch(rest) else "".join(w.capitalize() for w in rest.split("_"))
            for word, written in _CONSTANT_WORDS.items():
                words = words.replace(word, written)
            return kind, go_prefix + words
    raise ValueError(f"{name}: no enum of golang_names.ENUMS says what it is called in Go")


def option_type(param: Param) -> str:
    """The Go type of an option."""
    if param.constants:
        return constant(param.constants[0])[0]
    return {"float": "float32", "double": "float64", "int32_t": "int32", "int64_t": "int64"}[param.ctype]


def comment(paragraphs: Iterable[str], width: int = 117) -> list[str]:
    """A Go comment: paragraphs are wrapped, those that begin with ``- `` become one list."""
    lines: list[str] = []
    for paragraph in paragraphs:
        item = paragraph.startswith("- ")
        first, rest = ("  - ", "    ") if item else ("", "")
        body = textwrap.wrap(
            paragraph.removeprefix("- "), width, initial_indent=first, subsequent_indent=rest,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        if lines and not (item and lines[-1].startswith("//   ")):
            lines.append("//")
        lines += [f"// {line}" for line in body]
    return lines


def parameter_line(param: Param) -> str:
    """One line of documentation of a tensor or option."""
    name = local(param.name)
    if param.kind == "pointer":
        null = ", may be nil" if param.nullable else ""
        alias = f", may be {' or '.join(local(other) for other in param.alias)} itself" if param.alias else ""
        return f"- {name}, {param.direction} {param.dtype} {param.shape_text}{null}{alias}: {param.text}"
    default = f", usually {param.default}" if param.default else ""
    return f"- {name}{default}: {param.text}"


def purpose(function: Function) -> list[str]:
    """The paragraphs of a function's documentation in the header."""
    return [" ".join(paragraph.split()) for paragraph in function.doc.split("\n\n")]
