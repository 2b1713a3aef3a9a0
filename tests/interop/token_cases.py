"""Tokenizers of each kind that GGUF files have, trained on made-up text, and the texts that they are compared on."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from nncuda.bench import random_tokenizer
from nncuda.formats.gguf_writer import write_gguf
from nncuda.tokenizer import train_tokenizer
from nncuda.tokenizer.cuts import CUTS
from nncuda.tokenizer.folder import tokenizer_from_folder
from nncuda.tokenizer.to_gguf import tokenizer_metadata

TEXTS = (
    "Hello world",
    "  two  spaces\n\n\tline \r\n end  ",
    "日本語 ünï 🙂 x",
    "",
    " a",
    "x",
    "don't WE'LL it's I'M",
    "1234567 12 3a 4.5",
    "<|end|>hi</s><s>",
    "<user>hi",
    "a\u00a0b\u3000c …—“q”",
    random_tokenizer.text(300),
    "\n\n\n",
    "   ",
)
BYTE_LEVEL = ("gpt-2", "llama-bpe", "smollm")
KINDS = (*BYTE_LEVEL, "sentencepiece", "unigram")

# What a GGUF file of this architecture needs beside its tokenizer, for other programs to open it.
_MODEL = {
    "general.architecture": "llama",
    "llama.context_length": 512,
    "llama.embedding_length": 64,
    "llama.block_count": 1,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


def make_folder(folder: Path, kind: str) -> None:
    """A folder with a tokenizer of about 500 tokens, as Hugging Face keeps them."""
    folder.mkdir()
    learned = random_tokenizer.text(20000) + " We're it's I'll 1234 56 789 don't CAN'T\n\n  x  y\t z\r\n 日本語 ünï"
    lines = [learned[at : at + 500] for at in range(0, len(learned), 500)]
    if kind == "sentencepiece":
        (folder / "tokenizer.model").write_bytes(random_tokenizer.sentencepiece_model(500))
        return
    if kind == "unigram":
        (folder / "tokenizer.model").write_bytes(train_tokenizer(lines, vocab_size=600))
        return
    tokenizer = Tokenizer(models.BPE(ignore_merges=CUTS[kind].whole_words))
    # As published models of these kinds have it: the expression of GPT-2 is what ByteLevel cuts by when it is let.
    steps: dict[str, list[Any]] = {
        "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "smollm": [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ],
        "llama-bpe": [
            pre_tokenizers.Split(Regex(CUTS["llama-bpe"].expressions[0]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ],
    }
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps[kind])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>", "<|end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_tokens(["<user>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))


def metadata(folder: Path) -> dict[str, Any]:
    """The metadata of a GGUF file with the tokenizer of a folder, for a model with three more tokens."""
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer is not None
    return _MODEL | tokenizer_metadata(folder, tokenizer.vocab_size + 3)


def write(path: Path, values: dict[str, Any]) -> None:
    """A GGUF file without tensors."""
    with write_gguf(path, values, []):
        pass


#: The ways to cut by their names, with merges over all places where they differ (tests/tokenizer).
CUT_CASES = json.loads((Path(__file__).parents[1] / "tokenizer" / "cuts" / "cases.json").read_text(encoding="ascii"))


def cut_metadata(name: str) -> dict[str, Any]:
    """The metadata of a GGUF file that cuts text by a name."""
    values = _MODEL | CUT_CASES["metadata"] | {"tokenizer.ggml.pre": name}
    return values | {"tokenizer.ggml.token_type": np.array(values["tokenizer.ggml.token_type"], np.int32)}


def differs(name: str, text: str) -> bool:
    """Whether llama.cpp has another rule than the model's own file: it does not normalise, and where words are cut at
    capitals, it takes no marks, and letters beyond ASCII for both large and small."""
    if CUTS[name].nfc:
        return not unicodedata.is_normalized("NFC", text)
    letters = [letter for letter in text if unicodedata.category(letter) in ("Lu", "Lt", "Mn", "Mc")]
    return name in ("gpt-4o", "tekken") and not "".join(letters).isascii()
