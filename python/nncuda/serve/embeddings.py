"""/v1/embeddings: the vectors of texts."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.types import Send

from ..infer import LanguageModel
from .answers import check_choices, respond
from .completions import all_prompt_ids
from .fields import Checker
from .names import Names
from .service import Generation
from .wire import json_text


@dataclass
class Vectors:
    """A request for vectors on its way. `generations` are its inputs, which end without a token."""

    model: str
    generations: Sequence[Generation]
    prompt_tokens: int
    user: str | None
    encoded: bool  # in base64
    id: None = None  # OpenAI's have none

    async def send(self, send: Send) -> None:
        """Writes all of them, once the engine has given the last. ApiError when the service fails."""
        for generation in self.generations:
            while (await generation.next()).finish is None:
                pass
        # Thousands of numbers take a while to write, in which others are served.
        whole = await asyncio.get_running_loop().run_in_executor(None, self._whole)
        await respond(send, 200, "application/json", whole)

    def _whole(self) -> bytes:
        data = [
            {"object": "embedding", "index": index, "embedding": self._written(generation)}
            for index, generation in enumerate(self.generations)
        ]
        usage = {"prompt_tokens": self.prompt_tokens, "total_tokens": self.prompt_tokens}
        return json_text({"object": "list", "data": data, "model": self.model, "usage": usage}).encode()

    def _written(self, generation: Generation) -> str | list[float]:
        vector = generation.request.embedding
        if vector is None or not np.isfinite(vector).all():
            raise RuntimeError("the model gives a text a vector that is not finite, which JSON cannot have")
        if self.encoded:
            return base64.b64encode(vector.astype("<f4").tobytes()).decode()
        numbers: list[float] = vector.tolist()
        return numbers


class Embeddings:
    """Makes answers of bodies, for one model by its names, of at most `places` inputs each."""

    path = "/v1/embeddings"

    def __init__(self, model: LanguageModel, names: Names, places: int):
        self._model = model
        self._models = names
        self._places = places
        self._checker = Checker("embeddings", self.path)

    def prepare(self, body: dict[str, Any]) -> Vectors:
        """The inputs of a body, not submitted yet. ApiError for one that is wrong."""
        values = self._checker.check(body)
        name, adapter = self._models.find(values["model"])
        given = values["input"]
        check_choices(len(given), self._places)
        ids = all_prompt_ids(self._model, given, "input")
        generations = [Generation(one, 0, embed=True, adapter=adapter) for one in ids]
        encoded = values["encoding_format"] == "base64"
        return Vectors(name, generations, sum(map(len, ids)), values["user"], encoded)
