"""Fixtures of tokenizers that the library `tokenizers` runs, and of those in GGUF files: what Python gives for each.

    python tests/tokenizer/library_generate.py           writes the expectations anew from the folders that lie here
    python tests/tokenizer/library_generate.py --train   trains those folders first

README.md beside this file says what the files hold.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from library_made import FOLDERS
from tokenizer_generate import decoded, encoded, lines
from tokenizer_texts import SPECIAL_TEXTS

from nncuda.tokenizer.folder import tokenizer_from_folder
from nncuda.tokenizer.gguf import tokenizer_from_gguf
from nncuda.tokenizer.to_gguf import tokenizer_metadata
from nncuda.tokenizer.tokenizer import TextTokenizer

FOLDER = Path(__file__).parent / "library"

#: GGUF metadata by name: the folder they are of, or the SentencePiece model, and how many unused tokens fill them up.
METADATA = {
    "gguf_gpt2": ("gpt2", 0),
    "gguf_llama3": ("llama3", 3),
    "gguf_digits": ("digits", 0),
    "gguf_o200k": ("o200k", 2),
    "gguf_llama2": ("llama2", 0),
    "gguf_gemma": ("gemma", 0),
    "gguf_llama_bpe": ("llama_bpe.model", 4),
    "gguf_own_unigram": ("own_unigram.model", 0),
}


def train() -> None:
    """Writes the folders and the metadata."""
    for name, make in FOLDERS.items():
        folder = FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        library, described = make()
        content = json.loads(library.to_str())
        (folder / "tokenizer.json").write_text(lines(content, 2) + "\n", encoding="ascii")
        (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=1) + "\n", encoding="ascii")
    for name, (source, unused) in METADATA.items():
        (FOLDER / f"{name}.json").write_text(lines(_written(_metadata(source, unused)), 1) + "\n", encoding="ascii")


def _metadata(source: str, unused: int) -> dict[str, Any]:
    if not source.endswith(".model"):
        size = tokenizer_from_folder(FOLDER / source).vocab_size  # type: ignore[union-attr]
        return tokenizer_metadata(FOLDER / source, size + unused)
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.model").write_bytes((FOLDER.parent / source).read_bytes())
        size = tokenizer_from_folder(Path(folder)).vocab_size  # type: ignore[union-attr]
        return tokenizer_metadata(Path(folder), size + unused)


def _written(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as JSON: a list of numbers is of whole ones or of others, as all of them are."""
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in metadata.items()}


def read(path: Path) -> dict[str, Any]:
    """Metadata of a file, as a reader of GGUF files gives them."""
    return metadata_of(json.loads(path.read_text(encoding="ascii")))


def metadata_of(written: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as a writer of GGUF files takes them, or as JSON, in the form in which a reader gives them."""
    return {key: _value(value) for key, value in written.items()}


def _value(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if all(isinstance(entry, str) for entry in value):
        return _Strings(value)
    return np.array(value, np.float32 if any(isinstance(entry, float) for entry in value) else np.int32)


def _strings() -> type:
    from nncuda.formats.gguf import StringArray

    class Strings(StringArray):
        """Strings that are no part of a file."""

        def __init__(self, values: list[str]):
            self._values = values

        def __len__(self) -> int:
            return len(self._values)

        def __getitem__(self, index: Any) -> Any:
            return self._values[index]

    return Strings


_Strings = _strings()


def tokenizers() -> Iterator[tuple[str, TextTokenizer]]:
    """Each tokenizer by its name."""
    for name in FOLDERS:
        made = tokenizer_from_folder(FOLDER / name)
        assert made is not None
        yield name, made
    for name in METADATA:
        made = tokenizer_from_gguf(read(FOLDER / f"{name}.json"), name)
        assert made is not None
        yield name, made


def expected(tokenizer: TextTokenizer) -> dict[str, Any]:
    """What Python says about a tokenizer."""
    return {
        "vocab_size": tokenizer.vocab_size,
        "begin_id": tokenizer.begin_id,
        "end_ids": sorted(tokenizer.end_ids),
        "adds_begin": tokenizer.adds_begin,
        "ordinary_id": tokenizer.ordinary_id,
        "pieces": [tokenizer.piece(token) for token in range(0, tokenizer.vocab_size, 7)],
        "encode": {**dict(encoded(tokenizer)), **dict(encoded(tokenizer, SPECIAL_TEXTS))},
        "encode_special": dict(encoded(tokenizer, SPECIAL_TEXTS, special=True)),
        "decode": list(decoded(tokenizer, _halves(tokenizer))),
    }


def _halves(tokenizer: TextTokenizer) -> Iterator[list[int]]:
    """Characters of several ids, cut in the middle or followed by what does not belong to them; ids without a token."""
    for text in ("🏽", "क्ष猫", "é!", "a 🙂"):
        ids = tokenizer.encode(text)
        yield from (ids, ids[:-1], ids[1:], [*ids[:-1], *tokenizer.encode(" b")], [*ids, *ids[:1]])


def files() -> dict[str, str]:
    """Name and content of each file of expectations."""
    found = {"texts.json": lines([{"name": name, "text": text} for name, text in SPECIAL_TEXTS.items()], 1) + "\n"}
    for name, tokenizer in tokenizers():
        found[f"{name}.expected.json"] = lines(expected(tokenizer), 2) + "\n"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help="train the folders anew, too")
    if parser.parse_args().train:
        train()
    for name, content in files().items():
        (FOLDER / name).write_text(content, encoding="ascii")


if __name__ == "__main__":
    main()
