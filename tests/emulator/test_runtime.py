"""The rules of CUDA's runtime that the emulator keeps: errors, limits, capture."""

import pytest

PROGRAM = "programs/runtime.cu"


def test_rules_of_an_older_architecture(emulator):
    done = emulator.run(PROGRAM, "rules", arch=70, memory=1 << 20)
    assert (done.stdout, done.stderr) == ("ok\n", "")


@pytest.mark.parametrize("streams", ["prompt", "late"])
def test_rules_however_streams_run(emulator, streams):
    done = emulator.run(PROGRAM, "rules", memory=1 << 20, streams=streams)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_late_streams(emulator):
    done = emulator.run(PROGRAM, "late", streams="late")
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
