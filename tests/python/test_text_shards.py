"""Texts become shards: the ids of whole texts, whatever the processes, the blocks and the tokenizer."""

from __future__ import annotations

from pathlib import Path

import click.testing
import numpy as np
import pytest
import tokenizers

from nncuda.cli import main
from nncuda.formats import TokenShard
from nncuda.records import processes, texts
from nncuda.records.texts import encode_text_files
from nncuda.tokenizer import Tokenizer, tokenizer

TOKENIZERS = Path(__file__).parents[1] / "tokenizer"
OWN = TOKENIZERS / "own_bpe.model"
#: Puts a space before a text, and spells line ends in bytes.
LLAMA = TOKENIZERS / "llama_bpe.model"


def written(folder: Path) -> list[Path]:
    parts = {
        "a.txt": "One\nand another line\n" * 9,
        "b.txt": "",
        "c.txt": "no line end " * 30,
        "d.txt": "\n\n x\n" * 20,
    }
    for name, text in parts.items():
        (folder / name).write_text(text)
    (folder / "e.bin").write_bytes(b"\xff\0")
    return sorted(folder.iterdir())


@pytest.mark.parametrize(("model", "counts"), [(OWN, (1, 2)), (LLAMA, (1,))], ids=["own", "llama"])
def test_processes_and_blocks_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path, counts: tuple[int, ...]
) -> None:
    files = written(tmp_path)
    whole = Tokenizer.load(model)
    wanted = [np.array(whole.encode(path.read_text(), begin=True, end=True)) for path in files if path.suffix == ".txt"]
    monkeypatch.setattr(tokenizer, "_BLOCK", 7)
    monkeypatch.setattr(texts, "_PIECE", 40)
    monkeypatch.setattr(processes, "SMALL", 0)
    made = []
    for count in counts:
        done: list[int] = []
        out = tmp_path / f"{count}.tokens"
        assert encode_text_files([(out, files)], (model, None), count, done.append) == [sum(map(len, wanted))]
        assert sum(done) == sum(path.stat().st_size for path in files) and len(done) >= 4
        made.append(out.read_bytes())
    assert TokenShard(out).read().tolist() == np.concatenate(wanted).tolist()
    assert made[0] == made[-1]


def test_where_a_text_may_be_cut() -> None:
    assert Tokenizer.load(OWN).line_ends_apart and not Tokenizer.load(LLAMA).line_ends_apart


def test_the_folder_of_a_model(tmp_path: Path) -> None:
    """As `data encode` takes it for texts, too."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=270, special_tokens=["<end>"], initial_alphabet=alphabet)
    library.train_from_iterator(["a text and a text"], trainer)
    folder = tmp_path / "model"
    folder.mkdir()
    library.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    (tmp_path / "a.txt").write_text("a text\nand <end>")
    out = tmp_path / "a.tokens"
    command = ["data", "encode", str(tmp_path / "a.txt"), "--tokenizer", str(folder), "--out", str(out)]
    done = click.testing.CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    library.encode_special_tokens = True  # a text of strangers ends where its file does
    assert TokenShard(out).read().tolist() == [*library.encode("a text\nand <end>").ids, library.token_to_id("<end>")]
