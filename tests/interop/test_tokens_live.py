"""The ids that llama.cpp gives for texts, with tokenizers that we wrote into GGUF files. Records them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import token_cases

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("needs llama-cpp-python: make interop", allow_module_level=True)
llama_cpp = pytest.importorskip("llama_cpp")

RECORDED = Path(__file__).parent / "recorded" / "tokens_by_llama_cpp.json"
CUTS = RECORDED.with_name("cuts_by_llama_cpp.json")


def test_record_llama_cpp(tmp_path: Path) -> None:
    cases = {}
    for kind in token_cases.KINDS:
        token_cases.make_folder(tmp_path / kind, kind)
        values = token_cases.metadata(tmp_path / kind)
        path = tmp_path / f"{kind}.gguf"
        token_cases.write(path, values)
        model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
        ids = {
            name: [model.tokenize(text.encode(), add_bos=False, special=special) for text in token_cases.TEXTS]
            for name, special in (("text", False), ("special", True))
        }
        plain = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in values.items()}
        cases[kind] = {"metadata": plain, **ids}
        assert model.n_vocab() == len(values["tokenizer.ggml.tokens"])
    record = {"llama_cpp": llama_cpp.__version__, "texts": token_cases.TEXTS, "kinds": cases}
    RECORDED.write_text(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def test_record_cuts(tmp_path: Path) -> None:
    ids = {}
    for name in token_cases.CUT_CASES["cuts"]:
        path = tmp_path / f"{name}.gguf"
        token_cases.write(path, token_cases.cut_metadata(name))
        model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
        texts = token_cases.CUT_CASES["texts"]
        ids[name] = [model.tokenize(text.encode(), add_bos=False, special=True) for text in texts]
    record = {"llama_cpp": llama_cpp.__version__, "ids": ids}
    CUTS.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="ascii")
