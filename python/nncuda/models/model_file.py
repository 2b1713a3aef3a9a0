"""A GGUF file in f32, f16 or bf16 as weights of which all are trained."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ..formats.block_formats import FORMATS
from ..formats.errors import FormatError, told_of
from ..tokenizer.carried import CarriedTokenizer
from .parameters import ParameterLayout
from .stored import StoredModel
from .trainable import config_of_all, half_split
from .weights import ModelWeights

_EXPERT = re.compile(r"(.+\.block_sparse_moe)\.experts\.(\d+)\.(w[123]\.weight)")


class ModelFile(ModelWeights):
    """A GGUF file, opened: all of it checked except the values of the tensors, nothing loaded yet. FormatError when it
    is of a model that does not train, or has weights in blocks, of which nothing knows what they were rounded from.

    stored    the model as the file has it
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.stored = StoredModel.open(self.path)
        with told_of(self.path):
            self.config = config_of_all(self.stored.config)
        self.window = self.stored.config.window
        for name in self.stored.tensors:
            tensor = self.stored.tensors.parts(name)[0]
            if FORMATS[tensor.format].numpy is None:
                raise FormatError(
                    self.path,
                    f"tensor {tensor.name} is in {tensor.format}; all weights are trained of files in f32, f16 or "
                    "bf16: give one of these, or --lora-rank for an adapter beside this one",
                )
        self.tensors = _Arrays(self.stored, ParameterLayout(self.config))

    def tokenizer(self) -> CarriedTokenizer:
        """The tokenizer of the file, as folders have one. FormatError when it is wrong."""
        assert self.stored.file is not None  # of a GGUF file
        return CarriedTokenizer.of_gguf(self.stored.tokenizer, self.stored.file.metadata, self.path)


class _Arrays(Mapping[str, np.ndarray]):
    """Arrays by the names of the layout, each made when it is looked up; with half-split pairs of queries and keys."""

    def __init__(self, stored: StoredModel, layout: ParameterLayout):
        self._stored, self._layout = stored, layout

    def __getitem__(self, name: str) -> np.ndarray:
        shape = self._layout[name].shape
        tensors, expert = self._stored.tensors, _EXPERT.fullmatch(name)
        if expert is None:
            return half_split(self._stored.config, name, tensors[name].numbers()).reshape(shape)
        parts, number = tensors.parts(f"{expert[1]}.{expert[3]}"), int(expert[2])
        return parts[number].numbers() if len(parts) > 1 else parts[0].numbers()[number]

    def __iter__(self) -> Iterator[str]:
        return (spec.name for spec in self._layout)

    def __len__(self) -> int:
        return len(self._layout)
