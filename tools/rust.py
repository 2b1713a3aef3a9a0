"""The Rust that is made from the header.

`nn-cuda/src/bindings/` has the constants, the functions' types and the table of pointers to them; `nn-ffi/src/kernels/`
has a typed function a kernel, `nn-ffi/src/generated/` the enums and the table by which kernels are called by name.

The text is laid out as rustfmt lays it out with `rust/rustfmt.toml`, so that it can be made without Rust.
"""

from __future__ import annotations

import hashlib

from nncuda.binding.header import Function, Header, Param

from . import rust_catalogue, rust_kernels
from .rust_text import binding, comment, mark

OWNED = ("rust/nn-cuda/src/bindings/*", "rust/nn-ffi/src/generated/*", "rust/nn-ffi/src/kernels/*")

#: The ABI's handles are pointers to these.
_SCALARS = {"int32_t": "i32", "int64_t": "i64", "float": "f32", "double": "f64", "void": "c_void", "char": "c_char"}


def files(contract: Header, source: bytes) -> dict[str, str]:
    """The generated files by their path; `source` is the header's text, byte by byte."""
    made = {
        "nn-cuda/src/bindings/mod.rs": _module(contract, source),
        "nn-cuda/src/bindings/constants.rs": _constants(contract),
        "nn-cuda/src/bindings/functions.rs": _functions(contract),
        "nn-cuda/src/bindings/table.rs": _table(contract),
    }
    safe = rust_kernels.files(contract) | rust_catalogue.files(contract)
    made |= {f"nn-ffi/src/{name}": text for name, text in safe.items()}
    return {f"rust/{name}": text for name, text in made.items()}


def _module(contract: Header, source: bytes) -> str:
    lines = [
        *mark("The contract in Rust: constants, the functions' types, and the table of pointers to them."),
        "",
        "mod constants;",
        "pub mod functions;",
        "mod table;",
        "",
        "pub use constants::*;",
        f"pub use functions::{{{', '.join(sorted(contract.handles))}}};",
        "pub use table::{Address, Functions};",
        "",
        "/// SHA-256 of the bindings.h that these files were made from, in hexadecimal digits.",
        f'pub const HEADER_SHA256: &str = "{hashlib.sha256(source).hexdigest()}";',
    ]
    return "\n".join(lines) + "\n"


def _constants(contract: Header) -> str:
    lines = [*mark("Numbers of the contract, under their names in bindings.h.")]
    about = {
        "NNCUDA_ABI_MAJOR": "Major version of the contract: a signature, a meaning or a number changed.",
        "NNCUDA_ABI_MINOR": "Minor version of the contract: something was added.",
    }
    for name, value in contract.macros.items():
        lines += ["", *comment(about.get(name, name), "///"), f"pub const {name}: i32 = {value};"]
    for enum in contract.enums:
        lines += ["", *(f"// {line[4:]}" for line in comment(enum.text, "///"))]
        for constant in enum.constants:
            lines += [
                *comment(constant.text or f"{constant.value}.", "///"),
                f"pub const {constant.name}: i32 = {constant.value};",
            ]
    return "\n".join(lines) + "\n"


def rust_type(ctype: str) -> str:
    """A C type of the contract in Rust: "const void *" is *const c_void."""
    base = ctype.replace("const ", "").replace("*", "").strip()
    stars = ctype.count("*")
    first = "*const " if ctype.startswith("const ") else "*mut "
    return ("*mut " * (stars - 1) + first if stars else "") + _SCALARS.get(base, base)


def _functions(contract: Header) -> str:
    lines = [
        *mark("The functions' types, under their names in bindings.h, and the handles that they take."),
        "",
        '#![allow(non_camel_case_types, reason = "the names are those of bindings.h")]',
        "",
        "use core::ffi::{c_char, c_void};",
        "use core::marker::{PhantomData, PhantomPinned};",
    ]
    for name in contract.handles:
        lines += [
            "",
            f"/// What a `{name}` pointer points to; only the library knows its content.",
            "#[repr(C)]",
            "#[derive(Debug)]",
            f"pub struct {name} {{",
            "    _content: [u8; 0],",
            "    _marker: PhantomData<(*mut u8, PhantomPinned)>,",
            "}",
        ]
    for function in contract.functions.values():
        lines += ["", *comment(function.summary, "///"), "///", f"/// C: `{function.declaration}`", *_alias(function)]
    return "\n".join(lines) + "\n"


def _alias(function: Function) -> list[str]:
    def one(param: Param) -> str:
        return f"{param.name}: {rust_type(param.ctype)}"

    returns = "*const c_char" if "char" in function.returns else "i32"
    params = [one(param) for param in function.params]
    return binding(f"pub type {function.name}", 'unsafe extern "C" fn(', params, f") -> {returns};")


def _table(contract: Header) -> str:
    names = list(contract.functions)
    lines = [
        *mark("The table of pointers to the library's functions."),
        "",
        "use core::ffi::{CStr, c_void};",
        "use core::mem::transmute;",
        "",
        "use super::functions;",
        "",
        "/// Where a function is.",
        "pub type Address = *const c_void;",
        "",
        "/// A pointer to each function of the contract, under its name in bindings.h.",
        "#[derive(Clone, Copy, Debug)]",
        "pub struct Functions {",
    ]
    for name in names:
        lines += [f"    /// See [`functions::{name}`].", f"    pub {name}: functions::{name},"]
    lines += [
        "}",
        "",
        "impl Functions {",
        "    /// The names of all functions, in the header's order.",
        f"    pub const NAMES: [&'static CStr; {len(names)}] = [",
        *(f'        c"{name}",' for name in names),
        "    ];",
        "",
        "    /// Asks `address` for each function in turn and fills the table; the first error ends it.",
        "    ///",
        "    /// # Safety",
        "    ///",
        "    /// What `address` returns for a name must be the address of a function that has the type of that name in",
        "    /// [`functions`] and does what bindings.h says of it, for as long as the table or a copy of it is used.",
        "    pub unsafe fn resolve<E>(mut address: impl FnMut(&'static CStr) -> Result<Address, E>)"
        " -> Result<Self, E> {",
        "        use functions::*;",
        "",
        "        let mut at = |index: usize| address(Self::NAMES[index]);",
        "        // SAFETY: the caller vouches for each address and its type.",
        "        unsafe {",
        "            Ok(Self {",
        *(f"                {name}: transmute::<Address, {name}>(at({index})?)," for index, name in enumerate(names)),
    ]
    lines += ["            })", "        }", "    }", "}"]
    return "\n".join(lines) + "\n"
