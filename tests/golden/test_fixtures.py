"""The fixtures themselves: made by the generator to the byte, complete, small, and able to fail."""

from dataclasses import replace
from pathlib import Path

import generate
import numpy as np
import pytest

from nncuda.binding import header
from nncuda.formats.safetensors import write_safetensors
from nncuda.golden import FixtureError, Runner, find_folder, read_folder
from nncuda.golden.fixtures import read_file

HERE = Path(__file__).resolve().parent
LARGEST_FOLDER = (
    11_900_000  # factors of two blocks of 128 in 8 bits, pages of 128 rows, formats side by side and backward
)


def test_generated_to_the_byte(capsys):
    assert generate.main(["--check"]) == 0, capsys.readouterr().out


def test_every_kernel_and_dtype_has_cases():
    covered: dict[str, set[str]] = {}
    for fixture in read_folder(HERE):
        for param in header.parse().kernels[fixture.kernel].of_kind("dtype"):
            covered.setdefault(fixture.kernel, set()).add(f"{param.name}={fixture.scalars[param.name]}")
        covered.setdefault(fixture.kernel, set())
    kernels = header.parse().kernels
    assert covered.keys() == kernels.keys()
    for name, function in kernels.items():
        for param in function.of_kind("dtype"):
            for dtype in (d for d in param.dtypes if d in header.VALUE_DTYPES):
                assert f"{param.name}={dtype}" in covered[name], f"{name}: no case with {param.name} {dtype}"


def test_families_are_the_sections_of_the_header():
    for fixture in read_folder(HERE):
        assert header.parse().kernels[fixture.kernel].section == fixture.family


def test_folder_is_small():
    assert sum(file.stat().st_size for file in HERE.glob("*/*.safetensors")) < LARGEST_FOLDER


def first(kernel, name):
    return next(fixture for fixture in read_folder(HERE, [kernel]) if fixture.name == name)


@pytest.fixture(scope="module")
def runner():
    with Runner() as found:
        yield found


def problems(runner, fixture):
    return [outcome.problem for outcome in runner.run(fixture) if outcome.problem]


def test_a_wrong_expectation_fails(runner):
    """One element off by three tolerances must not pass."""
    fixture = first("rmsnorm", "f32.rows3-cols7")
    assert problems(runner, fixture) == []
    wrong = fixture.outputs["y"].copy()
    wrong[1, 2] += 3 * fixture.tolerance["y"]
    found = problems(runner, replace(fixture, outputs={**fixture.outputs, "y": wrong}))
    assert found and "element 9" in found[0]


@pytest.mark.parametrize(("expected", "message"), [(np.nan, "nan"), (np.inf, "inf"), (0.0, "expected 0")])
def test_a_special_value_must_match(runner, expected, message):
    fixture = first("silu", "f32.n17")
    wrong = fixture.outputs["y"].copy()
    wrong[5] = expected
    loose = replace(fixture, outputs={"y": wrong}, tolerance={"y": 1e30}, zeros=["y"])
    assert any(message in problem for problem in problems(runner, loose))


def test_an_unwritten_output_fails(runner):
    """A skipped update leaves param_copy as it was: expecting a value there must fail."""
    fixture = first("adamw_step", "f32.skipped")
    assert problems(runner, fixture) == []
    expected = fixture.outputs["param"].reshape(-1)
    assert problems(runner, replace(fixture, outputs={**fixture.outputs, "param_copy": expected}))


def test_a_write_outside_the_buffer_fails(runner):
    """An output buffer one element short: the kernel's last element lands on the guard."""
    fixture = first("fill", "f32.n15")
    short = replace(fixture, outputs={"y": fixture.outputs["y"][:-1]})
    assert any("bytes outside y" in problem for problem in problems(runner, short))


class WritesItsInput:
    """The library, with a silu that leaves its result in x as well."""

    def __init__(self, runner):
        self._lib, self._ffi = runner.lib, runner.ffi

    def __getattr__(self, name):
        return getattr(self._lib, name)

    def cuda_silu(self, ctx, x, y, n, dtype):
        self._lib.cuda_silu(ctx, x, y, n, dtype)
        return self._lib.cuda_silu(ctx, x, self._ffi.cast("void *", x), n, dtype)


def test_a_written_input_fails():
    with Runner() as runner:
        runner.lib = WritesItsInput(runner)
        assert "the input x was written" in problems(runner, first("silu", "f32.n17"))


def test_a_failing_call_is_told(runner):
    fixture = first("embedding", "f32.ends")
    ids = np.array([0, 9, 0, 0, 0], np.int32)
    found = problems(runner, replace(fixture, inputs={**fixture.inputs, "ids": ids}))
    assert found and "ids[1]" in found[0]


def test_bad_files_are_refused(tmp_path):
    folder = tmp_path / "elementwise"
    folder.mkdir()
    path = folder / "silu.safetensors"
    with pytest.raises(FixtureError, match="no fixtures"):
        find_folder(tmp_path)
    write_safetensors(path, {"a/in/x": np.zeros(1, np.float32)}, {"a": "{}"})
    with pytest.raises(FixtureError, match="no list of cases"):
        read_file(path)
    write_safetensors(path, {"a/in/x": np.zeros(1, np.float32)}, {"cases": '{"a": {}}'})
    with pytest.raises(FixtureError, match="metadata of case 'a'"):
        read_file(path)
    write_safetensors(
        path, {"b/in/x": np.zeros(1, np.float32)}, {"cases": '{"a": {"scalars": {}, "tolerance": {}, "zeros": []}}'}
    )
    with pytest.raises(FixtureError, match="b/in/x"):
        read_file(path)
    write_safetensors(
        path,
        {"a/in/x": np.zeros(1, np.float32)},
        {"cases": '{"a": {"scalars": {}, "tolerance": {"y": -1}, "zeros": []}}'},
    )
    with pytest.raises(FixtureError, match="negative"):
        read_file(path)
    assert find_folder(tmp_path) == tmp_path
    with pytest.raises(FixtureError, match="no_such_kernel"):
        list(read_folder(tmp_path, ["no_such_kernel"]))
