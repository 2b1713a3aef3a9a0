"""The closing line of the golden tests: how much of a tolerance the worst output used, on each instruction set."""

import pytest

SHARES = pytest.StashKey[dict[str, tuple[float, str]]]()


@pytest.fixture(scope="session")
def shares(request) -> dict[str, tuple[float, str]]:
    """By instruction set: the largest part of a tolerance that was used, and the kernel that used it."""
    return request.config.stash.setdefault(SHARES, {})


def pytest_terminal_summary(terminalreporter, config):
    for isa, (share, kernel) in config.stash.get(SHARES, {}).items():
        terminalreporter.write_line(f"golden fixtures, {isa}: at most {share:.0%} of a tolerance was used ({kernel})")
