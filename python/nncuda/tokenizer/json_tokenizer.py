"""Tokenizers of the `tokenizers` library: files named tokenizer.json, and byte-level BPE made from its parts.

(Sennrich, Haddow, Birch 2016; bytes as characters: Radford et al. 2019, "Language Models are Unsupervised Multitask
Learners")
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from ..formats.errors import FormatError
from ..formats.limits import TOKENIZER_JSON_BYTES
from ..formats.regular import read_regular
from .cuts import Cut
from .json_worker import Served
from .sandbox import Sandbox, SandboxError
from .tokenizer import known_ids, require_text


@contextlib.contextmanager
def _failing(source: str | os.PathLike[str], what: str) -> Iterator[None]:
    """What the library raises, or becomes of it in a sandbox, becomes a FormatError; panics too, which derive from
    BaseException alone."""
    try:
        yield
    except FormatError:
        raise
    except SandboxError as error:
        raise FormatError(source, f"{what}: it {error}") from None
    except Exception as error:
        raise FormatError(source, f"{what} ({error})") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise FormatError(source, f"{what}: the library that reads it gave up") from error


# Seconds for any file or text, and for each byte of it: a file of 38 MB loads in 2 s, a text of 1 MB takes half of one.
_SECONDS, _EACH = 10.0, 1e-6
_MEMORY = 1 << 28  # bytes before it knows the size of the file

# How many times longer rules may make the text of ids where they run in this process.
_MOST_GROWTH = 16


class JsonTokenizer:
    """A tokenizer of the `tokenizers` library, as a `TextTokenizer`. `first_id` is what its file lets it put before a
    text, -1 for nothing; by default it adds the begin id when that is the same.

    `ask` answers the requests of `json_worker.Served`, and may be given so many seconds. Names are kept here, so
    that the ids which a model draws become text without asking, as long as the rules for that are known to be tame.
    """

    def __init__(
        self,
        ask: Callable[[dict[str, Any], float], dict[str, Any]],
        source: str | os.PathLike[str],
        *,
        begin_id: int = -1,
        end_ids: Iterable[int] = (),
        adds_begin: bool | None = None,
    ):
        self._ask, self._source = ask, source
        with _failing(source, "is not a tokenizer that the tokenizers library can use"):
            described = ask({"describe": True}, 2 * _SECONDS)
            self._ids: dict[str, int] = described["vocabulary"]
            self._names = {token: name for name, token in self._ids.items()}
            self._names.update((token, name) for token, name in described["unlisted"])
            self._decoded = {**self._names, **dict(described["decoded"])}
            self._decoder = _decoder(described["decoder"])
        self._special = frozenset(described["special"])
        self.first_id: int = described["first"]
        self._size = max(self._names, default=-1) + 1
        if self._size == 0:
            raise FormatError(source, "is a tokenizer without tokens")
        self.begin_id = begin_id
        self.end_ids = frozenset(end_ids)
        self.adds_begin = self.first_id == begin_id >= 0 if adds_begin is None else adds_begin

    @classmethod
    def load(cls, path: str | os.PathLike[str], **options: Any) -> JsonTokenizer:
        """Reads a tokenizer.json, in a sandbox; options as of the class."""
        content = read_regular(path, TOKENIZER_JSON_BYTES)
        sandbox = Sandbox("json_worker.py", _MEMORY, ({"load": True}, _seconds(len(content)), content))
        return cls(sandbox.ask, path, **options)

    @classmethod
    def of(cls, tokenizer: tokenizers.Tokenizer, source: str | os.PathLike[str], **options: Any) -> JsonTokenizer:
        """A tokenizer that this package made of parts which it checked, in this process; options as of the class."""
        served = Served(tokenizer)
        return cls(lambda request, _: served.answer(request), source, **options)

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
        return next((token for token in sorted(self._names) if self.decode([token]).isalnum()), 0)

    def id_of(self, name: str) -> int | None:
        """The id of a name in the vocabulary, or None."""
        return self._ids.get(name)

    def piece(self, token: int) -> str:
        """The name of an id in the vocabulary; empty for one between others that has none."""
        if not 0 <= token < self._size:
            raise ValueError(f"the id is {token}; it must be 0 to {self._size - 1}")
        return self._names.get(token, "")

    def to_json(self) -> str:
        """The content of a tokenizer.json, which puts the begin id before a text where this tokenizer is to."""
        first = self.begin_id if self.adds_begin and self.first_id != self.begin_id else None
        with _failing(self._source, "cannot be written"):
            return self._ask({"json": first}, 2 * _SECONDS)["json"]

    def encode(self, text: str, *, begin: bool = False, special: bool = False) -> list[int]:
        """Ids of a text, as in `TextTokenizer`."""
        require_text(text)
        with _failing(self._source, "cannot encode a text"):
            ids = self._ask({"encode": text, "special": special}, _seconds(len(text)))["ids"]
        return [self.begin_id, *ids] if begin and self.begin_id >= 0 else ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; control tokens give nothing."""
        known = known_ids(ids, self._size)
        with _failing(self._source, "cannot decode ids"):
            if self._decoder is None:
                return self._ask({"decode": known}, _seconds(len(known)))["text"]
            names = (self._decoded.get(token) for token in known)
            return self._decoder([name for name in names if name is not None and name not in self._special])


def _seconds(size: int) -> float:
    return _SECONDS + _EACH * size


def _decoder(rules: dict[str, Any] | None) -> Callable[[list[str]], str] | None:
    """What makes names of tokens to text by the rules of a file, as the library does it; None for rules that might take
    any time or memory, and so are for a sandbox."""
    if rules is None:
        return " ".join
    if _growth(rules) > _MOST_GROWTH:
        return None
    # The library makes rules of their JSON as a part of a tokenizer only.
    empty = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
    made = tokenizers.Tokenizer.from_str(json.dumps({"version": "1.0", "decoder": rules, "model": empty}))
    return made.decoder.decode


def _growth(rules: dict[str, Any]) -> float:
    """How many times longer rules may make a text; infinity for those that are not looked into."""
    kind = rules["type"]
    if kind == "Sequence":
        return min(math.prod(map(_growth, rules["decoders"])), math.inf)
    if kind == "Replace":
        old = rules["pattern"].get("String")
        return max(1.0, len(rules["content"].encode()) / len(old.encode())) if old else math.inf
    # A byte that is not UTF-8 becomes a character of three bytes.
    return {"Fuse": 1.0, "Strip": 1.0, "Metaspace": 1.0, "ByteFallback": 1.0, "ByteLevel": 3.0}.get(kind, math.inf)


def byte_level_bpe(
    tokens: Sequence[str],
    merges: Iterable[tuple[str, str]],
    cut: Cut,
    source: str | os.PathLike[str],
    *,
    control: Iterable[str] = (),
    user_defined: Iterable[str] = (),
    prefix_space: bool = False,
) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer: token i of `tokens` has id i, `control` and `user_defined` name the tokens that no
    merging makes. FormatError when the parts do not fit."""
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise FormatError(source, f"has duplicate tokens ({len(tokens) - len(vocabulary)})")
    with _failing(source, "is not a tokenizer of byte-level BPE"):
        tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, list(merges), ignore_merges=cut.whole_words))
        if cut.nfc:
            tokenizer.normalizer = normalizers.NFC()
        cuts = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in cut.expressions]
        bytes_as_characters = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, bytes_as_characters])
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control])
        tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in user_defined])
    return tokenizer
