"""A server of a model and its adapters: requests choose by their model, and each gets what it gets alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from small_models import llama_config, write_adapter
from small_server import serving

from nncuda.cli import main
from nncuda.models.adapter import Adapter
from nncuda.tokenizer import Tokenizer

CHOSEN = {"sea": ("self_attn.q_proj", "self_attn.v_proj"), "a/ship": ("mlp.down_proj", "mlp.gate_proj")}


def test_requests_choose_by_model(tokenizer: Tokenizer, tmp_path: Path) -> None:
    config, adapters = llama_config(vocab_size=280), {}
    for seed, (name, targets) in enumerate(CHOSEN.items()):
        write_adapter(tmp_path / str(seed), config, targets, seed)
        adapters[name] = Adapter.open(tmp_path / str(seed), config)
    with serving(tokenizer, adapters=adapters) as (running, _):
        status, listed = running.get("/v1/models")
        assert status == 200 and [(one["id"], one.get("parent")) for one in listed["data"]] == [
            ("small", None), ("sea", "small"), ("a/ship", "small")
        ]  # fmt: skip
        assert running.get("/v1/models/a/ship")[1] == listed["data"][2]

        def text(name: str | None) -> tuple[str, str]:
            body = {"prompt": "the sea", "max_tokens": 20, "temperature": 0, "ignore_eos": True}
            status, found = running.post("/v1/completions", body if name is None else {**body, "model": name})
            assert status == 200
            return found["model"], found["choices"][0]["text"]

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(text, [None, "sea", "small", "a/ship"]))
        wanted = {name: running.model.complete("the sea", 20, end_ids=(), adapter=name) for name in (None, *CHOSEN)}
        assert found == [("small", wanted[None]), ("sea", wanted["sea"]), ("small", wanted[None]),
                         ("a/ship", wanted["a/ship"])]  # fmt: skip
        assert len(set(wanted.values())) == 3

        messages = [{"role": "user", "content": "the sea"}]
        answer = "".join(running.model.chat(messages, 8, end_ids=(), adapter="sea"))
        _, chat = running.post("/v1/chat/completions", {"model": "sea", "messages": messages, "max_tokens": 8,
                                                        "temperature": 0, "ignore_eos": True})  # fmt: skip
        assert chat["model"] == "sea" and chat["choices"][0]["message"]["content"] == answer
        _, response = running.post("/v1/responses", {"model": "sea", "input": "the sea", "max_output_tokens": 8,
                                                     "temperature": 0, "ignore_eos": True})  # fmt: skip
        assert response["model"] == "sea" and response["output"][0]["content"][0]["text"] == answer
        _, vectors = running.post("/v1/embeddings", {"model": "sea", "input": "the sea"})
        assert vectors["model"] == "sea"
        vector = np.array(vectors["data"][0]["embedding"], np.float32)
        np.testing.assert_array_equal(vector, running.model.embed("the sea", adapter="sea"))
        assert running.post("/tokenize", {"model": "a/ship", "prompt": "the sea"})[0] == 200

        for path, body in (("/v1/completions", {"prompt": "x"}), ("/tokenize", {"prompt": "x"})):
            status, refused = running.post(path, {**body, "model": "ship"})
            assert status == 404 and refused["error"]["code"] == "model_not_found"
            assert refused["error"]["message"] == "there is no model ship; this server has small, sea, a/ship"
        assert running.request("GET", "/v1/models/ship")[0] == 404


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--adapter", "nothing"], "'nothing' is not NAME=PATH"),
        (["--adapter", "=."], "'=.' is not NAME=PATH"),
        (["--adapter", "a=nowhere"], "'nowhere' does not exist"),
        (["--adapter", "a=.", "--adapter", "a=."], "'a' is the name of two adapters"),
        (["--adapter", "m=.", "--model-name", "m"], "--adapter m has the name of the model"),
    ],
)
def test_options_that_are_refused(options: list[str], problem: str) -> None:
    done = CliRunner().invoke(main, ["serve", ".", *options])
    assert done.exit_code == 2 and problem in done.output
