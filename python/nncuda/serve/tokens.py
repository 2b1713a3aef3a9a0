"""/tokenize and /detokenize: the ids of a text, and back."""

from __future__ import annotations

from typing import Any

from ..infer import LanguageModel
from .api import ApiError
from .completions import check_model, checked_ids, decode
from .fields import Checker


class Tokens:
    """The tokenizer of one model, by the model's name."""

    def __init__(self, model: LanguageModel, name: str):
        self._model = model
        self._name = name
        self._tokenize = Checker("tokenize", "/tokenize")
        self._detokenize = Checker("detokenize", "/detokenize")

    def tokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        """The ids of a text, with the room of the model's context."""
        values = self._tokenize.check(body)
        check_model(values["model"], self._name)
        tokenizer = self._tokenizer("prompt")
        ids = tokenizer.encode(values["prompt"], begin=tokenizer.adds_begin and values["add_special_tokens"])
        found = {"count": len(ids), "max_model_len": self._model.context, "tokens": ids}
        if values["return_token_strs"]:
            found["token_strs"] = [tokenizer.piece(token) for token in ids]
        return found

    def detokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        """The text of ids."""
        values = self._detokenize.check(body)
        check_model(values["model"], self._name)
        self._tokenizer("tokens")
        checked_ids(self._model, values["tokens"], "tokens")
        return {"prompt": decode(self._model, values["tokens"])}

    def _tokenizer(self, name: str) -> Any:
        if self._model.tokenizer is None:
            raise ApiError("no_tokenizer", name, name=name)
        return self._model.tokenizer
