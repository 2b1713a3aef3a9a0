"""The rules of CUDA's runtime that the emulator keeps: errors, limits, capture."""

import pytest

PROGRAM = "programs/runtime.cu"


@pytest.mark.parametrize("arch", [70, 90])
def test_rules(emulator, arch):
    done = emulator.run(PROGRAM, "rules", arch=arch, memory=1 << 20)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_no_device(emulator):
    done = emulator.run(PROGRAM, "no device", devices=0)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_too_many_argument_bytes(emulator):
    assert "takes 4097 bytes of arguments, more than 4096" in emulator.run(PROGRAM, "too large").stderr


def test_memory_of_another_device(emulator):
    done = emulator.run(PROGRAM, "two devices", devices=2)
    assert "kernel add(int*, int)" in done.stderr
    assert "byte 0 of an allocation of 128 bytes" in done.stderr
