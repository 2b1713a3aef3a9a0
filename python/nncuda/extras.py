"""The parts of the package that need more than it is installed with: the extras of pyproject.toml."""

from __future__ import annotations

import importlib.util

PACKAGES = {"plot": "matplotlib", "tensorboard": "tensorboardX", "serve": "uvicorn"}


class ExtraMissing(ImportError):
    """What an extra installs is not there; the text names the extra."""


def left_out(extra: str, what: str) -> str | None:
    """Why `what` is left out and how to have it, when the package of an extra is not installed; None when it is."""
    package = PACKAGES[extra]
    if importlib.util.find_spec(package) is not None:
        return None
    return f"{what}: left out without {package}, which `pip install 'nncuda[{extra}]'` or `pip install {package}` adds"
