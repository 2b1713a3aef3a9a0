"""The part of the Rust generator that writes nn-ffi: a typed function a kernel, enums and statuses.

A kernel's function takes what `signature` says, in the header's order. Its body reads the tensors' shapes, solves the
sizes, checks the rest and makes the call; what it calls to do so is in `nn-ffi/src/call.rs`.
"""

from __future__ import annotations

import re

from nncuda.binding.agreement import Agreement, agreement, factors
from nncuda.binding.header import FIXED_DTYPES, Constant, Dim, Function, Header, Param, Section

from .rust_text import GENERATED, array_call, binding, call, comment, indented, mark
from .signature import Signature, Solve, signature

#: Enums of the header that are types of their own in Rust: the prefix of their constants, and the type.
ENUMS = {
    "NNCUDA_ROPE_": "RopeLayout",
    "NNCUDA_ACTIVATION_": "Activation",
    "NNCUDA_FORMAT_": "Format",
    "NNCUDA_TRANSPORT_": "Transport",
}
#: Names of the header that Rust has for itself.
_RESERVED = {"Self": "Alone"}
_SCALARS = {"int32_t": "i32", "int64_t": "i64", "float": "f32", "double": "f64"}
_TENSOR, _OPTIONAL = "&Tensor", "Option<&Tensor>"


def files(contract: Header) -> dict[str, str]:
    """The generated files by their path below `nn-ffi/src/`."""
    sections = [section for section in contract.sections if any(function.is_kernel for function in section.functions)]
    made = {
        "kernels/mod.rs": _kernels_module(sections),
        "generated/mod.rs": _generated_module(),
        "generated/options.rs": _options(contract),
        "generated/status.rs": _status(contract),
    }
    return made | {f"kernels/{section.name}.rs": _section(section) for section in sections}


# A function a kernel


def _kernels_module(sections: list[Section]) -> str:
    text = (
        "Every kernel as a function. Inputs and outputs are tensors, in the order of bindings.h; the sizes and strides "
        "follow from their shapes, which are checked against each other before anything runs, and only what no tensor "
        "tells is passed as a number.\n\n"
        "How a tensor's shape meets the one in the documentation: a shape of one dimension takes a dense tensor of any "
        "shape, flattened; leading dimensions beyond those of the documented shape are folded into the first, where "
        "the tensor is dense; and only where the shape reads `[rows:ld, ...]` may rows lie further apart than they are "
        "long. Tensors that have the same documented shape must have the same shape, and those that share a dimension "
        "must fold the same sizes into it: `add` refuses (2, 3) with (3, 2), although both have six elements. "
        "Outputs may be inputs where their line says so, and are written by the time the context is next "
        "synchronised. A call of sizes that are zero does nothing.\n\n"
        "Each function returns [`Error::Shape`](crate::Error::Shape) when shapes or dtypes disagree, and "
        "[`Error::Call`](crate::Error::Call) with the library's status and sentence when the library refuses."
    )
    names = sorted(section.name for section in sections)
    lines = [f"// {GENERATED}", "", *_unescaped(text, "//!"), "", *(f"mod {name};" for name in names), ""]
    return "\n".join(lines + [f"pub use {name}::*;" for name in names]) + "\n"


def _unescaped(text: str, prefix: str) -> list[str]:
    return comment(text, prefix, escaped=False)


def _section(section: Section) -> str:
    kernels = [function for function in section.functions if function.is_kernel]
    text = "\n".join(line for function in kernels for line in ("", *_documentation(function), *_function(function)))
    helpers = [
        name
        for name in ("Sizes", "named", "plus", "pointer", "tensor", "times")
        if re.search(rf"(?<![.\w]){name}(\(| {{)", text)
    ]
    names = sorted({*(name for name in (*ENUMS.values(), "DType") if name in text), "Tensor", "Result"})
    about = f"Kernels of the section {section.name} of bindings.h." + (f"\n\n{section.text}" if section.text else "")
    allow = []
    if any(len(signature(function).arguments) > 7 for function in kernels):
        allow = ["", '#![allow(clippy::too_many_arguments, reason = "the arguments are those of the C function")]']
    imports = [f"use crate::call::{{{', '.join(['Call', *helpers])}}};" if helpers else "use crate::call::Call;"]
    imports.append(f"use crate::{{{', '.join(names)}}};")
    return "\n".join([*mark(about), *allow, "", *imports]) + "\n" + text + "\n"


