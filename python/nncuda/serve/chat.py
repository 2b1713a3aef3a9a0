"""/v1/chat/completions: answers a conversation, in the form of the model's chat template."""

from __future__ import annotations

from typing import Any

from ..formats import FormatError
from ..infer import LanguageModel
from ..infer.language_model import PLAIN_STOPS
from .answers import Answer, check_bias, check_choices, check_length, samplings
from .api import ApiError
from .completions import check_model, end_ids, stream_usage
from .constraints import Formats
from .fields import Checker
from .logprobs import ChatLogprobs, TokenNames
from .messages import plain_messages
from .service import Generation


class ChatForm:
    """Texts as messages of an assistant."""

    id_prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def logprobs(self, names: TokenNames) -> ChatLogprobs:
        return ChatLogprobs(names)

    def choice(self, index: int, text: str, finish: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def begin(self, index: int) -> dict[str, Any]:
        return self._delta(index, {"role": "assistant", "content": ""}, None, None)

    def piece(self, index: int, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        return self._delta(index, {"content": text}, None, logprobs)

    def end(self, index: int, finish: str) -> dict[str, Any]:
        return self._delta(index, {}, finish, None)

    @staticmethod
    def _delta(
        index: int, delta: dict[str, Any], finish: str | None, logprobs: dict[str, Any] | None
    ) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


class Chat:
    """Makes answers of bodies, for one model by its name, of at most `places` texts each."""

    path = "/v1/chat/completions"

    def __init__(self, model: LanguageModel, name: str, formats: Formats, places: int):
        self._model = model
        self._name = name
        self._names = TokenNames(model.tokenizer)
        self._formats = formats
        self._places = places
        self._checker = Checker("chat", self.path)

    def prepare(self, body: dict[str, Any]) -> Answer:
        """The answers that a body asks for, not submitted yet. ApiError for one that is wrong."""
        values = self._checker.check(body)
        check_model(values["model"], self._name)
        usage = stream_usage(values)
        check_choices(values["n"], self._places)
        ends = end_ids(self._model, values)
        check_bias(values["logit_bias"], self._model.config.vocab_size)
        messages = plain_messages(values["messages"])
        if self._model.tokenizer is None:
            raise ApiError("no_tokenizer", "messages", name="messages")
        template = self._model.stored.chat_template
        try:
            ids = template.ids(self._model.tokenizer, messages)
        except FormatError as error:
            raise ApiError("template_failed", "messages", why=error) from None
        check_length(len(ids), self._model.context, "messages")
        prompt = self._model.engine.check_ids(ids)
        length = self._model.room(prompt)
        asked = self._asked(values)
        if asked is not None:
            length = min(length, asked)
        stop = [*(values["stop"] or ()), *(PLAIN_STOPS if template.plain else ())]
        alternatives = self._alternatives(values)
        grammar = self._formats.of(values["response_format"])
        generations = [
            Generation(
                prompt,
                length,
                how,
                end_ids=ends,
                stop=stop,
                logprobs=alternatives,
                constraint=None if grammar is None else grammar.constraint(),
            )
            for how in samplings(values)
        ]
        return Answer(
            ChatForm(),
            self._name,
            generations,
            len(prompt),
            values["stream"],
            usage,
            values["user"],
            names=None if alternatives is None else self._names,
        )

    @staticmethod
    def _alternatives(values: dict[str, Any]) -> int | None:
        """How many likely tokens are to come with each one's log-probability; None for no log-probabilities."""
        if values["logprobs"]:
            return values["top_logprobs"] or 0
        if values["top_logprobs"] is not None:
            raise ApiError("needs_field", "top_logprobs", name="top_logprobs", other="logprobs")
        return None

    @staticmethod
    def _asked(values: dict[str, Any]) -> int | None:
        """The most tokens, by either of the names."""
        names = ("max_completion_tokens", "max_tokens")
        given = [name for name in names if values[name] is not None]
        if len(given) == 2:
            raise ApiError("both_fields", given[0], name=given[0], other=given[1])
        return values[given[0]] if given else None
