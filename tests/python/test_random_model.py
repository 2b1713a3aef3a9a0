"""Models with random weights for benchmarks: the same bits in any pieces, and a tokenizer of the size asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from nncuda.bench import random_model, random_tokenizer
from nncuda.models import StoredModel
from nncuda.tokenizer.folder import tokenizer_from_folder


def test_pieces_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("model.norm.weight", (777,)), ("x.weight", (333, 101))):
        whole = list(random_model.draw(name, size, 0.5, 3))
        assert len(whole) == 1
        with monkeypatch.context() as smaller:
            smaller.setattr(random_model, "_PIECE", 1000)
            pieces = list(random_model.draw(name, size, 0.5, 3))
        assert len(pieces) == 1 if len(size) == 1 else len(pieces) == 37
        np.testing.assert_array_equal(np.concatenate(pieces), whole[0])


def test_a_bitnet_folder_opens(tmp_path: Path) -> None:
    made = CliRunner().invoke(
        random_model.main, [str(tmp_path / "model"), "--shape", "bitnet-small", "--layers", "1", "--dtype", "bf16"]
    )
    assert made.exit_code == 0, made.output
    model = StoredModel.open(tmp_path / "model")
    assert model.config.ternary and model.config.sub_norms and model.config.activation == "relu2"
    assert model.tokenizer is not None and model.tokenizer.vocab_size == model.config.vocab_size == 4000
    codes = model.ternary("model.layers.0.mlp.down_proj.weight").codes()
    # Of a normal distribution 0.3101 lie below half its mean magnitude; six deviations of a share of so many.
    assert (codes == 0).mean() == pytest.approx(0.3101, abs=6 * np.sqrt(0.3101 * 0.6899 / codes.size))


@pytest.mark.parametrize("vocabulary", [300, 6000])
def test_a_byte_level_tokenizer(vocabulary: int, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(random_tokenizer.byte_level(vocabulary))
    tokenizer = tokenizer_from_folder(tmp_path)
    begin, end = random_tokenizer.ends(vocabulary)
    assert tokenizer is not None and tokenizer.vocab_size == vocabulary
    assert (tokenizer.piece(begin), tokenizer.piece(end)) == ("<|begin_of_text|>", "<|end_of_text|>")
    text = "Hello bafön,  I'll 1234\n\n日本"
    assert tokenizer.decode(tokenizer.encode(text)) == text
