"""A conversation with a model: its history, and what of it the model sees."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator

from .language_model import Flag, LanguageModel
from .sampling import GREEDY, Sampling

#: The share of the context that is kept free for an answer, where the history could fill it all.
_ROOM = 1 / 8


class Turns(ABC):
    """The turns of a user and a model, whoever runs the model.

    `messages` is the whole history. When it no longer fits into the context, `left_out` counts how many of its
    messages, the oldest but that of the system, the model does not see any more.
    """

    def __init__(self, system: str | None, sampling: Sampling, max_new_tokens: int | None):
        self.sampling = sampling
        self.max_new_tokens = max_new_tokens
        self.messages: list[dict[str, str]] = []
        self.left_out = 0
        self.system = system
        self._turns = 0

    def clear(self) -> None:
        """Forgets all turns; the system's message stays."""
        self.messages.clear()
        self.left_out = 0

    def answer(self, text: str, cancel: Flag | None = None) -> Iterator[str]:
        """The answer to `text`, piece by piece. Both become part of the history, an answer that was stopped as far as
        it came; without an answer neither does. Turn n draws with seed + n. ValueError when the text alone is too long.
        """
        self.messages.append({"role": "user", "content": text})
        answer = ""
        try:
            sampling = dataclasses.replace(self.sampling, seed=self.sampling.seed + self._turns)
            self._turns += 1
            for piece in self._pieces(sampling, cancel):
                answer += piece
                yield piece
        finally:
            # Without the space that begins most answers: templates write it themselves, or the model does again.
            if answer.strip():
                self.messages.append({"role": "assistant", "content": answer.strip()})
            else:
                self.messages.pop()

    @abstractmethod
    def _pieces(self, sampling: Sampling, cancel: Flag | None) -> Iterator[str]:
        """The answer to the messages, the last of which is the user's."""

    def _head(self) -> list[dict[str, str]]:
        return [] if self.system is None else [{"role": "system", "content": self.system}]


class Conversation(Turns):
    """Turns of a user and a model in the form of the model's chat template.

    A turn costs the tokens that are new in it, since the model's cache holds the others, as long as the template gives
    them back unchanged.
    """

    def __init__(
        self,
        model: LanguageModel,
        system: str | None = None,
        sampling: Sampling = GREEDY,
        max_new_tokens: int | None = None,
    ):
        super().__init__(system, sampling, max_new_tokens)
        self.model = model

    @property
    def context(self) -> int:
        """How many tokens the model sees."""
        return self.model.context

    def check(self) -> None:
        """Puts a short question into the model's template, as the first one would be. FormatError when the template
        cannot be used, so that a conversation need not begin to find it out."""
        self.model.chat_ids([*self._head(), {"role": "user", "content": "Hello"}])

    def _pieces(self, sampling: Sampling, cancel: Flag | None) -> Iterator[str]:
        return self.model.chat(self._visible(), self.max_new_tokens, sampling, cancel=cancel)

    def _visible(self) -> list[dict[str, str]]:
        """The messages that the model sees: the system's and the newest exchanges that leave room for an answer."""
        head = self._head()
        room = self.max_new_tokens if self.max_new_tokens is not None else int(self.model.context * _ROOM)
        while True:
            visible = head + self.messages[self.left_out :]
            length = len(self.model.chat_ids(visible))
            if length + room <= self.model.context:
                return visible
            if self.left_out + 2 >= len(self.messages):
                if length <= self.model.context:
                    return visible  # with what room there is
                raise ValueError(
                    f"the message and the system message have {length} tokens; the context has room for "
                    f"{self.model.context}"
                )
            self.left_out += 2  # a question and its answer
