"""Text from a model and its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..models import MoETransformer
from ..tokenizer import StreamDecoder, Tokenizer
from .contiguous import generate, room
from .sampling import GREEDY, Sampling


class TextGenerator:
    """Continues texts. Every text begins with the tokenizer's begin id, as in training."""

    def __init__(self, model: MoETransformer, tokenizer: Tokenizer):
        if tokenizer.vocab_size != model.config.vocab_size:
            raise ValueError(
                f"the tokenizer has {tokenizer.vocab_size} pieces, the model's vocabulary {model.config.vocab_size}"
            )
        self.model = model
        self.tokenizer = tokenizer

    def stream(self, prompt: str, max_new_tokens: int, sampling: Sampling = GREEDY) -> Iterator[str]:
        """The continuation, piece by piece, as soon as a piece is final. TypeError when the prompt is not a text."""
        ids = self._encode(prompt)
        return self._pieces(generate(self.model, ids, max_new_tokens, sampling, self.tokenizer.end_id))

    def _encode(self, prompt: str) -> list[int]:
        if not isinstance(prompt, str):
            raise TypeError(
                f"prompt is {prompt!r:.60}; it must be a text: generate(model, ids, ...) continues token ids"
            )
        return self.tokenizer.encode(prompt, begin=True)

    def _pieces(self, tokens: Iterator[int]) -> Iterator[str]:
        decoder = StreamDecoder(self.tokenizer)
        for token in tokens:
            if token == self.tokenizer.end_id:
                break
            text = decoder.push(token)
            if text:
                yield text
        rest = decoder.flush()
        if rest:
            yield rest

    def room(self, prompt: str) -> int:
        """How many tokens the model can write after a prompt; 0 when the prompt alone is too long."""
        return room(self.model, len(self._encode(prompt)))

    def complete(self, prompt: str, max_new_tokens: int, sampling: Sampling = GREEDY) -> str:
        """The continuation as a whole."""
        return "".join(self.stream(prompt, max_new_tokens, sampling))


class StopStrings:
    """Ends a text before the first of some strings, and holds back what may be the beginning of one."""

    def __init__(self, strings: Sequence[str]):
        if "" in strings:
            raise ValueError("a stop string is empty; every text would end at once")
        self._strings = tuple(strings)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """What is certain of the text so far, and whether a string came up in it."""
        if not self._strings:
            return text, False
        held = self._held + text
        found = [at for at in (held.find(string) for string in self._strings) if at >= 0]
        if found:
            self._held = ""
            return held[: min(found)], True
        certain = len(held) - max(self._begun(held, string) for string in self._strings)
        self._held = held[certain:]
        return held[:certain], False

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _begun(text: str, string: str) -> int:
        """How many characters at the end of the text are the beginning of the string."""
        most = min(len(text), len(string) - 1)
        return next(length for length in range(most, -1, -1) if text.endswith(string[:length]))
