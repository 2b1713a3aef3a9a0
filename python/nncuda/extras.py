"""The parts of the package that need more than it is installed with: the extras of pyproject.toml."""

from __future__ import annotations

import importlib.util

PACKAGES = {
    "plot": ("matplotlib",),
    "tensorboard": ("tensorboardX",),
    "eval": ("lm_eval",),
    "serve": ("starlette", "uvicorn", "prometheus_client", "llguidance"),
}


class ExtraMissing(ImportError):
    """What an extra installs is not there; the text names the extra."""


def left_out(extra: str, what: str) -> str | None:
    """Why `what` is left out and how to have it, when a package of an extra is not installed; None when all are."""
    package = next((name for name in PACKAGES[extra] if importlib.util.find_spec(name) is None), None)
    if package is None:
        return None
    return f"{what}: left out without {package}, which `pip install 'nncuda[{extra}]'` or `pip install {package}` adds"
