"""The tokenizers whose ids in our checkpoints are compared with those of transformers."""

from __future__ import annotations

import token_cases

from nncuda.bench import random_tokenizer
from nncuda.tokenizer import Tokenizer, train_tokenizer

#: As `nncuda tokenizer train` makes them.
KINDS = ("unigram", "bpe")
TEXTS = token_cases.TEXTS


def make(kind: str) -> Tokenizer:
    """A tokenizer of 600 pieces."""
    learned = random_tokenizer.text(20000) + " We're it's I'll 1234 56 789 don't CAN'T\n\n  x  y\t z\r\n 日本語 ünï"
    lines = [learned[at : at + 500] for at in range(0, len(learned), 500)]
    return Tokenizer(train_tokenizer(lines, vocab_size=600, model_type=kind))
