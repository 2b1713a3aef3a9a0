"""The ids that transformers gives for texts, by the tokenizer that AutoTokenizer finds in our checkpoints. Records
them."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from pathlib import Path

import mixtral_tokenizers
import pytest
from mixtral_cases import CONFIG
from test_mixtral_tokens import RECORDED, check

import nncuda
from nncuda.models import MoETransformer

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs transformers", allow_module_level=True)

import transformers


def test_record_transformers(tmp_path: Path) -> None:
    record = {"transformers": transformers.__version__, "texts": mixtral_tokenizers.TEXTS, "kinds": {}}
    for kind in mixtral_tokenizers.KINDS:
        ours = mixtral_tokenizers.make(kind)
        config = dataclasses.replace(CONFIG, vocab_size=ours.vocab_size)
        MoETransformer(nncuda.Context("cpu"), config, seed=1).save(tmp_path / kind, ours)
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / kind)
        generation = transformers.GenerationConfig.from_pretrained(tmp_path / kind)
        record["kinds"][kind] = {
            "model": base64.b64encode(ours.model).decode(),
            "described": json.loads((tmp_path / kind / "tokenizer_config.json").read_text()),
            "ids": [theirs(text)["input_ids"] for text in mixtral_tokenizers.TEXTS],
            "special": [theirs.bos_token_id, theirs.eos_token_id, theirs.unk_token_id, theirs.pad_token_id],
            "ends": [generation.bos_token_id, generation.eos_token_id, generation.pad_token_id],
        }
        for ids, text in zip(record["kinds"][kind]["ids"], mixtral_tokenizers.TEXTS, strict=True):
            assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids), text
        check(record, kind, tmp_path / f"{kind}-again")
    RECORDED.write_text(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
