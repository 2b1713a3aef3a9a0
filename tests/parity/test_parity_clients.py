"""Clients that others wrote, for Node, Go and Rust, on the servers of three languages: each finds what the bodies say.

`make interop` installs the clients, at the versions of their lock files, and runs this with NNCUDA_INTEROP=live.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import languages
import pytest
from servers import CHAT, COMPLETIONS, SHAPE, Served, served

from nncuda.bench.random_model import write_folder

CLIENTS = languages.ROOT / "tests" / "interop" / "clients"

pytestmark = pytest.mark.skipif(os.environ.get("NNCUDA_INTEROP") != "live", reason="make interop runs it")


@pytest.fixture(scope="module", params=languages.SERVING)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("clients") / "model"
    write_folder(folder, SHAPE)
    with served(request.param, folder, "--threads", 1) as found:
        yield found


@pytest.fixture(scope="module", params=["openai-node", "openai-go", "async-openai"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    """The command of a client, installed from its lock file."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "openai-go":
        subprocess.run(["go", "build", "-o", folder / "client", "."], cwd=CLIENTS / "go", check=True)
        return [folder / "client"]
    if request.param == "async-openai":
        build = ["cargo", "build", "--locked", "--quiet", "--target-dir", folder]
        subprocess.run(build, cwd=CLIENTS / "rust", check=True)
        return [folder / "debug" / "client"]
    shutil.copytree(CLIENTS / "node", folder, dirs_exist_ok=True)
    install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(install, cwd=folder, check=True)
    return ["node", folder / "client.mjs"]


@pytest.mark.case("clients of OpenAI's API for Node, Go and Rust (make interop)")
def test_what_a_client_finds(server: Served, client: list[str | Path]) -> None:
    line = [*client, f"http://127.0.0.1:{server.port}/v1"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected(server)


def expected(server: Served) -> dict[str, Any]:
    """The same from the bodies as they are; a stream says what the whole answer does."""

    def post(path: str, **fields: object) -> tuple[int, dict[str, Any]]:
        status, body = server.post((path, fields))
        return status, json.loads(body)

    def refusal(path: str, **fields: object) -> list[Any]:
        status, body = post(path, **fields)
        return [status, body["error"]["param"], body["error"]["code"]]

    completion = {"model": "small", "prompt": "the sea", "max_tokens": 12, "temperature": 0.8, "seed": 3}
    messages = [{"role": "system", "content": "sail"}, {"role": "user", "content": "the wide sea"}]
    chat = {"model": "small", "messages": messages, "max_completion_tokens": 10, "temperature": 0.9, "seed": 5}
    _, whole = post(COMPLETIONS, **completion, n=2, logprobs=1)
    _, answer = post(CHAT, **chat, logprobs=True, top_logprobs=2)
    choice = answer["choices"][0]
    said = [choice["message"]["content"], choice["finish_reason"]]
    return {
        "models": ["small"],
        "model": "nncuda",
        "completion": [[one["text"], one["finish_reason"]] for one in whole["choices"]],
        "logprobs": whole["choices"][0]["logprobs"]["token_logprobs"],
        "usage": [whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]],
        "completion_stream": whole["choices"][0]["text"],
        "chat": said,
        "top": [one["logprob"] for one in choice["logprobs"]["content"][0]["top_logprobs"]],
        "chat_stream": [*said, answer["usage"]["total_tokens"]],
        "refused": [
            refusal(COMPLETIONS, **{**completion, "temperature": 5}),
            refusal(CHAT, **{**chat, "messages": []}),
            refusal(CHAT, **{**chat, "model": "other"}),
        ],
    }
