"""Tokenizers from the metadata of GGUF files.

`tokenizer.ggml.model` is "llama" (SentencePiece, merging by score), "t5" (SentencePiece, unigram) or "gpt2" (byte-level
BPE). All of it is checked before a library sees it.
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "Tokenizer")
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..formats.errors import FormatError, shown
from ..formats.gguf import ARCHITECTURE_KEY, StringArray
from .cuts import Cut, cut_named
from .sentencepiece_model import BPE, BYTE, CONTROL, UNIGRAM, UNKNOWN, USER_DEFINED, PieceModel
from .tokenizer import TextTokenizer, Tokenizer

#: What a space is in the pieces of SentencePiece.
SPACE = "▁"

BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")

#: Control tokens that end an answer wherever they are, since many files name only one end.
END_PIECES = frozenset(
    ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>")
)


def tokenizer_from_gguf(metadata: Mapping[str, Any], source: str | os.PathLike[str]) -> TextTokenizer | None:
    """The tokenizer that a file has in its metadata; None when it has none, FormatError when it is wrong."""
    model = metadata.get("tokenizer.ggml.model")
    if model is None or (type(model) is str and model == "none"):
        return None
    if type(model) is not str or model not in ("llama", "t5", "gpt2"):
        raise FormatError(
            source, f"tokenizer.ggml.model is {shown(model)}; this program has the tokenizers 'llama', 't5' and 'gpt2'"
        )
    given = _Metadata(metadata, source)
    tokens = given.tokens()
    size = len(tokens)
    kinds = given.kinds(size)
    ends = {given.id(f"tokenizer.ggml.{name}_token_id", size) for name in ("eos", "eot", "eom")}
    ends |= {index for index, token in enumerate(tokens) if token in END_PIECES and kinds[index] == CONTROL}
    # The converter of bitnet.cpp does not name the pre-tokenizer of its models, which have Llama 3's tokenizer.
    unnamed = "llama-bpe" if metadata.get(ARCHITECTURE_KEY) in ("bitnet-25", "bitnet-b1.58") else ""
    cut = cut_named(given.get("tokenizer.ggml.pre", str, unnamed), source) if model == "gpt2" else None
    options: dict[str, Any] = {
        "begin_id": given.id("tokenizer.ggml.bos_token_id", size),
        "end_ids": ends - {-1},
        "adds_begin": given.get("tokenizer.ggml.add_bos_token", bool, model == "llama" if cut is None else cut.begins),
    }
    if cut is not None:
        return _byte_level(given, tokens, kinds, cut, options)
    proto = given.piece_model(tokens, kinds, BPE if model == "llama" else UNIGRAM)
    return Tokenizer(proto.to_bytes(), source, **options)


def _byte_level(
    given: _Metadata, tokens: list[str], kinds: np.ndarray, cut: Cut, options: dict[str, Any]
) -> TextTokenizer:
    from .json_tokenizer import JsonTokenizer, byte_level_bpe  # the library is loaded where it is needed

    tokenizer = byte_level_bpe(
        tokens,
        given.merges(),
        cut,
        given.source,
        control=[token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL],
        user_defined=[token for token, kind in zip(tokens, kinds, strict=True) if kind == USER_DEFINED],
        prefix_space=given.get("tokenizer.ggml.add_space_prefix", bool, False),
    )
    return JsonTokenizer.of(tokenizer, given.source, **options)


class _Metadata:
    def __init__(self, metadata: Mapping[str, Any], source: str | os.PathLike[str]):
        self.metadata, self.source = metadata, source

    def get(self, key: str, kind: type, default: Any) -> Any:
        value = self.metadata.get(key, default)
        if type(value) is not kind:
            raise FormatError(self.source, f"{key} is {shown(value)}; it must be a {kind.__name__}")
        return value

    def id(self, key: str, size: int) -> int:
        """The id of a token; -1 when the file names none."""
        value = self.metadata.get(key)
        if value is None:
            return -1
        if type(value) is not int or not 0 <= value < size:
            raise FormatError(self.source, f"{key} is {shown(value)}; it must be the id of a token, 0 to {size - 1}")
        return value

    def strings(self, key: str) -> StringArray:
        value = self.metadata.get(key)
        if not isinstance(value, StringArray):
            raise FormatError(self.source, f"{key} is {'missing' if value is None else 'no array of strings'}")
        return value

    def tokens(self) -> list[str]:
        """Names by id, none of them empty."""
        tokens = list(self.strings("tokenizer.ggml.tokens"))
        if not tokens:
            raise FormatError(self.source, "tokenizer.ggml.tokens is empty")
        if "" in tokens:
            raise FormatError(self.source, f"token {tokens.index('')} of tokenizer.ggml.tokens is empty")
        return tokens

    def numbers(self, key: str, kind: str, size: int) -> np.ndarray:
        value = self.metadata.get(key)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kind:
            problem = "missing" if value is None else "of another type"
            raise FormatError(self.source, f"{key} is {problem}; it must be an array of numbers, one a token")
        if len(value) != size:
            raise FormatError(self.source, f"{key} has {len(value)} entries, tokenizer.ggml.tokens {size}")
        return value

    def kinds(self, size: int) -> np.ndarray:
        """Kinds of the tokens, `NORMAL` to `BYTE`."""
        kinds = self.numbers("tokenizer.ggml.token_type", "iu", size)
        wrong = np.flatnonzero((kinds < 1) | (kinds > BYTE))
        if wrong.size:
            at = int(wrong[0])
            raise FormatError(
                self.source, f"tokenizer.ggml.token_type has {kinds[at]} for token {at}; it is 1 to {BYTE}"
            )
        return kinds

    def merges(self) -> list[tuple[str, str]]:
        merges = []
        for index, merge in enumerate(self.strings("tokenizer.ggml.merges")):
            first, _, second = merge.partition(" ")
            if not first or not second or " " in second:
                raise FormatError(
                    self.source, f"merge {index} is {shown(merge)}; it must be two tokens with a space between"
                )
            merges.append((first, second))
        return merges

    def piece_model(self, tokens: Sequence[str], kinds: np.ndarray, model_type: int) -> PieceModel:
        """The parts of a SentencePiece model."""
        scores = self.numbers("tokenizer.ggml.scores", "f", len(tokens))
        if not np.isfinite(scores).all():
            at = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise FormatError(self.source, f"tokenizer.ggml.scores has {scores[at]} for token {at}; it must be finite")
        spelled = {}
        for index in np.flatnonzero(kinds == BYTE).tolist():
            match = BYTE_PIECE.fullmatch(tokens[index])
            if match is None or match[1] in spelled:
                raise FormatError(
                    self.source, f"byte token {index} is {shown(tokens[index])}; it must be <0x00> to <0xFF>, each once"
                )
            spelled[match[1]] = index
        if len(spelled) not in (0, 256):
            raise FormatError(self.source, f"has {len(spelled)} byte tokens; there must be 256, or none")
        unknown = np.flatnonzero(kinds == UNKNOWN)
        if unknown.size != 1:
            raise FormatError(self.source, f"has {unknown.size} unknown tokens; there must be one")
        named = self.metadata.get("tokenizer.ggml.unknown_token_id", int(unknown[0]))
        if named != unknown[0]:
            raise FormatError(
                self.source,
                f"tokenizer.ggml.unknown_token_id is {shown(named)}, but the unknown token is {int(unknown[0])}",
            )
        known = set(tokens)
        if len(known) != len(tokens):
            raise FormatError(self.source, f"has duplicate tokens ({len(tokens) - len(known)})")
        return PieceModel(
            [
                _as_piece(token, known) if kind == USER_DEFINED else token
                for token, kind in zip(tokens, kinds, strict=True)
            ],
            [float(score) for score in scores],
            kinds.tolist(),
            model_type,
            self.get("tokenizer.ggml.add_space_prefix", bool, True),
            self.get("tokenizer.ggml.remove_extra_whitespaces", bool, False),
        )


def _as_piece(token: str, known: set[str]) -> str:
    """A user-defined token, which a file has as it is in a text, as SentencePiece has it, which looks for it where a
    space is ▁ already."""
    piece = token.replace(" ", SPACE)
    return token if piece in known else piece
