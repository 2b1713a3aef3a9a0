"""Token ids as callers give them: an array i32 of them, or an error that says what they are instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, Union

import numpy as np

from .device import Tensor
from .errors import OutOfRangeError

#: Ids of one sequence.
Ids: TypeAlias = Union[Sequence[int], np.ndarray, Tensor]  # noqa: UP007

#: Ids of a batch, [batch, length].
IdRows: TypeAlias = Union[Sequence[Sequence[int]], np.ndarray, Tensor]  # noqa: UP007

_TEXTS = "TextGenerator and LanguageModel take texts, and tokenizer.encode(text) makes ids of one"


def token_ids(ids: Any, vocab_size: int, name: str = "ids", also: int | None = None) -> np.ndarray:
    """Ids of any shape as an array i32, in which each is a token of the vocabulary, or `also`.

    Takes arrays, nested sequences and tensors of whole numbers. TypeError for anything else, ValueError for rows of
    different lengths, OutOfRangeError (an IndexError) for an id outside the vocabulary; they call the ids `name`.
    """
    array = whole_numbers(ids, name)
    wrong = (array < 0) | (array >= vocab_size)
    if also is not None:
        wrong &= array != also
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0].tolist())
        rule = f"0 to {vocab_size - 1}" + (f", or {also}" if also is not None else "")
        raise OutOfRangeError(20, f"{_named(name, at)} is {array[at]}; it must be {rule}")
    return np.ascontiguousarray(array, np.int32).reshape(array.shape)


def sequence_ids(ids: Any, vocab_size: int, name: str = "ids") -> np.ndarray:
    """The ids of one sequence, i32 [length], as of `token_ids`. ValueError for another number of dimensions."""
    array = token_ids(ids, vocab_size, name)
    if array.ndim != 1:
        raise ValueError(
            f"{name} has shape {list(array.shape)}; it must have one dimension. Several prompts are a list of prompts"
        )
    return array


def prompt_ids(prompt: Any, vocab_size: int, name: str = "prompt") -> np.ndarray:
    """The ids of one prompt, as of `sequence_ids`; ValueError when there are none."""
    ids = sequence_ids(prompt, vocab_size, name)
    if len(ids) == 0:
        raise ValueError("a prompt must have at least one token; the one that begins a text is enough")
    return ids


def whole_numbers(values: Any, name: str = "ids") -> np.ndarray:
    """An array of whole numbers, whatever their size. TypeError for anything else, ValueError for ragged rows."""
    if isinstance(values, str | bytes):
        raise TypeError(f"{name} is the text {values!r:.60}; it must be token ids: {_TEXTS}")
    try:
        array = values.numpy() if isinstance(values, Tensor) else np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} has rows of different lengths") from error
    if array.dtype.kind in "iu" or array.size == 0:
        return array
    if array.dtype == object and array.ndim == 0:
        raise TypeError(f"{name} is {values!r:.60}; it must be token ids, such as [1, 2, 3]")
    wrong = [at for at, value in np.ndenumerate(array) if not _is_whole(value)]
    if not wrong:
        return array  # objects: whole numbers beyond 64 bits
    # Of floating-point numbers, rather a fraction than 1.0.
    at = next((at for at in wrong if array.dtype.kind == "f" and array[at] % 1), wrong[0])
    value = array[at] if array.dtype == object else array[at].item()
    hint = f": {_TEXTS}" if isinstance(value, str) else ""
    raise TypeError(f"{_named(name, at)} is {value!r:.60}; token ids are whole numbers{hint}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _named(name: str, at: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, at))}]" if at else name