def _documentation(function: Function) -> list[str]:
    made = signature(function)
    lines = comment(function.summary, "///")
    whole = " ".join(function.doc.split())
    rest = whole[len(function.summary) :].strip() if whole.startswith(function.summary) else whole
    if rest:
        lines += ["///", *comment(rest, "///")]
    lines += ["///", "/// # Arguments", "///"]
    for param in made.arguments:
        item = comment(f"`{param.name}`: {_about(param)}", "///")
        lines += [item[0].replace("/// ", "/// - ", 1), *(line.replace("/// ", "///   ", 1) for line in item[1:])]
    lines += ["///", "/// # Errors", "///"]
    lines += _unescaped(
        "[`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.", "///"
    )
    return lines


def _about(param: Param) -> str:
    if param.kind != "pointer":
        return param.text
    dtype = param.dtype if param.dtype in FIXED_DTYPES else f"of `{param.dtype}`"
    how = {"in": "", "out": "; overwritten", "inout": "; read and overwritten", "acc": "; added to"}[param.direction]
    alias = f", may be {' or '.join(f'`{name}`' for name in param.alias)}" if param.alias else ""
    absent = " (optional)" if param.nullable and "null" not in param.text else ""
    return f"{dtype} `{param.shape_text}`, {param.text}{how}{alias}{absent}"


def _type(param: Param) -> str:
    if param.kind == "pointer":
        return _OPTIONAL if param.nullable else _TENSOR
    if param.kind == "size":
        return "usize"
    if param.kind == "flag":
        return "bool"
    if param.kind == "dtype":
        return "DType"
    return enum_of(param) or _SCALARS[param.ctype]


def enum_of(param: Param) -> str:
    return next(
        (name for prefix, name in ENUMS.items() if param.constants and param.constants[0].startswith(prefix)), ""
    )


def _function(function: Function) -> list[str]:
    made = signature(function)
    first = next(param for param in function.pointers if not param.nullable)
    parameters = [f"{param.name}: {_type(param)}" for param in made.arguments]
    body = [f'let call = Call::new("{function.name}", {first.name});']
    for param in function.pointers:
        body += _operand(param)
    body += _agreement(agreement(function))
    for solve in made.solves:
        body += _solve(solve)
    body += _checks(made)
    for name, tensors in made.dtypes.items():
        body += _dtype(name, tensors)
    for name, tensors in made.strides.items():
        rows = [f"{param.name}.rows()" for param in tensors]
        body += call(f"let {name} = call.stride", [f"&[{', '.join(rows)}]"], "?;", 4)
    body += _call(function)
    return [*call(f"pub fn {function.kernel}", parameters, " -> Result<()> {"), *indented(body), "}"]


def _operand(param: Param) -> list[str]:
    """A tensor, its shape folded to the header's number of dimensions."""
    rows = "strided" if param.ld else "dense"
    dtype = f".of(DType::{param.dtype.upper()})?" if param.dtype in FIXED_DTYPES else ""
    swapped = f".swapped({param.swap_flag})?" if param.swap_flag else ""
    read = f'call.{rows}::<{len(param.dims)}>("{param.name}", "{param.shape_text}", {param.name})?{dtype}{swapped}'
    if not param.nullable:
        return [f"let {param.name} = {read};"]
    return [
        f"let {param.name} = match {param.name} {{",
        f"    Some({param.name}) => Some({read}),",
        "    None => None,",
        "};",
    ]


def _agreement(rules: Agreement) -> list[str]:
    """What `agreement` says of shapes, before any size is known."""

    def named(params: tuple[Param, ...]) -> list[str]:
        return [f"named(&{param.name})" if param.nullable else f"Some({param.name}.named())" for param in params]

    lines = []
    for group in rules.same:
        lines += array_call("call.same", named(group), "?;", 4)
    for fold in rules.further_folds:
        text = fold.dim.text
        for inner in fold.inner:
            other = inner.param
            assert not other.nullable, f"{other.name} may be absent, and has {text}"
            unfolded = []
            for param in fold.tensors:
                if param != other:
                    check = f'.unfolded("{text}", "{other.name}")?;'
                    unfolded += (
                        [f"if let Some({param.name}) = &{param.name} {{", f"    {param.name}{check}", "}"]
                        if param.nullable
                        else [f"{param.name}{check}"]
                    )
            condition = {None: "", True: other.swap_flag, False: f"!{other.swap_flag}"}[inner.when]
            lines += [f"if {condition} {{", *indented(unfolded), "}"] if condition else unfolded
        if len(fold.tensors) > 1 and not any(inner.when is None for inner in fold.inner):
            lines += call("call.folds", [f'"{text}"', f"&[{', '.join(named(fold.tensors))}]"], "?;", 4)
    return lines


