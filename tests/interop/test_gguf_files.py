"""A GGUF file that the `gguf` package wrote, recorded by `make interop`, read here."""

from __future__ import annotations

from pathlib import Path

import gguf_file_cases as cases
import numpy as np

from nncuda.formats.gguf import GGUFFile

RECORDED = Path(__file__).parent / "recorded" / "by_gguf_package.gguf"


def check_theirs(path: Path) -> None:
    """Everything in the file is what `gguf_file_cases` says."""
    file = GGUFFile(path)
    assert file.metadata["general.architecture"] == "llama"
    for kind, value in cases.SCALARS.items():
        assert file.typed[f"one.{kind}"].type == kind
        assert file.metadata[f"one.{kind}"] == value
    for name, values in cases.ARRAYS.items():
        assert list(file.metadata[f"many.{name}"]) == values
    tensors = cases.tensors()
    assert list(file) == list(tensors)
    for name, (format_name, shape, data) in tensors.items():
        assert (file[name].format, file[name].shape) == (format_name, shape)
        np.testing.assert_array_equal(file[name].data, data)


def test_a_file_of_the_gguf_package_is_read() -> None:
    check_theirs(RECORDED)
