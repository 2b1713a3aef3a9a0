"""The Llamas that our engine and other programs run, live and as recorded: seeded, so that nothing large is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import nncuda
from nncuda.bench.random_model import Shape, write_folder
from nncuda.convert.quantize import quantize_model
from nncuda.models.stored import StoredModel

RECORDED = Path(__file__).parent / "recorded"
#: Made by random_tokenizer.sentencepiece_model(600); committed, since another release of SentencePiece may train
#: another one.
TOKENIZER = RECORDED / "llama_tokenizer.model"

_SMALL = Shape(layers=3, hidden=64, ffn=96, heads=4, kv_heads=2, vocabulary=600, context=512)
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

#: Against transformers, in f32: each option of a Llama once.
FOLDERS = {
    "plain": _SMALL,
    "one_kv_head": replace(_SMALL, kv_heads=1, head_dim=24),
    "tied": replace(_SMALL, tied=True),
    "linear": replace(_SMALL, rope_scaling={"rope_type": "linear", "factor": 4.0}),
    "llama3": replace(_SMALL, rope_scaling=_LLAMA3, rope_base=500000.0),
    "biases": replace(_SMALL, biases=True),
    "mixtral": replace(_SMALL, experts=4, experts_per_token=2),
}
PROMPT, GREEDY = 40, 200

#: Against llama.cpp and candle, as GGUF files. Rows of 256 and 512: whole blocks of every format.
QUANTISED = Shape(layers=2, hidden=256, ffn=512, heads=8, kv_heads=2, vocabulary=600, context=512)
FORMATS = ("f16", "q8_0", "q4_0", "q6_k", "q4_k")
OF_CANDLE = ("f16", "q8_0", "q4_0")
GREEDY_QUANTISED = 50

#: What tokenizers stumble over.
TEXTS = (
    "",
    " ",
    "   three spaces in front, two behind  ",
    "\ttabs\t\tand\nlines\r\n\r\n",
    "bade lister, 12345.678 -9",
    "naïve café, Å, ﬁ, e\u0301",
    "你好，世界 αβγ שלום مرحبا ไทย",
    "🙂🏳️‍🌈👩‍👩‍👧‍👦 \U0001f1e9\U0001f1ea",
    "\u200b\u00a0\ufeff\u2028zero width and hard spaces",
    "a" * 100,
    "<unk> <0x41> ▁under▁lines",
    "\x01\x02\x7f control",
)


def prompt(shape: Shape) -> list[int]:
    """Ids of text, without those of controls and bytes."""
    return np.random.default_rng(5).integers(259, shape.vocabulary, PROMPT).tolist()


def folder(place: Path, name: str) -> Path:
    """The folder of a case of `FOLDERS`, written into `place`."""
    write_folder(place / name, FOLDERS[name], seed=1, dtype="f32", tokenizer_file=TOKENIZER.read_bytes())
    return place / name


def gguf_files(ctx: nncuda.Context, place: Path) -> dict[str, Path]:
    """`QUANTISED` in each of `FORMATS`, as `nncuda quantize` writes it."""
    source = place / "quantised"
    write_folder(source, QUANTISED, seed=2, dtype="f32", tokenizer_file=TOKENIZER.read_bytes())
    stored = StoredModel.open(source)
    files = {}
    for name in FORMATS:
        files[name] = place / f"{name}.gguf"
        quantize_model(stored, files[name], name, ctx)
    return files
