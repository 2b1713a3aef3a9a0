"""A plugin of pytest for llama.cpp's own server tests: `pytest -p external` asks a server that runs already.

What the tests call by names without /v1 is asked by its names in OpenAI's API. Nothing is downloaded.
"""

from __future__ import annotations

import sys
import types

import pytest

#: llama.cpp has these with and without /v1.
ROUTES = ("/chat/completions", "/completions", "/embeddings", "/responses", "/models")

# It loads models by this, which an external server has.
sys.modules.setdefault("wget", types.ModuleType("wget"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems() -> None:
    """Once their module is there, has its addresses changed."""
    process = sys.modules["utils"].ServerProcess
    plain = process.make_url

    def make_url(self: object, path: str, host: str | None = None) -> str:
        return str(plain(self, f"/v1{path}" if path in ROUTES else path, host))

    process.make_url = make_url