def _solve(solve: Solve) -> list[str]:
    dim, tensor = solve.dim, solve.param.name
    if (dim.names, dim.coefficient, dim.divisor, dim.offset) == ((solve.size,), 1, 1, 0):
        value = "{}.dims[" + str(solve.at) + "]"
    else:
        factor = _product(solve.others, dim.coefficient)
        value = f'{{}}.solve({solve.at}, "{solve.size}", {factor}, {dim.divisor}, {dim.offset})?'
    if not solve.param.nullable:
        return [f"let {solve.size} = {value.format(tensor)};"]
    # A size that matters to no other tensor must not be zero, which would make the call do nothing.
    found = value.format(tensor)
    return [f"let {solve.size} = match &{tensor} {{", f"    Some({tensor}) => {found},", "    None => 1,", "};"]


def _product(names: tuple[str, ...], coefficient: int) -> str:
    factors = [*names, *([str(coefficient)] if coefficient != 1 or not names else [])]
    return factors[0] if len(factors) == 1 else f"times(&[{', '.join(factors)}])"


def _value(dim: Dim) -> str:
    """A dimension as a Rust expression over sizes."""
    text = _product(dim.names, dim.coefficient)
    text += f" / {dim.divisor}" if dim.divisor != 1 else ""
    return f"plus({text}, {dim.offset})" if dim.offset else text


def _checks(made: Signature) -> list[str]:
    """Each tensor's shape against the sizes, where it has told not all of them itself."""
    function = made.function
    checked = list(dict.fromkeys(check.param for check in made.checks))
    folding = [param for param in function.pointers if factors(param) and not agreement(function).led(param)]
    if not checked and not folding:
        return []
    origin = {solve.size: f"from {solve.param.name}" for solve in made.solves}
    origin |= {param.name: "given" for param in made.arguments if param.kind == "size"}
    told = [f'("{name}", "{where}")' for name, where in origin.items()]
    lines = binding(f"const SIZES: [(&str, &str); {len(told)}]", "[", told, "];", 4)
    sizes = binding("let sizes", "Sizes { names: &SIZES, values: &[", origin, "] };", 4)
    if len(sizes) > 2:  # rustfmt gives each field a line of its own
        sizes = ["let sizes = Sizes {", "    names: &SIZES,", f"    values: &[{', '.join(origin)}],", "};"]
    lines += sizes
    for param in checked:
        wanted = f"[{', '.join(map(_value, param.dims))}]"
        expect = call(f"{param.name}.expect", [wanted, "sizes"], "?;", 4)
        if param.nullable:
            expect = [f"if let Some({param.name}) = &{param.name} {{", *indented(expect), "}"]
        lines += expect
    for param in folding:
        assert not param.nullable, f"{function.kernel}: {param.name} may be absent"
        lines += call(f"{param.name}.expect_factors", [f"&[{', '.join(factors(param))}]", "sizes"], "?;", 4)
    return lines


def _dtype(name: str, tensors: tuple[Param, ...]) -> list[str]:
    required = [param.name for param in tensors if not param.nullable]
    optional = [param.name for param in tensors if param.nullable]
    if not required:
        assert len(optional) == 1, f"several tensors that may all be absent tell {name}"
        (only,) = optional
        return [f"let {name} = {only}.as_ref().map_or(DType::F32, |{only}| {only}.dtype());"]
    first, *others = required
    lines = [f"let {name} = {first}.dtype();"]
    lines += [f'{other}.same({name}, "{first}")?;' for other in others]
    for other in optional:
        lines += [f"if let Some({other}) = &{other} {{", f'    {other}.same({name}, "{first}")?;', "}"]
    return lines


def _call(function: Function) -> list[str]:
    arguments = ["call.handle()", *(_argument(param) for param in function.params[1:])]
    head = f"(call.functions().{function.name})"
    lines = [
        "// SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which",
        "// the sizes and strides describe, as was checked above; everything else the library checks itself.",
    ]
    made = binding("let status", f"unsafe {{ {head}(", arguments, ") };", 4)
    if len(made) > 2:
        # rustfmt gives a block to what does not fit behind its opening.
        made = ["let status = unsafe {", *indented(call(head, arguments, "", 8)), "};"]
    tensors = [
        f"tensor(&{param.name})" if param.nullable else f"Some({param.name}.tensor)" for param in function.pointers
    ]
    return [*lines, *made, *binding("let tensors", "[", tensors, "];", 4), "call.finish(status, &tensors)"]


