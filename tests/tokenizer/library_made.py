"""Folders with a tokenizer.json of each kind that published models have, small, and GGUF metadata of the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizer_texts import LEARNED
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from nncuda.tokenizer.cuts import CUTS

FOLDER = Path(__file__).parent

# As DeepSeek's models cut: digits by threes, then runs of Chinese and Japanese.
RUNS = (r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", CUTS["llama3"].expressions[0].replace(r"\p{N}{1,3}|", ""))
# Thousands from the right, which takes a look ahead.
THOUSANDS = r"\d{1,3}(?=(?:\d{3})*\b)"


def _trained(tokenizer: Tokenizer, trainer: Any) -> Tokenizer:
    tokenizer.train_from_iterator(LEARNED, trainer)
    return tokenizer


def _bytes(cuts: list[Any], size: int = 360, **options: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(**options))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not cuts)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, level]) if cuts else level
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained(tokenizer, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False))


def _split(expression: str, behavior: str = "isolated") -> pre_tokenizers.Split:
    return pre_tokenizers.Split(Regex(expression), behavior)


def _special(tokenizer: Tokenizer, *names: str) -> None:
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])


def _begins(tokenizer: Tokenizer, name: str) -> None:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[name, "$A"], pair=[name, "$A", name, "$B"], special_tokens=[(name, tokenizer.token_to_id(name))]
    )


def _gpt2() -> tuple[Tokenizer, dict[str, Any]]:
    made = _bytes([])
    _special(made, "<|endoftext|>")
    return made, {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}


def _llama3() -> tuple[Tokenizer, dict[str, Any]]:
    made = _bytes([_split(CUTS["llama3"].expressions[0])], ignore_merges=True)
    _special(made, "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    _begins(made, "<|begin_of_text|>")
    return made, {"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|eot_id|>"}}


def _o200k() -> tuple[Tokenizer, dict[str, Any]]:
    made = _bytes([_split(CUTS["gpt-4o"].expressions[0])])
    _special(made, "<|startoftext|>", "<|endoftext|>", "<|return|>", "<|start|>", "<|message|>", "<|end|>")
    return made, {"bos_token": "<|startoftext|>", "eos_token": "<|return|>"}


def _qwen() -> tuple[Tokenizer, dict[str, Any]]:
    made = _bytes([_split(CUTS["qwen2"].expressions[0])])
    made.normalizer = normalizers.NFC()
    _special(made, "<|endoftext|>", "<|im_start|>", "<|im_end|>")
    made.add_tokens([AddedToken(name, normalized=False) for name in ("<tool_call>", "</tool_call>", "<think>")])
    return made, {"eos_token": "<|im_end|>", "add_bos_token": False}


def _runs() -> tuple[Tokenizer, dict[str, Any]]:
    made = _bytes([_split(expression) for expression in RUNS])
    _special(made, "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>")
    made.add_tokens([AddedToken("<｜User｜>", normalized=False, lstrip=True, rstrip=True)])
    return made, {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>", "add_bos_token": True}


def _thousands() -> tuple[Tokenizer, dict[str, Any]]:
    made = _bytes([_split(THOUSANDS), _split(CUTS["gpt-2"].expressions[0])])
    _special(made, "<|end|>")
    return made, {"eos_token": "<|end|>"}


def _digits() -> tuple[Tokenizer, dict[str, Any]]:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)])
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _trained(made, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False))
    _special(made, "<|im_start|>", "<|im_end|>")
    return made, {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


def _spelled() -> list[str]:
    return ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]


def _spaced(gemma: bool) -> Tokenizer:
    """BPE over spaces as ▁ with bytes for what is unknown, as Llama 2's and Gemma's."""
    learned = Tokenizer(models.BPE())
    replaced = normalizers.Replace(" ", "▁")
    learned.normalizer = replaced if gemma else normalizers.Sequence([normalizers.Prepend("▁"), replaced])
    learned.pre_tokenizer = _split("▁", "merged_with_next")
    _trained(learned, trainers.BpeTrainer(vocab_size=150, show_progress=False))

    content = json.loads(learned.to_str())["model"]
    names = _spelled() + sorted(content["vocab"], key=content["vocab"].get)
    merges = [tuple(merge) for merge in content["merges"]]
    vocabulary = {name: token for token, name in enumerate(names)}
    model = models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    made = Tokenizer(model)
    made.normalizer = learned.normalizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if gemma:
        made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        steps.append(decoders.Strip(" ", 1, 0))
    made.decoder = decoders.Sequence(steps)
    return made


def _llama2() -> tuple[Tokenizer, dict[str, Any]]:
    made = _spaced(False)
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    _begins(made, "<s>")
    return made, {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}


def _gemma() -> tuple[Tokenizer, dict[str, Any]]:
    made = _spaced(True)
    _special(made, "<unk>", "<s>", "</s>", "<start_of_turn>", "<end_of_turn>")
    made.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False)])
    _begins(made, "<s>")
    return made, {"bos_token": "<s>", "eos_token": "<end_of_turn>"}


def _unigram() -> tuple[Tokenizer, dict[str, Any]]:
    """As T5's and XLM-R's: a map of characters, spaces made one, words with ▁ before them."""
    from nncuda.tokenizer.sentencepiece_model import _fields

    content = (FOLDER / "nfkc_unigram.model").read_bytes()
    (rules,) = (value for field, _, value in _fields(content) if field == 3)
    (table,) = (value for field, _, value in _fields(rules) if field == 2)
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.Precompiled(table), normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    _trained(
        made,
        trainers.UnigramTrainer(
            vocab_size=200, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
        ),
    )
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    made.add_tokens([AddedToken("<extra_id_0>", normalized=True, lstrip=True)])
    return made, {"eos_token": "</s>"}


def _wordpiece() -> tuple[Tokenizer, dict[str, Any]]:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    _trained(made, trainers.WordPieceTrainer(vocab_size=220, special_tokens=special, show_progress=False))
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_tokens([AddedToken("Tokenizer", normalized=True, single_word=True)])
    return made, {"bos_token": "[CLS]", "eos_token": "[SEP]"}


def _words() -> tuple[Tokenizer, dict[str, Any]]:
    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("removed")])
    _trained(made, trainers.WordLevelTrainer(vocab_size=120, special_tokens=["<unk>", "<eos>"], show_progress=False))
    return made, {"eos_token": "<eos>"}


FOLDERS: dict[str, Callable[[], tuple[Tokenizer, dict[str, Any]]]] = {
    "gpt2": _gpt2,
    "llama3": _llama3,
    "o200k": _o200k,
    "qwen": _qwen,
    "runs": _runs,
    "thousands": _thousands,
    "digits": _digits,
    "llama2": _llama2,
    "gemma": _gemma,
    "unigram": _unigram,
    "wordpiece": _wordpiece,
    "words": _words,
}
