"""/v1/completions: continues prompts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import OutOfRangeError
from ..infer import LanguageModel
from .answers import Answer, Usage, check_bias, check_choices, check_length, samplings
from .api import WORDS, ApiError
from .constraints import Formats
from .fields import Checker
from .logprobs import CompletionLogprobs, TokenNames
from .names import Names
from .service import Generation


class TextForm:
    """Texts as the older of OpenAI's two routes gives them."""

    id_prefix = "cmpl"
    whole_object = chunk_object = "text_completion"

    def logprobs(self, names: TokenNames) -> CompletionLogprobs:
        return CompletionLogprobs(names)

    def choice(self, index: int, text: str, finish: str | None, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def mark(self, token: int) -> str:
        return ""

    def begin(self, index: int) -> None:
        return None

    def pieces(self, index: int, text: str, logprobs: dict[str, Any] | None) -> list[dict[str, Any]]:
        return [self.choice(index, text, None, logprobs)]

    def end(self, index: int, finish: str) -> list[dict[str, Any]]:
        return [self.choice(index, "", finish, None)]


class Completions:
    """Makes answers of bodies, for one model by its names, of at most `places` texts each."""

    path = "/v1/completions"

    def __init__(self, model: LanguageModel, names: Names, formats: Formats, places: int):
        self._model = model
        self._models = names
        self._names = TokenNames(model.tokenizer)
        self._formats = formats
        self._places = places
        self._checker = Checker("completions", self.path)

    def prepare(self, body: dict[str, Any]) -> Answer:
        """The texts that a body asks for, not submitted yet. ApiError for one that is wrong."""
        values = self._checker.check(body)
        name, adapter = self._models.find(values["model"])
        usage = stream_usage(values)
        check_choices(len(values["prompt"]) * values["n"], self._places)
        ends = end_ids(self._model, values)
        check_bias(values["logit_bias"], self._model.config.vocab_size)
        logprobs = values["logprobs"]
        grammar = self._formats.of(values["response_format"])
        prompts = all_prompt_ids(self._model, values["prompt"], "prompt")
        generations, echoes = [], []
        for given, prompt in zip(values["prompt"], prompts, strict=True):
            echo = self._echo(given, prompt) if values["echo"] else ""
            length = min(values["max_tokens"], self._model.room(prompt))
            for sampling in samplings(values):
                stop = values["stop"] or ()
                generations.append(
                    Generation(
                        prompt,
                        length,
                        sampling,
                        end_ids=ends,
                        stop=stop,
                        logprobs=logprobs,
                        prompt_logprobs=logprobs if values["echo"] else None,
                        constraint=None if grammar is None else grammar.constraint(),
                        adapter=adapter,
                    )
                )
                echoes.append(echo)
        return Answer(
            TextForm(),
            name,
            generations,
            sum(map(len, prompts)),
            values["stream"],
            usage,
            values["user"],
            echoes,
            None if logprobs is None else self._names,
        )

    def _echo(self, given: str | list[int], prompt: np.ndarray) -> str:
        if isinstance(given, str):
            return given
        if self._model.tokenizer is None:
            raise ApiError("no_tokenizer", "echo", name="echo")
        return decode(self._model, prompt.tolist())


def stream_usage(values: dict[str, Any]) -> Usage:
    """Where a stream is to count its tokens."""
    options = values["stream_options"]
    if options is None:
        return Usage.NOWHERE
    if not values["stream"]:
        raise ApiError("needs_field", "stream_options", name="stream_options", other="stream")
    if not options["include_usage"]:
        return Usage.NOWHERE
    return Usage.EVERYWHERE if options["continuous_usage_stats"] else Usage.AT_THE_END


def end_ids(model: LanguageModel, values: dict[str, Any]) -> list[int]:
    """The ids that end a text."""
    if values["stop"] and model.tokenizer is None:
        raise ApiError("no_tokenizer", "stop", name="stop")
    return [] if values["ignore_eos"] or model.tokenizer is None else sorted(model.tokenizer.end_ids)


def all_prompt_ids(model: LanguageModel, prompts: list[str | list[int]], name: str) -> list[np.ndarray]:
    """The ids of prompts in a field of this name. ApiError as `prompt_ids`, by number where there are several."""
    return [
        prompt_ids(model, prompt, name if len(prompts) == 1 else f"{name}[{number}]")
        for number, prompt in enumerate(prompts)
    ]


def prompt_ids(model: LanguageModel, prompt: str | list[int], name: str) -> np.ndarray:
    """The ids of a prompt. ApiError for what the model cannot read."""
    if isinstance(prompt, str):
        if model.tokenizer is None:
            raise ApiError("no_tokenizer", name, name=name)
        ids = model.tokenizer.encode(prompt, begin=model.tokenizer.adds_begin)
    else:
        ids = prompt
    check_length(len(ids), model.context, name)
    return checked_ids(model, ids, name)


def checked_ids(model: LanguageModel, ids: list[int], name: str) -> np.ndarray:
    """Ids as an array. ApiError for one that is outside the vocabulary."""
    try:
        return model.engine.check_ids(ids)
    except OutOfRangeError:
        most = model.config.vocab_size - 1
        at = next(at for at, token in enumerate(ids) if not 0 <= token <= most)
        place = f"{name}[{at}]"
        must = WORDS["token_id"].format(most=most)
        raise ApiError("invalid_value", place, name=place, value=ids[at], must=must) from None


def decode(model: LanguageModel, ids: list[int]) -> str:
    """The text of ids; those that the model has beyond its tokenizer have none."""
    assert model.tokenizer is not None
    size = model.tokenizer.vocab_size
    return model.tokenizer.decode([token for token in ids if token < size])
