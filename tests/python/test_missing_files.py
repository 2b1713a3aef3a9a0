"""A file that cannot be read is a FormatError and the OSError that the system gave, so that either is caught."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from small_models import save_tiny

import nncuda
from nncuda import LanguageModel
from nncuda.cli import main
from nncuda.formats import FormatError, SafetensorsFile, TokenShard, find_texts, read_text
from nncuda.formats.gguf import GGUFFile
from nncuda.report import report_html
from nncuda.tokenizer import Tokenizer
from nncuda.train import Checkpoint, load_model, resolve_checkpoint
from nncuda.train.checkpoint import read_training_state
from nncuda.train.data import open_shards

READERS: dict[str, Callable[[Path], Any]] = {
    "checkpoint": Checkpoint,
    "language model": LanguageModel.load,
    "training state": read_training_state,
    "safetensors": SafetensorsFile,
    "shard": TokenShard,
    "shards": open_shards,
    "tokenizer": Tokenizer.load,
    "GGUF": GGUFFile,
    "text": read_text,
    "report": report_html,
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_missing_is_a_file_not_found_error(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(FileNotFoundError) as caught:
        READERS[reader](path)
    error = caught.value
    assert isinstance(error, FormatError) and isinstance(error, ValueError)
    assert error.errno == errno.ENOENT and str(error.filename).startswith(str(path)) and error.strerror
    assert str(error) == f"{error.path}: {error.problem}"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.errno, again.filename) == (type(error), str(error), 2, error.filename)


def test_parts_that_are_missing(tmp_path: Path, ctx: nncuda.Context) -> None:
    folder = save_tiny(ctx, tmp_path)
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    for call in (
        lambda: load_model(tmp_path / "none", ctx),
        lambda: resolve_checkpoint(tmp_path / "run"),
        lambda: resolve_checkpoint(tmp_path / "run", "best"),
        lambda: find_texts([tmp_path / "none"]),
        lambda: report_html(tmp_path),
    ):
        with pytest.raises(FileNotFoundError):
            call()
    (folder / "optimizer.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"optimizer\.safetensors: cannot be read: No such file"):
        Checkpoint(folder).trainer(ctx)
    (folder / "training.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no training\.json"):
        Checkpoint(folder).trainer(ctx)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="holds neither"):
        Checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json: cannot be read"):
        Checkpoint(folder)


@pytest.mark.parametrize("reader", ["safetensors", "shard", "tokenizer", "GGUF", "training state"])
def test_a_folder_in_place_of_a_file(reader: str, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="it is not a regular file") as caught:
        READERS[reader](tmp_path)
    assert isinstance(caught.value, FormatError) and caught.value.errno == errno.EISDIR


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        Checkpoint(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    path.chmod(0)
    for reader in ("safetensors", "shard", "tokenizer", "GGUF"):
        with pytest.raises(PermissionError, match="Permission denied"):
            READERS[reader](path)


def test_the_kinds_follow_the_number() -> None:
    from nncuda.formats.errors import cannot_read

    for number, kind in ((errno.EACCES, PermissionError), (errno.EPERM, PermissionError), (errno.ELOOP, OSError)):
        error = cannot_read("a", OSError(number, os.strerror(number)))
        assert isinstance(error, kind) and isinstance(error, FormatError) and error.errno == number
        assert str(error) == f"a: cannot be read: {os.strerror(number)}"
        assert cannot_read("b", error) is error


def test_a_file_that_is_wrong_is_no_os_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("{")
    for reader in ("safetensors", "shard", "tokenizer", "GGUF", "training state"):
        with pytest.raises(FormatError) as caught:
            READERS[reader](path)
        assert not isinstance(caught.value, OSError)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="it is not a regular file") as caught:
        TokenShard(tmp_path / "pipe")
    assert not isinstance(caught.value, OSError)


def test_the_command_says_the_same_sentence(tmp_path: Path, ctx: nncuda.Context) -> None:
    folder = save_tiny(ctx, tmp_path)
    (folder / "optimizer.safetensors").unlink()
    (folder / "config.json").unlink()
    result = CliRunner().invoke(main, ["generate", str(folder), "1", "--ids"])
    assert result.exit_code == 3
    assert result.output == f"Error: {folder}/config.json: cannot be read: No such file or directory\n"
