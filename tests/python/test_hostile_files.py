"""Files that no program wrote: pipes, devices, links in circles, files of absurd size, JSON made to hurt."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nncuda.cli.options import read_config
from nncuda.formats import (
    FormatError,
    SafetensorsFile,
    TokenShard,
    read_safetensors_folder,
    write_safetensors,
)
from nncuda.formats.json_values import json_lines, json_value, read_json
from nncuda.formats.limits import JSON_BYTES, JSON_MARKS, LINE_BYTES
from nncuda.report import report_html
from nncuda.tokenizer import Tokenizer
from nncuda.tokenizer.chat_template import template_from_folder
from nncuda.tokenizer.folder import tokenizer_from_folder
from nncuda.tokenizer.json_tokenizer import JsonTokenizer
from nncuda.train import read_metrics
from nncuda.train.checkpoint import read_training_state
from nncuda.train.metrics import drop_records
from nncuda.train.record import read_record

READERS: dict[str, Callable[[Path], object]] = {
    "json": read_json,
    "lines": lambda path: list(json_lines(path)),
    "metrics": read_metrics,
    "state": read_training_state,
    "safetensors": SafetensorsFile,
    "shard": TokenShard,
    "tokenizer.model": Tokenizer.load,
    "tokenizer.json": JsonTokenizer.load,
    "toml": read_config,
}
SPECIAL: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": os.mkdir,
    "a link in a circle": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file(reader: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    SPECIAL[kind](path)
    with pytest.raises(FormatError, match="x: cannot be read: ") as caught:
        READERS[reader](path)
    assert ("it is not a regular file" in str(caught.value)) == ("link" not in kind)


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_regular_file_is_not_passed_over(kind: str, tmp_path: Path) -> None:
    """A file that a folder need not have is absent when there is no entry of its name, and only then. Those of runs and
    checkpoints: tests/parity/test_parity_hostile.py."""
    readers = {
        "tokenizer.json": tokenizer_from_folder, "tokenizer.model": tokenizer_from_folder,
        "tokenizer_config.json": tokenizer_from_folder, "chat_template.jinja": template_from_folder,
        "model.safetensors.index.json": read_safetensors_folder, "run.json": read_record, "metrics.jsonl": report_html,
    }  # fmt: skip
    for name, reader in readers.items():
        model = tmp_path / f"with {name}"
        model.mkdir()
        SPECIAL[kind](model / name)
        with pytest.raises(FormatError, match=rf"{name}: cannot be read: "):
            reader(model)


def test_files_of_absurd_size(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for reader, most in (("json", JSON_BYTES), ("state", JSON_BYTES), ("toml", 1 << 16), ("tokenizer.model", 32 << 20),
                         ("tokenizer.json", 64 << 20)):  # fmt: skip
        with open(path, "wb") as file:
            file.truncate(most + 1)
        with pytest.raises(FormatError, match=f"x: has {most + 1} bytes; a file of its kind may have at most {most}"):
            READERS[reader](path)
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # a line without end
    for reader in ("lines", "metrics"):
        with pytest.raises(FormatError, match=f"x: line 1 has more than {LINE_BYTES} bytes"):
            READERS[reader](path)
    with pytest.raises(FormatError, match="status: has more than the 0 bytes that the system gives as its size"):
        read_json("/proc/self/status")


def test_a_tensor_of_a_file_that_changes(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": np.zeros(2, np.float32)})
    file = SafetensorsFile(path)
    write_safetensors(path, {"a": np.zeros(3, np.float32)})
    with pytest.raises(FormatError, match="has changed since it was opened"):
        file.mapped("a")


def test_rules_for_json() -> None:
    deep = b"[" * 513 + b"]" * 513
    assert json_value(deep) and json_value(b'{"a": 1, "b": NaN}')
    assert json_value(b'["' + b"[,:{" * JSON_MARKS + rb'\\", "\",", 1]')
    marks = b"[," * (2 << 20)  # in strings that pass from one piece to the next
    assert json_value(b'["' + marks + b'", "' + marks + rb"\"" + marks + b'"]')
    for text, problem in (
        (b'["' + marks + b'"' + b",1" * JSON_MARKS + b"]", "it has more than 2097152 brackets, commas and colons"),
        (b"[" * 514 + b"]" * 514, "it is nested deeper than 512 levels"),
        (b"[" * 100_000, "it is nested deeper than 512 levels"),
        (b"[" + b"1," * JSON_MARKS + b"1]", "it has more than 2097152 brackets, commas and colons"),
        (b'["\\\\"' + b",1" * JSON_MARKS + b"]", "it has more than 2097152 brackets, commas and colons"),
        (b"9" * 4301, "a whole number has more than 4300 digits"),
        (b'{"a": {"b": 1, "b": 2}}', "the key 'b' is twice in one object"),
        (b'{"%s": 1, "%s": 2}' % (b"a" * 9999, b"a" * 9999), "the key 'aaa"),
        (b"\xff", "utf-8"),
    ):
        with pytest.raises(ValueError, match=problem) as caught:
            json_value(text)
        assert len(str(caught.value)) < 200
    began = time.process_time()
    for hurtful in (b'"' + rb"\"" * (4 << 20), b'"' * (8 << 20), b"[" * (8 << 20), rb"\\" * (4 << 20)):
        with pytest.raises(ValueError):
            json_value(hurtful)
    assert time.process_time() - began < 5


def test_records_of_a_run_that_goes_on(tmp_path: Path) -> None:
    """Lines stay as they are; those after the step are removed, and so is all from the first invalid line on."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        b'{"step": 1, "loss":  1.50}\r\n{"step": "x"}\n{"loss": 1}\n{"step": 3}\n{"step": 2, "loss": NaN}\n'
        b'{"step": %s}\n{"step": 2, "step": 2}\n{"step": 1}\n' % (b"9" * 400)
    )
    drop_records(path, 2)
    kept = b'{"step": 1, "loss":  1.50}\n{"step": "x"}\n{"loss": 1}\n{"step": 2, "loss": NaN}\n'
    assert path.read_bytes() == kept and len(read_metrics(path)) == 4
    path.write_bytes(kept.rstrip())  # the end of the last line was cut off
    drop_records(path, 2)
    assert path.read_bytes() == kept
    for wrong in (b'{"step": %s}' % (b"9" * 5000), b"[" * 100_000, b'{"step": 1}'[:-1], b"[]"):
        path.write_bytes(kept + wrong + b"\n" + kept)
        drop_records(path, 9)
        assert path.read_bytes() == kept
