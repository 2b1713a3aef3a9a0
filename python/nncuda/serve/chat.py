"""/v1/chat/completions: answers a conversation, in the form of the model's chat template."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import FormatError
from ..infer import LanguageModel
from ..infer.language_model import PLAIN_STOPS
from .answers import Answer, check_bias, check_choices, check_length, new_id, samplings
from .api import ApiError
from .calling_ids import call_id
from .completions import end_ids, stream_usage
from .constraints import Formats
from .fields import Checker
from .logprobs import ChatLogprobs, TokenNames
from .messages import place_of_tools, plain_messages
from .names import Names
from .service import Generation
from .tool_calls import Arguments, Call, CallForm, Piece, ToolCallReader, Words, call_form, control_tokens
from .tools import Tools, requested_tools


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

    def mark(self, token: int) -> str:
        return ""

    def begin(self, index: int) -> dict[str, Any]:
        return _changed(index, {"role": "assistant", "content": ""})

    def pieces(self, index: int, text: str, logprobs: dict[str, Any] | None) -> list[dict[str, Any]]:
        return [_changed(index, {"content": text}, logprobs)]

    def end(self, index: int, finish: str) -> list[dict[str, Any]]:
        return [_changed(index, {}, finish=finish)]


class CallingForm(ChatForm):
    """Texts that may call tools, as messages of an assistant. `id` is that of the answer, which ids of calls are made
    of; `marks` are those texts of the form that are control tokens."""

    def __init__(self, id: str, tools: Tools, form: CallForm, marks: Mapping[str, int]):
        self._digits = id[-32:]
        self._marks = {token: text for text, token in marks.items()}
        self._tools, self._form = tools, form
        self._readers: defaultdict[int, ToolCallReader] = defaultdict(self._reader)

    def _reader(self) -> ToolCallReader:
        return ToolCallReader(self._form, self._tools.names, self._tools.parallel)

    def mark(self, token: int) -> str:
        return self._marks.get(token, "")

    def choice(self, index: int, text: str, finish: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        reader = self._reader()
        content, calls = "", []
        for piece in reader.push(text) + reader.end():
            match piece:
                case Words():
                    content += piece.text
                case Call():
                    calls.append(self._begun(index, piece))
                case Arguments():
                    calls[piece.index]["function"]["arguments"] += piece.text
        found = super().choice(index, content, _finish(reader, finish), logprobs)
        if calls:
            found["message"] |= {"content": content or None, "tool_calls": calls}
        return found

    def begin(self, index: int) -> dict[str, Any]:
        return _changed(index, {"role": "assistant", "content": None})

    def pieces(self, index: int, text: str, logprobs: dict[str, Any] | None) -> list[dict[str, Any]]:
        deltas = [self._delta(index, piece) for piece in self._readers[index].push(text)]
        if not deltas and logprobs is not None:
            deltas.append({"content": ""})
        return [_changed(index, delta, None if number else logprobs) for number, delta in enumerate(deltas)]

    def end(self, index: int, finish: str) -> list[dict[str, Any]]:
        reader = self._readers[index]
        rest = [_changed(index, self._delta(index, piece)) for piece in reader.end()]
        return rest + super().end(index, _finish(reader, finish))

    def _delta(self, index: int, piece: Piece) -> dict[str, Any]:
        match piece:
            case Words():
                return {"content": piece.text}
            case Call():
                return {"tool_calls": [{"index": piece.index, **self._begun(index, piece)}]}
            case Arguments():
                return {"tool_calls": [{"index": piece.index, "function": {"arguments": piece.text}}]}

    def _begun(self, index: int, call: Call) -> dict[str, Any]:
        """A call without its arguments."""
        return {
            "id": call_id(self._digits, index, call.index),
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }


def _finish(reader: ToolCallReader, finish: str) -> str:
    return "tool_calls" if reader.count and finish == "stop" else finish


def _changed(
    index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None, finish: str | None = None
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


class Chat:
    """Makes answers of bodies, for one model by its names, of at most `places` texts each."""

    path = "/v1/chat/completions"

    def __init__(self, model: LanguageModel, names: Names, formats: Formats, places: int):
        self._model = model
        self._models = names
        self._names = TokenNames(model.tokenizer)
        self._formats = formats
        self._places = places
        self._checker = Checker("chat", self.path)

    def prepare(self, body: dict[str, Any]) -> Answer:
        """The answers that a body asks for, not submitted yet. ApiError for one that is wrong."""
        values = self._checker.check(body)
        name, adapter = self._models.find(values["model"])
        usage = stream_usage(values)
        check_choices(values["n"], self._places)
        ends = end_ids(self._model, values)
        check_bias(values["logit_bias"], self._model.config.vocab_size)
        tools = requested_tools(values, "response_format", values["response_format"])
        messages = plain_messages(values["messages"])
        prompt, calls = conversation(self._model, messages, "messages", tools, place_of_tools(messages))
        length = self._model.room(prompt)
        asked = self._asked(values)
        if asked is not None:
            length = min(length, asked)
        stop = answer_stops(self._model, values)
        alternatives = self._alternatives(values)
        grammar = self._formats.of(values["response_format"])
        form, identity = ChatForm(), new_id(ChatForm.id_prefix)
        if tools is not None:
            assert calls is not None and self._model.tokenizer is not None
            marks = control_tokens(calls, self._model.tokenizer, self._names)
            grammar = self._formats.of_calls(tools, calls, marks)
            form = CallingForm(identity, tools, calls, marks)
        generations = [
            Generation(
                prompt,
                length,
                how,
                end_ids=ends,
                stop=stop,
                logprobs=alternatives,
                constraint=None if grammar is None else grammar.constraint(),
                adapter=adapter,
            )
            for how in samplings(values)
        ]
        return Answer(
            form,
            name,
            generations,
            len(prompt),
            values["stream"],
            usage,
            values["user"],
            names=None if alternatives is None else self._names,
            id=identity,
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


def conversation(
    model: LanguageModel, messages: list[dict[str, Any]], name: str, tools: Tools | None, place: str | None
) -> tuple[np.ndarray, CallForm | None]:
    """The ids of a conversation whose field has that name, and the form in which the model calls tools. `place` is
    where the messages first have something of tools. ApiError for a conversation that the model cannot read."""
    if model.tokenizer is None:
        raise ApiError("no_tokenizer", name, name=name)
    template = model.stored.chat_template
    calls = call_form(template.template)
    place = place if tools is None else "tools"
    if calls is None and place is not None:
        raise ApiError("no_tools", place, name=place)
    try:
        ids = template.ids(model.tokenizer, messages, variables={} if tools is None else {"tools": tools.shown})
    except FormatError as error:
        raise ApiError("template_failed", name, why=error) from None
    check_length(len(ids), model.context, name)
    return model.engine.check_ids(ids), calls


def answer_stops(model: LanguageModel, values: dict[str, Any]) -> list[str]:
    """The strings that end an answer: those of the request, and the next turn's where the model has no template."""
    return [*(values["stop"] or ()), *(PLAIN_STOPS if model.stored.chat_template.plain else ())]