def _argument(param: Param) -> str:
    if param.kind == "pointer":
        pointer = f"pointer(&{param.name})" if param.nullable else f"{param.name}.pointer()"
        void = param.ctype.replace("const ", "") == "void *"
        return pointer if void else f"{pointer}.cast()"
    if param.kind == "size":
        return f"{param.name} as i64"
    if param.kind == "dtype":
        return f"{param.name}.code()"
    if param.kind == "flag":
        return f"i32::from({param.name})"
    return f"{param.name} as i32" if enum_of(param) else param.name


# Options and statuses


def _generated_module() -> str:
    lines = mark("What the header says beside the kernels' functions: enums, statuses, and the table of the kernels.")
    modules = ("pub(crate) mod catalogue;", "mod checked;", "pub(crate) mod options;", "pub(crate) mod status;")
    return "\n".join([*lines, "", *modules]) + "\n"


def _variant(constant: Constant, prefix: str) -> str:
    name = "".join(word.capitalize() for word in constant.name.removeprefix(prefix).split("_"))
    return _RESERVED.get(name, name)


def _options(contract: Header) -> str:
    lines = mark("Options that are one of a few.")
    for prefix, name in ENUMS.items():
        (enum,) = (enum for enum in contract.enums if enum.constants[0].name.startswith(prefix))
        lines += [
            "",
            *comment(enum.text, "///"),
            "#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]",
            "#[repr(i32)]",
            f"pub enum {name} {{",
        ]
        for index, constant in enumerate(enum.constants):
            text = constant.text or f"`{constant.name}`."
            lines += indented([*comment(text, "///"), *(["#[default]"] if index == 0 else [])])
            lines.append(f"    {_variant(constant, prefix)} = nn_cuda::{constant.name},")
        lines += [
            "}",
            "",
            f"impl {name} {{",
            "    /// The value of a number in the contract; `None` for one that is none.",
            "    #[must_use]",
            "    pub fn from_code(code: i32) -> Option<Self> {",
            "        match code {",
            *(
                f"            nn_cuda::{constant.name} => Some(Self::{_variant(constant, prefix)}),"
                for constant in enum.constants
            ),
            "            _ => None,",
            "        }",
            "    }",
            "}",
        ]
    return "\n".join(lines) + "\n"


def _status(contract: Header) -> str:
    (enum,) = (enum for enum in contract.enums if enum.constants[0].name == "NNCUDA_SUCCESS")
    constants = [constant for constant in enum.constants if constant.value]
    named = [(_variant(constant, "NNCUDA_ERROR_"), constant) for constant in constants]
    lines = [
        *mark("The codes that a call may end with."),
        "",
        "use core::fmt;",
        "",
        "/// Why a call failed, by the groups of bindings.h.",
        "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]",
        "#[non_exhaustive]",
        "pub enum Status {",
        *indented([line for name, constant in named for line in (*comment(constant.text, "///"), f"{name},")]),
        "    /// A code that a newer library has added.",
        "    Other(i32),",
        "}",
        "",
        "impl Status {",
        "    /// The status of a code; `None` for success.",
        "    #[must_use]",
        "    pub fn from_code(code: i32) -> Option<Self> {",
        "        Some(match code {",
        "            nn_cuda::NNCUDA_SUCCESS => return None,",
        *(f"            nn_cuda::{constant.name} => Self::{name}," for name, constant in named),
        "            other => Self::Other(other),",
        "        })",
        "    }",
        "",
        "    /// The code in the contract.",
        "    #[must_use]",
        "    pub fn code(self) -> i32 {",
        "        match self {",
        *(f"            Self::{name} => nn_cuda::{constant.name}," for name, constant in named),
        "            Self::Other(code) => code,",
        "        }",
        "    }",
        "",
        "    /// The code's name in bindings.h.",
        "    #[must_use]",
        "    pub fn name(self) -> &'static str {",
        "        match self {",
        *(f'            Self::{name} => "{constant.name}",' for name, constant in named),
        '            Self::Other(_) => "unknown status",',
        "        }",
        "    }",
        "}",
        "",
        "impl fmt::Display for Status {",
        "    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {",
        "        f.write_str(self.name())",
        "    }",
        "}",
    ]
    return "\n".join(lines) + "\n"
