"""/tokenize, /detokenize and /tokenizer_info: the ids of a text, and back, and what a client needs to do it itself."""

from __future__ import annotations

from typing import Any

from ..infer import LanguageModel
from ..tokenizer.to_folder import special_ids, transformers_class
from .api import ApiError
from .completions import checked_ids, decode
from .fields import Checker
from .names import Names


class Tokens:
    """The tokenizer of one model, by the model's names."""

    def __init__(self, model: LanguageModel, names: Names):
        self._model = model
        self._models = names
        self._tokenize = Checker("tokenize", "/tokenize")
        self._detokenize = Checker("detokenize", "/detokenize")

    def tokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        """The ids of a text, with the room of the model's context."""
        values = self._tokenize.check(body)
        self._models.find(values["model"])
        tokenizer = self._tokenizer("prompt")
        ids = tokenizer.encode(values["prompt"], begin=tokenizer.adds_begin and values["add_special_tokens"])
        found = {"count": len(ids), "max_model_len": self._model.context, "tokens": ids}
        if values["return_token_strs"]:
            found["token_strs"] = [tokenizer.piece(token) for token in ids]
        return found

    def detokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        """The text of ids."""
        values = self._detokenize.check(body)
        self._models.find(values["model"])
        self._tokenizer("tokens")
        checked_ids(self._model, values["tokens"], "tokens")
        return {"prompt": decode(self._model, values["tokens"])}

    def info(self) -> dict[str, Any]:
        """What the tokenizer_config.json of a folder says: names and ids of special tokens, the chat template (None for
        a model without), the class of transformers that such a tokenizer has. `eos_token` is the end that the template
        knows, else the first of the ids that end a text."""
        tokenizer, template = self._tokenizer("/tokenizer_info"), self._model.stored.chat_template
        ids = special_ids(tokenizer)

        def name(token: int | None) -> str | None:
            return None if token is None else tokenizer.piece(token)

        return {
            "tokenizer_class": transformers_class(tokenizer),
            "vocab_size": tokenizer.vocab_size,
            "model_max_length": self._model.context,
            "add_bos_token": tokenizer.adds_begin and tokenizer.begin_id >= 0,
            "add_eos_token": False,
            "bos_token": name(ids["bos_token_id"]),
            "eos_token": template.end or name(min(tokenizer.end_ids, default=None)),
            "pad_token": name(ids["pad_token_id"]),
            **ids,
            "chat_template": None if template.plain else template.template,
        }

    def _tokenizer(self, name: str) -> Any:
        if self._model.tokenizer is None:
            raise ApiError("no_tokenizer", name, name=name)
        return self._model.tokenizer
