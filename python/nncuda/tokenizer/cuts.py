"""How byte-level BPE cuts text before it merges, by the names that GGUF files have for it (`tokenizer.ggml.pre`).

Such a file names the cut and has no rules. The names are those that llama.cpp's converter writes
(`get_vocab_base_pre`); what each stands for here is what the makers of the models published, in the tokenizer.json of
each, with its normaliser, since the model learned from normalised text. llama.cpp normalises nothing, and cuts by
expressions of its own where its library lacks a class of characters.
(Radford et al. 2019, "Language Models are Unsupervised Multitask Learners")
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ..formats.errors import FormatError, shown

DIGIT = r"\p{N}"
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Of cl100k, OpenAI's: Llama 3's as well. Qwen's is the same with every digit for itself.
_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Of o200k, OpenAI's too, which cuts before capitals. Mistral's Tekken is the same with every digit for itself, and
# without contractions.
_O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

#: Expressions that match every character of a text, so that nothing lies between their matches.
COMPLETE = frozenset((_GPT2, _CL100K, _QWEN2, _O200K, _TEKKEN))


class Cut(NamedTuple):
    """A way to cut.

    expressions   each cuts what the one before left
    whole_words   a word that is in the vocabulary is taken whole, whatever the merges say
    nfc           text is normalised first, to NFC
    begins        texts begin with the begin token where a file does not say whether they do
    """

    expressions: tuple[str, ...]
    whole_words: bool = False
    nfc: bool = False
    begins: bool = False


_LLAMA3 = Cut((_CL100K,), whole_words=True, begins=True)
# The same without whole words: cl100k's tokenizer, which DBRX and Phi-4 have; and Llama 3's as the first models made
# from it, such as Smaug, have it.
_DBRX = Cut((_CL100K,))
# GPT-2's after a cut at every digit: SmolLM's, and StarCoder's, which Refact and Granite have.
_DIGITS = Cut((DIGIT, _GPT2))
# Qwen1.5 to Qwen3; what DeepSeek made from Qwen2.5 has other control tokens.
_QWEN = Cut((_QWEN2,), nfc=True)

#: By name. Where several have one cut, the first is written into files.
CUTS: dict[str, Cut] = {
    "gpt-2": Cut((_GPT2,)),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "dbrx": _DBRX,
    "smaug-bpe": _DBRX,
    "smollm": _DIGITS,
    "refact": _DIGITS,
    "gpt-4o": Cut((_O200K,)),  # gpt-oss, Phi-4-mini
    "tekken": Cut((_TEKKEN,), whole_words=True, begins=True),  # Mistral Nemo, Ministral, Mistral Small
    "qwen2": _QWEN,
    "deepseek-r1-qwen": _QWEN,
    "olmo": Cut((_GPT2,), nfc=True),  # GPT-NeoX's, which OLMo 1 and OLMoE have
}


def cut_named(name: str, source: str | os.PathLike[str]) -> Cut:
    """The cut of a file that names it so; FormatError when there is none, or when the name, empty for none, says
    nothing."""
    if name in CUTS:
        return CUTS[name]
    known = ", ".join(CUTS)
    if name in ("", "default"):
        said = shown(name) if name else "missing"
        raise FormatError(
            source,
            f"does not name how it cuts text (tokenizer.ggml.pre is {said}): convert the model anew, or set it to one "
            f"of {known}, as gguf_new_metadata.py --pre-tokenizer of llama.cpp does",
        )
    raise FormatError(source, f"cuts text as {shown(name)}; this program knows {known}")
