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
import numpy as np
import pytest
from scripted_model import write_scripted
from servers import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, SHAPE, Served, served
from tool_scripts import CONTROLS, SCRIPTS, TEMPLATES

from nncuda.bench.random_model import write_folder

CLIENTS = languages.ROOT / "tests" / "interop" / "clients"

pytestmark = pytest.mark.skipif(os.environ.get("NNCUDA_INTEROP") != "live", reason="make interop runs it")


@pytest.fixture(scope="module", params=languages.SERVING)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("clients") / "model"
    write_folder(folder, SHAPE)
    with served(request.param, folder, "--threads", 1) as found:
        yield found


@pytest.fixture(scope="module")
def caller(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server in the same language, of a model that calls tools."""
    folder = tmp_path_factory.mktemp("clients") / "caller"
    write_scripted(folder, SCRIPTS["hermes"], TEMPLATES["hermes"], CONTROLS["hermes"])
    with served(server.language, folder, "--threads", 1) as found:
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
def test_what_a_client_finds(server: Served, caller: Served, client: list[str | Path]) -> None:
    line = [*client, *(f"http://127.0.0.1:{one.port}/v1" for one in (server, caller))]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found, wanted = json.loads(done.stdout), expected(server)
    if "async-openai" not in str(client[0]):  # which is not asked for these
        wanted |= expected_further(server, caller)
        found["embeddings"] = [np.array(one, np.float32).tolist() for one in found["embeddings"]]
    assert found == wanted


def post(server: Served, path: str, **fields: object) -> tuple[int, dict[str, Any]]:
    status, body = server.post((path, fields))
    return status, json.loads(body)


def refused(server: Served, path: str, **fields: object) -> list[Any]:
    status, body = post(server, path, **fields)
    return [status, body["error"]["param"], body["error"]["code"]]


def expected_further(server: Served, caller: Served) -> dict[str, Any]:
    """Vectors, and what comes of tools."""
    inputs = {"model": "small", "input": ["the sea", "a ship sails the wide sea"]}
    _, vectors = post(server, EMBEDDINGS, **inputs)
    embeddings = [np.array(one["embedding"], np.float32).tolist() for one in vectors["data"]]
    place = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    tools = [{"type": "function", "name": name, "parameters": parameters, "strict": False}
             for name, parameters in (("sail", place), ("stop", {"type": "object"}))]  # fmt: skip
    question: list[Any] = [{"role": "user", "content": "<two>"}]
    asked = {"model": "small", "tools": tools, "temperature": 0}
    _, whole = post(caller, RESPONSES, **asked, input=question)
    calls = [item for item in whole["output"] if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": item["call_id"], "output": "done"} for item in calls]
    talk = [*question, *whole["output"], *results, {"role": "user", "content": "<none>"}]
    _, after = post(caller, RESPONSES, **asked, input=talk)
    assert len(calls) == 2
    return {
        "embeddings": [embeddings, embeddings],
        "embedded": [vectors["usage"]["total_tokens"]] * 2,
        "called": [
            [item["name"], item["arguments"]] if item in calls else item["content"][0]["text"]
            for item in whole["output"]
        ],
        "called_stream": [
            [item["arguments"] for item in calls], len(whole["output"]), whole["usage"]["total_tokens"],
        ],
        "after_calls": [after["output"][0]["content"][0]["text"], after["usage"]["input_tokens"]],
        "refused_further": [
            refused(server, EMBEDDINGS, **inputs, dimensions=3),
            refused(caller, RESPONSES, model="small", input="x", tools=[{"type": "web_search"}]),
        ],
    }  # fmt: skip


def expected(server: Served) -> dict[str, Any]:
    """The same from the bodies as they are; a stream says what the whole answer does."""
    completion = {"model": "small", "prompt": "the sea", "max_tokens": 12, "temperature": 0.8, "seed": 3}
    messages = [{"role": "system", "content": "sail"}, {"role": "user", "content": "the wide sea"}]
    chat = {"model": "small", "messages": messages, "max_completion_tokens": 10, "temperature": 0.9, "seed": 5}
    _, whole = post(server, COMPLETIONS, **completion, n=2, logprobs=1)
    _, answer = post(server, CHAT, **chat, logprobs=True, top_logprobs=2)
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
            refused(server, COMPLETIONS, **{**completion, "temperature": 5}),
            refused(server, CHAT, **{**chat, "messages": []}),
            refused(server, CHAT, **{**chat, "model": "other"}),
        ],
    }
