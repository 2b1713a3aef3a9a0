"""Fixtures of the ways to cut that GGUF files have names for: the ids that the library `tokenizers` gives.

    python tests/tokenizer/cuts_generate.py

README.md beside this file says what `cuts/cases.json` holds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizer_generate import lines
from tokenizers import Tokenizer, pre_tokenizers

from nncuda.tokenizer.cuts import CUTS

PATH = Path(__file__).parent / "cuts" / "cases.json"

#: Each is one token where no cut goes through it: what lies on both sides of the places where cuts differ.
SPANS = (
    *("1234567", "x12", "12/34", " 12", "a1", "1a", "½²", "१२३", "a²"),
    *("I'm", "we'll", "WE'LL", "it'S", "'s", "'S", "'ll", "'LL", "'Re", "l'été"),
    *("HTTPServer", "PaRts", "iPhone", "ÉTÉ", "éTÉ", "ǅa", "aＢ"),
    *("e\u0301", "e\u0301t", "E\u0301A", "\u00e9t", "\u00c9A", "\u0301\u0301", "नमस्ते"),
    *("u\u0308", "\u00fc", "\u1112\u1161\u11ab", "한"),
    *("  ", "   ", "\n\n", "\r\n", "\r\n\r\n", " \n", "\n ", " \t", "\u00a0 ", "\u3000a", "\t\tx", " \n\n  "),
    *("...", "./", "/\n", ".\n/", "!\n", "!?a", " (a", "_a", "-5", "日本語", "猫が", "。\n"),
    *("😀", "😀a", "a😀", "👩\u200d👧", "a\u200db"),
)

#: A word that no merge makes, which only whole words are.
WHOLE = "Ġzebra"

TEXTS = (
    "I'm sure we'll see: IT'S WE'LL 'Re it'S l'été 's'S",
    "1234567 x12 12/34  12 a1 1a ½² १२३ a² -5",
    "HTTPServer PaRts iPhone ÉTÉ éTÉ ǅa aＢ",
    "e\u0301t E\u0301A \u00e9t \u00c9A \u0301\u0301 नमस्ते u\u0308\u00fc \u1112\u1161\u11ab한 e\u0301\u0301",
    "  a   b\n\nc\r\n\r\nd \n e\n f \t\u00a0 g\u3000a\t\tx \n\n  ",
    "... ./ /\n.\n/ !\n!?a (a _a 日本語猫が。\n",
    "😀 😀a a😀 👩\u200d👧 a\u200db",
    "a zebra, zebra zebras",
    "   ",
    "",
    "<|end|>e\u0301<|end|>\u0301 <tool>12<tool>",
)


def _level(expression: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": expression}


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _split(name: str, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    (expression,) = CUTS[name].expressions
    step = {"type": "Split", "pattern": {"Regex": expression}, "behavior": behavior, "invert": invert}
    return _sequence(step, _level(False))


#: As the files of the models have it: the expression of GPT-2 is what ByteLevel cuts by when it is let, and files made
#: from OpenAI's tokenizers keep what matches rather than cut there.
_DIGITS = _sequence({"type": "Digits", "individual_digits": True}, _level(True))
PUBLISHED: dict[str, dict[str, Any]] = {
    "gpt-2": {"pre_tokenizer": _level(True)},
    "llama-bpe": {"pre_tokenizer": _split("llama-bpe"), "ignore_merges": True},
    "dbrx": {"pre_tokenizer": _split("dbrx", "Removed", True)},
    "smollm": {"pre_tokenizer": _DIGITS},
    "gpt-4o": {"pre_tokenizer": _split("gpt-4o", "Removed", True)},
    "tekken": {"pre_tokenizer": _split("tekken"), "ignore_merges": True},
    "qwen2": {"pre_tokenizer": _split("qwen2"), "normalizer": {"type": "NFC"}},
    "olmo": {"pre_tokenizer": _level(True), "normalizer": {"type": "NFC"}},
}


def spelled(text: str) -> str:
    """A text as byte-level tokens have it, each byte as a character."""
    return "".join(part for part, _ in pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(text))


def parts() -> tuple[list[str], list[tuple[str, str]]]:
    """Names of tokens by id, and merges: each span from left to right."""
    names, merges = sorted(pre_tokenizers.ByteLevel.alphabet()), []
    for span in map(spelled, SPANS):
        for end in range(1, len(span)):
            pair = (span[:end], span[end])
            if pair not in merges:
                merges.append(pair)
                names.append("".join(pair))
    return [*names, WHOLE, "<|end|>", "<tool>"], merges


def tokenizer_json(name: str) -> dict[str, Any]:
    """A tokenizer.json of the parts with the rules that are published for a cut."""
    names, merges = parts()
    added = [
        {"id": len(names) - 2 + at, "content": names[at - 2], "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": not at}
        for at in (0, 1)
    ]  # fmt: skip
    vocabulary = {token: at for at, token in enumerate(names[:-2])}
    model = {"type": "BPE", "vocab": vocabulary, "merges": merges, "ignore_merges": False}
    rules = PUBLISHED[name]
    model["ignore_merges"] = rules.get("ignore_merges", False)
    return {
        "version": "1.0", "added_tokens": added, "normalizer": rules.get("normalizer"),
        "pre_tokenizer": rules["pre_tokenizer"], "decoder": _level(True), "model": model,
    }  # fmt: skip


def made() -> dict[str, Any]:
    names, merges = parts()
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.token_type": [*[1] * (len(names) - 2), 3, 4],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": len(names) - 2,
    }
    cuts = {}
    for name in PUBLISHED:
        library = Tokenizer.from_str(json.dumps(tokenizer_json(name)))
        cuts[name] = {
            "names": [other for other in CUTS if CUTS[other] == CUTS[name]],
            "begins": CUTS[name].begins,
            "normalizer": PUBLISHED[name].get("normalizer"),
            "expressions": CUTS[name].expressions,
            "ids": [library.encode(text).ids for text in TEXTS],
        }
    return {"metadata": metadata, "texts": TEXTS, "cuts": cuts}


def content() -> str:
    return lines(made(), 3) + "\n"


if __name__ == "__main__":
    PATH.write_text(content(), encoding="ascii")
