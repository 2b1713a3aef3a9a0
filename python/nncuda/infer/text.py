"""Text from a model and its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator

from ..formats import StreamDecoder, Tokenizer
from ..models import MoETransformer
from .generate import GREEDY, Sampling, generate, room


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
        """The continuation, piece by piece, as soon as a piece is certain."""
        ids = self.tokenizer.encode(prompt, begin=True)
        decoder = StreamDecoder(self.tokenizer)
        for token in generate(self.model, ids, max_new_tokens, sampling, self.tokenizer.end_id):
            if token == self.tokenizer.end_id:
                break
            text = decoder.push(token)
            if text:
                yield text
        rest = decoder.flush()
        if rest:
            yield rest

    def room(self, prompt: str) -> int:
        """How many tokens the model can write behind a prompt; 0 when the prompt alone is too long."""
        return room(self.model, len(self.tokenizer.encode(prompt, begin=True)))

    def complete(self, prompt: str, max_new_tokens: int, sampling: Sampling = GREEDY) -> str:
        """The continuation as a whole."""
        return "".join(self.stream(prompt, max_new_tokens, sampling))
