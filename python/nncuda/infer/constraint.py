"""What the tokens of a request must obey: a grammar, a schema, a list of answers."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from .drawing import mask_words


class Constraint(Protocol):
    """Says after each token which may be next. It belongs to one request; its methods are called on the host, between
    steps, and by one thread at a time.

    A mask has a bit a token, in words of 32 from the lowest bit up (int32 or uint32), 1 where the token is allowed, as
    llguidance and XGrammar make them. It may have fewer words than the vocabulary needs: ids beyond are not allowed.
    """

    def mask(self) -> np.ndarray:
        """The tokens that are allowed next. None of them: the text ends here."""
        ...

    def accept(self, token: int) -> None:
        """A token was drawn, which the last mask allowed, and it does not end the text."""
        ...


def checked_mask(mask: np.ndarray, vocab: int) -> np.ndarray:
    """A mask as the device has it, i32 [mask_words(vocab)], without bits beyond the vocabulary. TypeError when it is no
    array of words."""
    array = np.asarray(mask)
    if array.ndim != 1 or array.dtype not in (np.int32, np.uint32):
        raise TypeError(f"the mask is {array.dtype} of shape {array.shape}; it must be int32 or uint32 [words]")
    words = mask_words(vocab)
    whole = np.zeros(words, np.int32)
    whole[: len(array)] = array[:words].view(np.int32)
    if vocab % 32:
        whole.view(np.uint32)[-1] &= np.uint32((1 << vocab % 32) - 1)
    return whole
