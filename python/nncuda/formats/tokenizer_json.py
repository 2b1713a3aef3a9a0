"""Tokenizers of the `tokenizers` library: files named tokenizer.json, and byte-level BPE made from its parts.

(Sennrich, Haddow, Birch 2016; bytes as characters: Radford et al. 2019, "Language Models are Unsupervised Multitask
Learners")
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors

from .errors import FormatError
from .regular import read_regular
from .sentencepiece_model import longest_replacement
from .tokenizer import known_ids, require_text

# How text is cut before merging, by the names that GGUF files have for it: the published expressions of GPT-2 and
# Llama 3; SmolLM's is GPT-2's behind a cut at every digit. The second entry tells whether a word that is in the
# vocabulary is taken whole, whatever the merges say.
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CUTS: dict[str, tuple[tuple[str, ...], bool]] = {
    "gpt-2": ((_GPT2,), False),
    "llama-bpe": ((_LLAMA3,), True),
    "llama3": ((_LLAMA3,), True),
    "llama-v3": ((_LLAMA3,), True),
    "smollm": ((r"\p{N}", _GPT2), False),
}


@contextlib.contextmanager
def _failing(source: str | os.PathLike[str], what: str) -> Iterator[None]:
    """What the library raises becomes a FormatError; its panics too, which derive from BaseException alone."""
    try:
        yield
    except FormatError:
        raise
    except Exception as error:
        raise FormatError(source, f"{what} ({error})") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise FormatError(source, f"{what} ({error})") from error


# How many times longer a text may become in the steps before and after the vocabulary, in bytes. Known files make it 3
# times longer, a space becoming "▁"; a file could double it 60 times, which ends the process for want of memory.
_MOST_GROWTH = 1000


def _check_growth(tokenizer: tokenizers.Tokenizer, source: str | os.PathLike[str]) -> None:
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        steps = getattr(tokenizer, part)
        growth = 1.0 if steps is None else _growth(json.loads(steps.__getstate__()))
        if growth > _MOST_GROWTH:
            raise FormatError(source, f"its {part} makes texts {growth:.6g} times longer; it may be {_MOST_GROWTH}")


def _growth(step: dict[str, Any]) -> float:
    inner = next((step[key] for key in ("normalizers", "pretokenizers", "decoders") if key in step), ())
    if step.get("type") == "Replace":
        old, new = step["pattern"].get("String"), len(step["content"].encode())
        return max(1.0, new / len(old.encode())) if old else 1.0 + new  # an expression may match nothing at all
    if step.get("type") == "Precompiled":
        return float(longest_replacement(base64.b64decode(step["precompiled_charsmap"])))
    return min(math.prod(map(_growth, inner)), 1e300)


class JsonTokenizer:
    """A tokenizer of the `tokenizers` library, as a `TextTokenizer`. `first_id` is what the file lets it put before
    a text, -1 for nothing; unless told otherwise, it adds the begin id when that is the same."""

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        source: str | os.PathLike[str],
        *,
        begin_id: int = -1,
        end_ids: Iterable[int] = (),
        adds_begin: bool | None = None,
    ):
        self._tokenizer, self._source = tokenizer, source
        # A file may ask for texts filled up to any length, or cut.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        with _failing(source, "is not a tokenizer"):
            _check_growth(tokenizer, source)
            ids = tokenizer.get_vocab().values()
            self._size = max(ids, default=-1) + 1
            self.first_id = next(iter(tokenizer.encode("").ids), -1)
        if self._size == 0:
            raise FormatError(source, "is a tokenizer without tokens")
        self.begin_id = begin_id
        self.end_ids = frozenset(end_ids)
        self.adds_begin = self.first_id == begin_id >= 0 if adds_begin is None else adds_begin

    @classmethod
    def load(cls, path: str | os.PathLike[str], **options: object) -> JsonTokenizer:
        """Reads a tokenizer.json; options as of the class."""
        content = read_regular(path)
        with _failing(path, "is not a tokenizer that the tokenizers library reads"):
            tokenizer = tokenizers.Tokenizer.from_buffer(content)
        return cls(tokenizer, path, **options)  # type: ignore[arg-type]

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return self._size

    @property
    def ordinary_id(self) -> int:
        """Some id that stands for text: that of a letter where there is one."""
        for name in ("a", "e", "▁a", "Ġa"):
            token = self.id_of(name)
            if token is not None:
                return token
        with _failing(self._source, "cannot be asked for its tokens"):
            ids = sorted(self._tokenizer.get_vocab().values())  # there may be large holes between them
            return next((token for token in ids if self._tokenizer.decode([token]).isalnum()), 0)

    def id_of(self, name: str) -> int | None:
        """The id of a name in the vocabulary, or None."""
        return self._tokenizer.token_to_id(name)

    def piece(self, token: int) -> str:
        """The name of an id in the vocabulary; empty for one between others that has none."""
        if not 0 <= token < self._size:
            raise ValueError(f"the id is {token}; it must be 0 to {self._size - 1}")
        return self._tokenizer.id_to_token(token) or ""

    def to_json(self) -> str:
        """The content of a tokenizer.json, which puts the begin id before a text where this tokenizer is to."""
        whole = tokenizers.Tokenizer.from_str(self._tokenizer.to_str())
        if self.adds_begin and self.first_id != self.begin_id:
            name = self.piece(self.begin_id)
            whole.post_processor = processors.TemplateProcessing(
                single=[name, "$A"], pair=[name, "$A", name, "$B"], special_tokens=[(name, self.begin_id)]
            )
        return whole.to_str(pretty=False)

    def encode(self, text: str, *, begin: bool = False, special: bool = False) -> list[int]:
        """Ids of a text, as in `TextTokenizer`."""
        require_text(text)
        with _failing(self._source, "cannot encode a text"):
            self._tokenizer.encode_special_tokens = not special
            ids = list(self._tokenizer.encode(text, add_special_tokens=False).ids)
        return [self.begin_id, *ids] if begin and self.begin_id >= 0 else ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; control tokens give nothing."""
        known = known_ids(ids, self._size)
        with _failing(self._source, "cannot decode ids"):
            return self._tokenizer.decode(known, skip_special_tokens=True)


def byte_level_bpe(
    tokens: Sequence[str],
    merges: Iterable[tuple[str, str]],
    cut: str,
    source: str | os.PathLike[str],
    *,
    control: Iterable[str] = (),
    user_defined: Iterable[str] = (),
    prefix_space: bool = False,
) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer: token i of `tokens` has id i, `cut` is one of `CUTS`, `control` and `user_defined`
    name the tokens that no merging makes. FormatError when the parts do not fit."""
    if cut not in CUTS:
        raise FormatError(source, f"cuts text as {cut!r}; this program knows {', '.join(CUTS)}")
    expressions, whole_words = CUTS[cut]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise FormatError(source, f"has {len(tokens) - len(vocabulary)} tokens that others are equal to")
    with _failing(source, "is not a tokenizer of byte-level BPE"):
        tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, list(merges), ignore_merges=whole_words))
        cuts = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in expressions]
        bytes_as_characters = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, bytes_as_characters])
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control])
        tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in user_defined])
    return tokenizer
