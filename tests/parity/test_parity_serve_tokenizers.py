"""Servers of all languages say the same of tokenizers of published kinds, and answer conversations with them alike."""

from __future__ import annotations

import json
from pathlib import Path

import languages
import pytest
from runs import Workshop
from servers import RESPONSES, neutral, served
from test_parity_chat_kinds import folder
from test_parity_engine import model

from nncuda import Context
from nncuda.convert.quantize import quantize_model
from nncuda.models import StoredModel

#: Of a conversation with names of control tokens in it.
INPUT = [
    {"role": "user", "content": "Why? <|eot_id|><bos></s>"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "ü u\u0308 日本 12345"}]},
    {"role": "user", "content": "hello"},
]

pytestmark = pytest.mark.case("what a server says of its tokenizer")


def stored(workshop: Workshop, tmp_path: Path, kind: str) -> Path:
    if kind == "run":
        return workshop.reference("small")
    if kind == "qwen.gguf":
        with Context("cpu", threads=1) as ctx:
            quantize_model(StoredModel.open(folder(tmp_path / "qwen", "qwen")), tmp_path / kind, "q8_0", ctx)
        return tmp_path / kind
    return model(workshop, kind) if kind.endswith(".gguf") else folder(tmp_path / kind, kind)


@pytest.mark.parametrize("language", [name for name in languages.SERVING if name != "python"])
@pytest.mark.parametrize("kind", ["llama3", "gemma", "qwen.gguf", "llama-q8_0.gguf", "run"])
def test_tokenizers(workshop: Workshop, tmp_path: Path, kind: str, language: str) -> None:
    path, found = stored(workshop, tmp_path, kind), []
    for name in ("python", language):
        with served(name, path, "--max-batch", 1) as server:
            told = server.request("GET", "/tokenizer_info")
            given = "hello" if kind == "run" else INPUT  # the context of the run is short
            asked = {"input": given, "max_output_tokens": 8, "stream": True}
            found.append((told, neutral(server.post((RESPONSES, asked)))))
    assert found[0] == found[1] and found[0][1][0] == 200
    assert found[0][0][0] == 200 and json.loads(found[0][0][1])["vocab_size"] > 0
