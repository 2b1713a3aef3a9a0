"""The names that requests have for what is served: that of the model, and those of its adapters."""

from __future__ import annotations

from dataclasses import dataclass

from ..infer import LanguageModel
from .api import ApiError


@dataclass(frozen=True)
class Names:
    """`model` is the model without a named adapter. ValueError when an adapter has the same name."""

    model: str
    adapters: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.model in self.adapters:
            raise ValueError(
                f"{self.model!r} is the name of the model and of an adapter; requests must tell them apart"
            )

    @classmethod
    def of(cls, model: LanguageModel, name: str) -> Names:
        """Those of a model that is called `name`, and of its adapters."""
        return cls(name, tuple(model.engine.adapters.names))

    def find(self, asked: str | None) -> tuple[str, str | None]:
        """The name that an answer bears, and the adapter that computes it, None for the model alone. ApiError for a
        name that there is not."""
        if asked is None or asked == self.model:
            return self.model, None
        if asked not in self.adapters:
            there = ", ".join((self.model, *self.adapters))
            raise ApiError("model_not_found", "model", value=asked[:256], model=there)
        return asked, asked
