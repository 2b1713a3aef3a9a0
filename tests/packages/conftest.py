"""The tools that packages are made and used with."""

from __future__ import annotations

import os
import shutil

import pytest

#: Set to "required" by `make packages`: a tool that is missing is then a failure, else a reason to skip.
ENVIRONMENT_VARIABLE = "NNCUDA_PACKAGES"


def tool(name: str) -> str:
    """The path of a program."""
    found = shutil.which(name)
    if found is None:
        message = f"needs {name}, which is not installed"
        if os.environ.get(ENVIRONMENT_VARIABLE) == "required":
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.fixture(scope="session")
def cargo() -> str:
    return tool("cargo")


@pytest.fixture(scope="session")
def go() -> str:
    return tool("go")


@pytest.fixture(scope="session")
def git() -> str:
    return tool("git")
