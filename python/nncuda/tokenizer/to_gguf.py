"""The tokenizer of a folder as the metadata of a GGUF file: the other direction of `gguf`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..formats.errors import FormatError, shown
from ..formats.json_values import read_json
from ..formats.limits import TOKENIZER_JSON_BYTES, TOKENIZER_JSON_MARKS, TOKENIZER_MODEL_BYTES
from ..formats.regular import present, read_regular
from .chat_template import template_from_folder
from .cuts import COMPLETE, CUTS, DIGIT
from .folder import optional_json, token_name, tokenizer_from_folder
from .gguf import BYTE_PIECE, SPACE
from .sentencepiece_model import BPE, BYTE, CONTROL, NORMAL, UNIGRAM, UNKNOWN, UNUSED, USER_DEFINED, PieceModel
from .tokenizer import Tokenizer


def tokenizer_metadata(folder: Path, vocab_size: int) -> dict[str, Any]:
    """Entries of metadata for the tokenizer of `folder`, filled up with unused tokens to the `vocab_size` of the model,
    since readers take the number of tokens for it; and the chat template. FormatError when the tokenizer is of a kind
    that GGUF files have no counterpart of."""
    tokenizer = tokenizer_from_folder(folder)
    if tokenizer is None:
        return {"tokenizer.ggml.model": "none"}
    if present(folder / "tokenizer.model"):
        values, tokens, kinds = _sentencepiece(folder)
    else:
        values, tokens, kinds = _byte_level(folder)
    if len(tokens) > vocab_size:
        raise FormatError(folder, f"has a tokenizer of {len(tokens)} tokens for a model of {vocab_size}")
    missing = vocab_size - len(tokens)
    tokens += [f"[PAD{index}]" for index in range(len(tokens), vocab_size)]
    values["tokenizer.ggml.tokens"] = tokens
    values["tokenizer.ggml.token_type"] = np.array([*kinds, *[UNUSED] * missing], np.int32)
    if "tokenizer.ggml.scores" in values:
        # Other programs look for a user-defined token in the text as it is, where spaces are not ▁ yet.
        known = set(tokens)
        for token, kind in enumerate(kinds):
            spaced = tokens[token].replace(SPACE, " ")
            if kind == USER_DEFINED and spaced not in known:
                tokens[token] = spaced
        scores = values["tokenizer.ggml.scores"]
        values["tokenizer.ggml.scores"] = np.pad(scores, (0, vocab_size - len(scores))).astype(np.float32)
    if tokenizer.begin_id >= 0:
        values["tokenizer.ggml.bos_token_id"] = tokenizer.begin_id
    described = optional_json(folder / "tokenizer_config.json")
    named = token_name(described, "eos_token")
    ends = sorted(tokenizer.end_ids, key=lambda token: (tokens[token] != named, token))
    for key, token in zip(("eos", "eot", "eom"), ends, strict=False):
        values[f"tokenizer.ggml.{key}_token_id"] = token
    if UNKNOWN in kinds:
        values["tokenizer.ggml.unknown_token_id"] = list(kinds).index(UNKNOWN)
    values["tokenizer.ggml.add_bos_token"] = tokenizer.adds_begin
    values["tokenizer.ggml.add_eos_token"] = False
    template = template_from_folder(folder)
    if template is not None:
        values["tokenizer.chat_template"] = template
    return values


def _sentencepiece(folder: Path) -> tuple[dict[str, Any], list[str], list[int]]:
    path = folder / "tokenizer.model"
    content = read_regular(path, TOKENIZER_MODEL_BYTES)
    Tokenizer(content, path)  # SentencePiece checks it
    try:
        model = PieceModel.from_bytes(content)
    except ValueError as error:
        raise FormatError(path, f"is not a SentencePiece model ({error})") from error
    if model.model_type not in (UNIGRAM, BPE):
        raise FormatError(path, "is neither a BPE nor a unigram model; a GGUF file can have these")
    if model.normalises:
        raise FormatError(
            path, "normalises text by a table of its own, which this program does not put into GGUF files"
        )
    tokens, kinds = list(model.pieces), list(model.kinds)
    tokenizer_json = folder / "tokenizer.json"
    whole = read_json(tokenizer_json, TOKENIZER_JSON_BYTES, TOKENIZER_JSON_MARKS) if present(tokenizer_json) else {}
    added = whole.get("added_tokens", [])
    for token, name, kind in _added(tokenizer_json, added):
        if token > len(tokens):
            raise FormatError(tokenizer_json, "has tokens whose ids leave gaps")
        if token == len(tokens):
            tokens.append(name)
            kinds.append(kind)
        elif kinds[token] not in (UNKNOWN, BYTE):
            tokens[token], kinds[token] = name, kind
    scores = np.zeros(len(tokens), np.float32)
    scores[: len(model.scores)] = model.scores
    values: dict[str, Any] = {
        "tokenizer.ggml.model": "llama" if model.model_type == BPE else "t5",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.add_space_prefix": model.add_dummy_prefix,
        "tokenizer.ggml.remove_extra_whitespaces": model.remove_extra_whitespaces,
    }
    return values, tokens, kinds


def _byte_level(folder: Path) -> tuple[dict[str, Any], list[str], list[int]]:
    path = folder / "tokenizer.json"
    content = read_json(path, TOKENIZER_JSON_BYTES, TOKENIZER_JSON_MARKS)
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    steps = _steps(content.get("pre_tokenizer"))
    byte_level = any(step.get("type") == "ByteLevel" for step in steps)
    if not isinstance(model, Mapping) or not isinstance(vocabulary, Mapping) or model.get("type") != "BPE":
        raise FormatError(path, "is not a BPE; a GGUF file needs the tokenizer.model of this tokenizer")
    if model.get("byte_fallback"):
        return _from_merges(path, content, model, vocabulary)
    if not byte_level:
        raise FormatError(path, "is neither a byte-level BPE nor one of SentencePiece; GGUF files have these")
    cut = _cut(path, steps, _steps(content.get("normalizer"), "normalizers"), bool(model.get("ignore_merges", False)))
    names = {token: name for name, token in vocabulary.items()}
    kinds = dict.fromkeys(names, NORMAL)
    for token, name, kind in _added(path, content.get("added_tokens", [])):
        names[token], kinds[token] = name, kind
    if sorted(names) != list(range(len(names))):
        raise FormatError(path, "has tokens whose ids leave gaps")
    merges = [" ".join(merge) for merge in _merges(model)]
    values = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": cut, "tokenizer.ggml.merges": merges}
    order = range(len(names))
    return values, [names[token] for token in order], [kinds[token] for token in order]


def _merges(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    # A merge is "a b" in older files, ["a", "b"] in newer ones; the library has checked them.
    return [tuple(merge.split(" ", 1) if isinstance(merge, str) else merge) for merge in model.get("merges", [])]


def _from_merges(
    path: Path, content: Mapping[str, Any], model: Mapping[str, Any], vocabulary: Mapping[str, int]
) -> tuple[dict[str, Any], list[str], list[int]]:
    """A BPE model of SentencePiece in the form that transformers gives it: merges in their order instead of scores."""
    names = {token: name for name, token in vocabulary.items()}
    kinds = {token: BYTE if BYTE_PIECE.fullmatch(name) else NORMAL for token, name in names.items()}
    for token, name, kind in _added(path, content.get("added_tokens", [])):
        names[token], kinds[token] = name, kind
    unknown = model.get("unk_token") or token_name(optional_json(path.with_name("tokenizer_config.json")), "unk_token")
    if unknown not in vocabulary:
        raise FormatError(
            path, f"has the unknown token {shown(unknown)}, which is none of its tokens; GGUF files need one"
        )
    kinds[vocabulary[unknown]] = UNKNOWN
    if sorted(names) != list(range(len(names))):
        raise FormatError(path, "has tokens whose ids leave gaps")
    # What is merged first has the highest score. Pieces that no merge makes are never chosen by score.
    scores = np.zeros(len(names), np.float32)
    for rank, pair in reversed(list(enumerate(_merges(model)))):
        scores[vocabulary["".join(pair)]] = -rank
    steps = [*_steps(content.get("normalizer"), "normalizers"), *_steps(content.get("pre_tokenizer"))]
    prefix = any(
        step.get("type") == "Prepend" or (step.get("type") == "Metaspace" and step.get("prepend_scheme") != "never")
        for step in steps
    )
    values = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.add_space_prefix": prefix,
        "tokenizer.ggml.remove_extra_whitespaces": False,
    }
    order = range(len(names))
    return values, [names[token] for token in order], [kinds[token] for token in order]


def _steps(whole: Any, parts: str = "pretokenizers") -> list[Mapping[str, Any]]:
    """The steps of a pre-tokenizer or normalizer, which may be a sequence of them."""
    if not isinstance(whole, Mapping):
        return []
    steps = whole.get(parts, [whole])
    return [step for step in steps if isinstance(step, Mapping)] if isinstance(steps, list) else []


def _cut(
    path: Path, steps: Sequence[Mapping[str, Any]], normalizers: Sequence[Mapping[str, Any]], whole_words: bool
) -> str:
    """The name that GGUF files have for a way to cut. A name stands for a normaliser as well, so that one which has
    another normaliser, or none, has no name."""
    expressions = _expressions(steps)
    alike = {
        name: cut for name, cut in CUTS.items() if (cut.expressions, cut.whole_words) == (expressions, whole_words)
    }
    if not alike:
        raise FormatError(path, f"cuts text in a way that has no name in GGUF files here ({', '.join(CUTS)} have)")
    found = [step.get("type") for step in normalizers]
    for name, cut in alike.items():
        if found == ["NFC"] * cut.nfc:
            return name
    normalised = f"normalises it by {', '.join(map(str, found))}" if found else "does not normalise it"
    names = {cut.nfc: name for name, cut in reversed(alike.items())}
    known = " and ".join(f"with {'NFC' if nfc else 'no normaliser'} ({name})" for nfc, name in sorted(names.items()))
    raise FormatError(
        path, f"cuts text as {next(iter(alike))} does and {normalised}; GGUF files have names here for that cut {known}"
    )


def _expressions(steps: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The expressions by which a pre-tokenizer cuts, in the words of `CUTS`; with None where there is no such word."""
    found: list[Any] = []
    for step in steps:
        if step.get("type") == "Split":
            pattern = step.get("pattern")
            expression = pattern.get("Regex") if isinstance(pattern, Mapping) else None
            how = (step.get("behavior"), bool(step.get("invert")))
            # Files made from OpenAI's tokenizers keep the matches and drop what lies between: nothing.
            taken = how == ("Isolated", False) or (how == ("Removed", True) and expression in COMPLETE)
            found.append(expression if taken else None)
        elif step.get("type") == "Digits" and step.get("individual_digits"):
            found.append(DIGIT)
        elif step.get("type") == "ByteLevel" and not step.get("add_prefix_space", True):
            found += CUTS["gpt-2"].expressions if step.get("use_regex", True) else ()
        else:
            found.append(None)
    return tuple(found)


def _added(path: Path, entries: Any) -> list[tuple[int, str, int]]:
    """Ids, names and kinds of the tokens that no merging makes, by id. For the rest that a file says of them, such as
    that one takes the spaces around it, GGUF files have no words."""
    added = []
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, Mapping) or type(entry.get("id")) is not int or type(entry.get("content")) is not str:
            raise FormatError(path, f"added_tokens has {shown(entry)}; each must be an object with id and content")
        added.append((entry["id"], entry["content"], CONTROL if entry.get("special") else USER_DEFINED))
    return sorted(added)
