"""The tokenizer of a model as a run carries it from checkpoint to checkpoint: the files of a folder, byte for byte, or
those that a GGUF file's tokenizer makes.

What a model was published with is more than ids and pieces: the chat template, the names of special tokens, the
defaults of sampling. All of it stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..formats.errors import FormatError, shown
from ..formats.json_values import read_json
from ..formats.limits import COUNT, JSON_BYTES, TEMPLATE_BYTES, TOKENIZER_JSON_BYTES, TOKENIZER_MODEL_BYTES
from ..formats.regular import present, read_regular
from .to_folder import gguf_tokenizer_files, special_ids
from .tokenizer import TextTokenizer

#: The files that are carried, and how many bytes each may have.
TOKENIZER_FILES = {
    "tokenizer.model": TOKENIZER_MODEL_BYTES,
    "tokenizer.json": TOKENIZER_JSON_BYTES,
    "tokenizer_config.json": JSON_BYTES,
    "special_tokens_map.json": JSON_BYTES,
    "added_tokens.json": JSON_BYTES,
    "generation_config.json": JSON_BYTES,
    "chat_template.jinja": TEMPLATE_BYTES,
}

_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def tokenizer_files(folder: Path) -> dict[str, bytes]:
    """What of a tokenizer, and of how texts are generated, a model's folder has. FormatError for a file that cannot be
    read or is too large."""
    return {name: read_regular(folder / name, most) for name, most in TOKENIZER_FILES.items() if present(folder / name)}


class CarriedTokenizer:
    """`contents` of the files by name, and `special_ids`, those that config.json has of begin, end and padding."""

    def __init__(self, contents: Mapping[str, bytes], special_ids: Mapping[str, object]):
        self.contents = dict(contents)
        self.special_ids = dict(special_ids)

    @classmethod
    def of(cls, folder: Path) -> CarriedTokenizer:
        """That of a model's folder, which may have none. FormatError for one that cannot be read or is too large."""
        config = folder / "config.json"
        values = read_json(config)
        ids = {name: values.get(name) for name in _IDS}
        for name, value in ids.items():
            if not all(type(one) is int and 0 <= one <= COUNT for one in _listed(value)):
                problem = (
                    f"{name} is {shown(value)}; it must be a whole number, from 0 to {COUNT}, a list of them, or null"
                )
                raise FormatError(config, problem)
        return cls(tokenizer_files(folder), ids)

    @classmethod
    def of_gguf(cls, tokenizer: TextTokenizer | None, metadata: Mapping[str, Any], source: Path) -> CarriedTokenizer:
        """That of a GGUF file, which has these metadata and may have no tokenizer. FormatError for a chat template that
        is none."""
        if tokenizer is None:
            return cls.none()
        return cls(gguf_tokenizer_files(tokenizer, metadata, source), special_ids(tokenizer))

    @classmethod
    def none(cls) -> CarriedTokenizer:
        """That of a model without one."""
        return cls({}, dict.fromkeys(_IDS))

    @property
    def has_tokenizer(self) -> bool:
        """Whether there is a tokenizer among them."""
        return "tokenizer.model" in self.contents or "tokenizer.json" in self.contents

    def write(self, folder: Path) -> None:
        """Writes the files."""
        for name, content in self.contents.items():
            (folder / name).write_bytes(content)


def _listed(value: object) -> list[object]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
