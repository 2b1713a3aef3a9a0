"""Shuffles, votes, matches and products of a warp, in every order of threads."""

import pytest


@pytest.mark.parametrize("order", ["forward", "backward", "shuffle:7"])
def test_definitions(emulator, order):
    done = emulator.run("programs/warp.cu", order=order)
    assert (done.stdout, done.stderr) == ("ok\n", "")
