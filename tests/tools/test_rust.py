"""The Rust that is made from the header, laid out for rustfmt without rustfmt."""

import hashlib
import re
from pathlib import Path

import pytest

from nncuda.binding import header
from tools import rust, rust_text

ROOT = Path(__file__).parents[2]
CONTRACT = header.parse(ROOT / "bindings.h")


@pytest.fixture(scope="module")
def made():
    return rust.files(CONTRACT, (ROOT / "bindings.h").read_bytes())


def test_the_digest_is_that_of_the_header(made):
    digest = hashlib.sha256((ROOT / "bindings.h").read_bytes()).hexdigest()
    assert f'HEADER_SHA256: &str = "{digest}"' in made["rust/nn-cuda/src/bindings/mod.rs"]


def test_every_function_has_a_type_a_place_and_every_kernel_a_function(made):
    table, types = made["rust/nn-cuda/src/bindings/table.rs"], made["rust/nn-cuda/src/bindings/functions.rs"]
    kernels = "".join(text for name, text in made.items() if "/kernels/" in name)
    for name, function in CONTRACT.functions.items():
        assert f"pub type {name} =" in types
        assert f"pub {name}: functions::{name}," in table
        if function.is_kernel:
            assert len(re.findall(rf"pub fn {function.kernel}\(", kernels)) == 1
            assert f"(call.functions().{name})" in kernels


@pytest.mark.parametrize(
    ("ctype", "wanted"),
    [
        ("int64_t", "i64"),
        ("void *", "*mut c_void"),
        ("const float *", "*const f32"),
        ("void **", "*mut *mut c_void"),
        ("nncuda_graph **", "*mut *mut nncuda_graph"),
        ("const char *", "*const c_char"),
    ],
)
def test_types(ctype, wanted):
    assert rust.rust_type(ctype) == wanted


def test_lines_are_short_enough(made):
    for name, text in made.items():
        code = [line for line in text.splitlines() if not line.lstrip().startswith("//")]
        assert max(map(len, code)) <= rust_text.WIDTH, name


def test_a_call_that_does_not_fit_has_an_argument_a_line():
    assert rust_text.call("f", ["a", "b"], ";") == ["f(a, b);"]
    long = ["a" * 60, "b" * 60]
    assert rust_text.call("f", long, ";") == ["f(", f"    {long[0]},", f"    {long[1]},", ");"]
    assert len(rust_text.call("f", ["a" * 110], ";", depth=0)) == 1
    assert len(rust_text.call("f", ["a" * 110], ";", depth=8)) == 3


def test_a_right_side_that_does_not_fit_goes_below():
    assert rust_text.binding("let a", "[", ["b"], "];") == ["let a = [b];"]
    assert rust_text.binding("x" * 30, "[", ["b" * 100], "];") == ["x" * 30 + " =", "    [" + "b" * 100 + "];"]
    assert rust_text.binding("x" * 30, "[", ["b" * 118], "];") == ["x" * 30 + " = [", "    " + "b" * 118 + ",", "];"]


def test_markup_is_escaped_outside_of_backticks():
    assert rust_text.markdown("y = a * x[i] <b> `a[i] * b`") == r"y = a \* x\[i\] \<b\> `a[i] * b`"
