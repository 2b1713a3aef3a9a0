"""Conversations as training takes them: their ids, and which of these the model is to learn to say.

What a model says are the answers of the assistant, up to the token that ends each. A template that marks them, by
`{% generation %}`, is taken at its word. Of any other, an answer is what the text of the messages up to it has beyond
that of those before it with the model's turn opened, which is what the model is given when it answers. In both cases
the ids before an answer must be those that the text before it has alone: a model is never given half a token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .chat_template import ChatTemplate
from .tokenizer import TextTokenizer


def encode_conversation(
    template: ChatTemplate,
    tokenizer: TextTokenizer,
    messages: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Ids of a conversation, int64, and which of them are the assistant's, bool; options as of `ChatTemplate.render`.

    ValueError when the conversation has no answer, or one begins or ends inside a token, or is written in another way
    once more follows it; FormatError when the template fails.
    """
    if not any(message["role"] == "assistant" for message in messages):
        raise ValueError("the conversation has no message of the assistant")
    if template.marks_answers:
        text, places = template.render_marked(messages, variables)
        borders = [(text[:start], text[:stop]) for start, stop in places]
    else:
        text = template.render(messages, add_generation_prompt=False, variables=variables)
        borders = [
            (
                template.render(messages[:number], variables=variables),
                template.render(messages[: number + 1], add_generation_prompt=False, variables=variables),
            )
            for number, message in enumerate(messages)
            if message["role"] == "assistant"
        ]
    ids = template.encode(tokenizer, text)
    counted = np.zeros(len(ids), bool)
    for number, border in enumerate(borders, 1):
        if not all(map(text.startswith, border)):
            raise ValueError(
                f"answer {number}: the chat template writes what is before its end in another way once more follows; "
                "a template that marks answers with {% generation %} can be used"
            )
        start, stop = (_tokens_before(part, ids, template, tokenizer, number) for part in border)
        if not template.marks_answers:
            stop = _end(ids, start, stop, tokenizer)
        counted[start:stop] = True
    if not counted[1:].any():
        raise ValueError("the conversation has no answer with a text")
    return np.array(ids, np.int64), counted


def _tokens_before(part: str, ids: list[int], template: ChatTemplate, tokenizer: TextTokenizer, number: int) -> int:
    """How many of the ids of a text those of its beginning are."""
    before = template.encode(tokenizer, part)
    if ids[: len(before)] != before:
        raise ValueError(
            f"answer {number} begins or ends inside a token, so that a model would not see it as it was told"
        )
    return len(before)


def _end(ids: list[int], start: int, stop: int, tokenizer: TextTokenizer) -> int:
    """Behind the token that ends the answer; what templates write between two messages is not said by the model."""
    ends = [place for place in range(start, stop) if ids[place] in tokenizer.end_ids]
    return ends[-1] + 1 if ends else stop
