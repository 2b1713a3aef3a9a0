"""Tokenizers: what all kinds have in common, and SentencePiece models.

Those trained here give every text back exactly: ids 0, 1, 2, 3 are pad, unknown, begin and end; text is neither
normalised nor stripped, line ends and tabs are pieces of their own, and what the vocabulary lacks is spelled in bytes.
(Kudo, Richardson 2018, "SentencePiece"; unigram: Kudo 2018; BPE: Sennrich, Haddow, Birch 2016)
"""

from __future__ import annotations

import functools
import io
import operator
import os
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import sentencepiece

from ..formats.errors import FormatError
from ..formats.limits import TOKENIZER_MODEL_BYTES
from ..formats.regular import read_regular
from .sentencepiece_model import USER_DEFINED, PieceModel, most_growth

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3

# SentencePiece learns from pieces of text of limited length; longer ones would be dropped.
_SENTENCE_BYTES = 4096

# Where line ends are tokens of their own, text is encoded in blocks of about this many characters, cut after one.
_BLOCK = 1 << 20


def sentences(texts: Iterable[str]) -> Iterator[str]:
    """Cuts texts into lines, and long lines into parts, for training a tokenizer."""
    for text in texts:
        for line in text.replace("\0", "").splitlines():
            for start in range(0, len(line), _SENTENCE_BYTES // 4):
                yield line[start : start + _SENTENCE_BYTES // 4]


def _drawn(lines: Iterable[str], count: int) -> list[str]:
    """That many of the lines, each equally likely, the same ones in every run, in memory for no more than them.

    Vitter 1985, "Random sampling with a reservoir", algorithm R.
    """
    draw, kept = random.Random(0), []
    for seen, line in enumerate(lines):
        if seen < count:
            kept.append(line)
        elif (at := int(draw.random() * (seen + 1))) < count:
            kept[at] = line
    return kept


def train_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int = 32000,
    model_type: str = "unigram",
    character_coverage: float = 0.9995,
    sample: int = 0,
    threads: int = 2,
) -> bytes:
    """Trains a tokenizer and returns its file.

    `model_type` is "unigram" or "bpe". `sample` limits how many lines are learned from (0: all); they are drawn here,
    since SentencePiece's own draw differs from process to process. The same text, options and `threads` give the same
    file. Raises ValueError when the text is too small for the vocabulary.
    """
    if model_type not in ("unigram", "bpe"):
        raise ValueError(f"model_type is {model_type!r}; it must be 'unigram' or 'bpe'")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(_drawn(sentences(texts), sample) if sample else sentences(texts)),
            model_writer=model,
            vocab_size=vocab_size,
            model_type=model_type,
            character_coverage=character_coverage,
            shuffle_input_sentence=False,
            max_sentence_length=_SENTENCE_BYTES,
            num_threads=threads,
            pad_id=PAD,
            unk_id=UNKNOWN,
            bos_id=BEGIN,
            eos_id=END,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            allow_whitespace_only_pieces=True,
            split_digits=True,
            user_defined_symbols=["\n", "\t"],
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise ValueError(f"no tokenizer of {vocab_size} pieces could be trained on this text: {error}") from error
    return model.getvalue()


class TextTokenizer(Protocol):
    """Text to token ids and back, whatever the file it comes from.

    `begin_id` is -1 when there is none. `end_ids` end an answer: the end of the text, of a turn, of a message.
    `adds_begin` says whether texts are meant to start with the begin id. `ordinary_id` is some id of ordinary text.
    """

    begin_id: int
    end_ids: frozenset[int]
    adds_begin: bool

    @property
    def vocab_size(self) -> int: ...

    @property
    def ordinary_id(self) -> int: ...

    def encode(self, text: str, *, begin: bool = False, special: bool = False) -> list[int]:
        """Ids of a text. `special`: names of control tokens in it, such as `</s>`, become these tokens, as texts made
        by a chat template need; otherwise they are text like any other, as texts of strangers should be."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; control tokens give nothing."""
        ...

    def piece(self, token: int) -> str:
        """The name of an id in the vocabulary."""
        ...


def require_text(text: object) -> None:
    """TypeError for anything but one text."""
    if not isinstance(text, str):
        raise TypeError(f"text is {text!r:.60}; it must be one str")


def known_ids(ids: Iterable[int], vocab_size: int) -> list[int]:
    """The ids to decode, as ints. TypeError for anything but whole numbers, ValueError for ids that are not tokens."""
    known = []
    for position, token in enumerate(ids):
        try:
            known.append(operator.index(token))
        except TypeError:
            raise TypeError(f"ids[{position}] is {token!r:.60}; it must be a whole number") from None
        if not 0 <= known[-1] < vocab_size:
            raise ValueError(f"ids[{position}] is {token}; it must be 0 to {vocab_size - 1}")
    return known


def control_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Finds the names of control tokens in a text, the longest that fits; never the empty one."""
    return re.compile(
        "|".join(re.escape(name) for name in sorted(filter(None, names), key=len, reverse=True)) or r"(?!)"
    )


# The longest text in Unicode's own map (NFKC) has 33 bytes.
_MOST_GROWTH = 1000


class Tokenizer:
    """A SentencePiece model. `model` is its file's content.

    What a model does not say, or other files say better, can be given: see `TextTokenizer`.
    """

    def __init__(
        self,
        model: bytes,
        source: str | os.PathLike[str] = "tokenizer",
        *,
        begin_id: int | None = None,
        end_ids: Iterable[int] | None = None,
        adds_begin: bool | None = None,
    ):
        self.model = model
        try:
            growth = most_growth(model)
        except ValueError as error:
            raise FormatError(source, f"is not a SentencePiece model ({error})") from error
        if growth > _MOST_GROWTH:
            raise FormatError(source, f"makes {growth} bytes of a character; it may be {_MOST_GROWTH}")
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, OSError, UnicodeDecodeError) as error:  # the last, of its own sentence with a piece in it
            raise FormatError(source, f"is not a SentencePiece model ({error})") from error
        if self.vocab_size == 0:
            raise FormatError(source, "is not a SentencePiece model, or has no pieces")
        for token in range(self.vocab_size):  # SentencePiece loads such a piece, and fails when a text has it
            try:
                self._processor.id_to_piece(token)
            except UnicodeDecodeError as error:
                raise FormatError(source, f"piece {token} is not UTF-8 ({error.reason})") from error
        self.begin_id = self._processor.bos_id() if begin_id is None else begin_id
        self.end_ids = frozenset({self.end_id} - {-1} if end_ids is None else end_ids)
        self.adds_begin = self.begin_id >= 0 if adds_begin is None else adds_begin

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Reads a tokenizer file."""
        return cls(read_regular(path, TOKENIZER_MODEL_BYTES), path)

    @property
    def vocab_size(self) -> int:
        return self._processor.vocab_size()

    @property
    def end_id(self) -> int:
        """The id that ends a text, -1 when this tokenizer has none."""
        return self._processor.eos_id()

    @property
    def unknown_id(self) -> int:
        """The id of what the vocabulary lacks and cannot spell."""
        return self._processor.unk_id()

    @property
    def pad_id(self) -> int:
        """The id that fills up a batch, -1 when this tokenizer has none."""
        return self._processor.pad_id()

    @functools.cached_property
    def line_ends_apart(self) -> bool:
        """Whether a line end is a token of its own whatever is beside it, so that a text may be cut after one."""
        model = PieceModel.from_bytes(self.model)
        alters = model.add_dummy_prefix or model.remove_extra_whitespaces or model.normalises
        apart = (piece for piece, kind in zip(model.pieces, model.kinds, strict=True) if kind == USER_DEFINED)
        return not alters and "\n" in apart

    @property
    def ordinary_id(self) -> int:
        """Some id that stands for text, rather than for a byte or a control."""
        special = (
            self._processor.is_control,
            self._processor.is_unknown,
            self._processor.is_unused,
            self._processor.is_byte,
        )
        ordinary = (token for token in range(self.vocab_size) if not any(check(token) for check in special))
        return next(ordinary, 0)

    def encode(self, text: str, *, begin: bool = False, end: bool = False, special: bool = False) -> list[int]:
        """Ids of a text, between the begin and end ids when asked for. `special` as in `TextTokenizer`; the text after
        a control token starts again, with the space that some models put before a text."""
        require_text(text)
        if special:
            ids, at = [], 0
            for match in self._controls.finditer(text):
                ids += self._processor.encode(text[at : match.start()], out_type=int)
                ids.append(self._processor.piece_to_id(match[0]))
                at = match.end()
            ids += self._processor.encode(text[at:], out_type=int)
        else:
            ids = self._processor.encode(text, out_type=int)
        if begin and self.begin_id >= 0:
            ids.insert(0, self.begin_id)
        if end and self.end_id >= 0:
            ids.append(self.end_id)
        return ids

    @functools.cached_property
    def _controls(self) -> re.Pattern[str]:
        processor = self._processor
        return control_pattern(self.piece(token) for token in range(self.vocab_size) if processor.is_control(token))

    def piece(self, token: int) -> str:
        """The name of an id in the vocabulary."""
        if not 0 <= token < self.vocab_size:
            raise ValueError(f"the id is {token}; it must be 0 to {self.vocab_size - 1}")
        return self._processor.id_to_piece(token)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; pad, begin and end give nothing."""
        return self._processor.decode(known_ids(ids, self.vocab_size))


def encode_texts(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[np.ndarray]:
    """Ids of texts, each between the begin and end ids, in arrays that are ready for `write_shard`."""
    for text in texts:
        yield np.array([tokenizer.begin_id] if tokenizer.begin_id >= 0 else [], np.int64)
        for block in text_blocks(tokenizer, text):
            yield np.array(tokenizer.encode(block), np.int64)
        yield np.array([tokenizer.end_id] if tokenizer.end_id >= 0 else [], np.int64)


def text_blocks(tokenizer: TextTokenizer, text: str) -> Iterator[str]:
    """Parts of a text, one at least, whose ids one after the other are those of the text."""
    if not text or not (isinstance(tokenizer, Tokenizer) and tokenizer.line_ends_apart):
        yield text
        return
    start = 0
    while start < len(text):
        end = text.find("\n", start + _BLOCK)
        end = len(text) if end < 0 else end + 1
        yield text[start:end]
        start = end


class StreamDecoder:
    """Turns ids into text as they come, holding back the bytes of a character that is not complete yet."""

    _LONGEST = 4  # bytes of a character in UTF-8, so what is older than this many byte pieces is final

    def __init__(self, tokenizer: TextTokenizer):
        self._tokenizer = tokenizer
        # Some models drop the space at the start of a text, so what is decoded never starts with the new tokens.
        self._anchor = tokenizer.ordinary_id
        self._start = len(tokenizer.decode([self._anchor]))
        self._held: list[int] = []

    def push(self, token: int) -> str:
        """The text that this token completes. Ids that a model has beyond those of its tokenizer have none."""
        if token < self._tokenizer.vocab_size:
            self._held.append(token)
        text = self._text()
        incomplete = len(text) - len(text.rstrip("\N{REPLACEMENT CHARACTER}"))
        if 0 < incomplete < self._LONGEST:
            return ""
        self._held.clear()
        return text

    def flush(self) -> str:
        """What was held back when the text ends."""
        text = self._text()
        self._held.clear()
        return text

    def _text(self) -> str:
        return self._tokenizer.decode([self._anchor, *self._held])[self._start :]
