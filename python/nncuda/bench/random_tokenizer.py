"""Tokenizers for models with random weights, learned from made-up text: of SentencePiece as Llama 2 has one, and a
byte-level BPE as Llama 3 and BitNet have one."""

from __future__ import annotations

import io
import itertools
import json

import numpy as np
import sentencepiece
from tokenizers import pre_tokenizers, processors, trainers

from ..tokenizer.cuts import CUTS
from ..tokenizer.json_tokenizer import byte_level_bpe

#: Tokens that are learned; the others of a larger vocabulary are pairs of these.
_LEARNED = 4000

#: Beside a tokenizer.model.
SENTENCEPIECE_CONFIG = {
    "tokenizer_class": "LlamaTokenizer",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "add_bos_token": True,
    "add_eos_token": False,
    "legacy": False,
}

#: Beside a tokenizer.json.
BYTE_LEVEL_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<|begin_of_text|>",
    "eos_token": "<|end_of_text|>",
    "add_bos_token": True,
}


def text(words: int, seed: int = 0) -> str:
    """Made-up text: words of syllables, frequent ones short, with numbers, signs and letters of several scripts."""
    rng = np.random.default_rng(seed)
    syllables = [a + b for a in "bdfghjklmnprstvwyz" for b in ("a", "e", "i", "o", "u", "ai", "ön", "er", "is", "ou")]
    lengths = rng.integers(1, 5, 40000)
    known = ["".join(rng.choice(syllables, n)) for n in np.sort(lengths)]
    drawn = np.minimum((rng.pareto(0.6, words) * 20).astype(np.int64), len(known) - 1)
    signs = rng.random(words)
    written = []
    for index, sign in zip(drawn, signs, strict=True):
        word = known[index]
        if sign < 0.05:
            word = word.capitalize() + ("," if sign < 0.03 else ".")
        elif sign < 0.07:
            word = str(int(sign * 1e9) % 10000)
        elif sign < 0.09:
            word = "".join(map(chr, rng.integers(0x4E00, 0x4E80, 2))) + chr(0x3B1 + index % 24)
        written.append(word)
    return " ".join(written)


def sentencepiece_model(vocabulary: int) -> bytes:
    """A SentencePiece file as llama models have it: BPE, bytes for what it lacks, unknown 0, begin 1, end 2."""
    model = io.BytesIO()
    written = text(max(20000, 40 * vocabulary))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(written[at : at + 1000] for at in range(0, len(written), 1000)),
        model_writer=model,
        vocab_size=vocabulary,
        model_type="bpe",
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def _controls(vocabulary: int) -> list[str]:
    """The control tokens, which are the last of the vocabulary: as many as Llama 3 has, three of a small one."""
    reserved = [f"<|reserved_special_token_{number}|>" for number in range(253 if vocabulary >= 4000 else 0)]
    return ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", *reserved]


def ends(vocabulary: int) -> tuple[int, int]:
    """The ids of `byte_level` that begin and end a text."""
    first = vocabulary - len(_controls(vocabulary))
    return first, first + 1


def byte_level(vocabulary: int) -> bytes:
    """A tokenizer.json of that many tokens, at least 259: a byte-level BPE that cuts text as Llama 3 does."""
    controls = _controls(vocabulary)
    ordinary = vocabulary - len(controls)
    learner = byte_level_bpe([], [], CUTS["llama-bpe"], "made-up text")
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learner.train_from_iterator(
        [text(min(5 * vocabulary, 20000))],
        trainers.BpeTrainer(vocab_size=min(ordinary, _LEARNED), initial_alphabet=alphabet, show_progress=False),
    )
    learned = json.loads(learner.to_str())["model"]
    tokens = dict.fromkeys(sorted(learned["vocab"], key=learned["vocab"].get))
    merges = [tuple(merge) for merge in learned["merges"]]
    for pair in itertools.product(list(tokens), repeat=2):
        if len(tokens) == ordinary:
            break
        if "".join(pair) not in tokens:
            tokens["".join(pair)] = None
            merges.append(pair)
    whole = byte_level_bpe([*tokens, *controls], merges, CUTS["llama-bpe"], "made-up text", control=controls)
    begin = controls[0]
    whole.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", pair=f"{begin} $A {begin} $B", special_tokens=[(begin, ends(vocabulary)[0])]
    )
    written: str = whole.to_str()
    return written.encode()
