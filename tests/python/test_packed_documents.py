"""Token shards that know their documents and targets: the file, how documents fill sequences, and training on them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nncuda import Context
from nncuda.formats import FormatError, TokenShard, shards, write_documents, write_shard
from nncuda.models import MoEConfig, MoETransformer
from nncuda.train import TokenWindows, TrainConfig, Trainer, TrainingRun
from nncuda.train.data import unigram_entropy

CONFIG = MoEConfig(
    vocab_size=50,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    ffn_size=24,
    num_experts=4,
    experts_per_token=2,
    context=64,
    init_std=0.2,
    aux_alpha=0.0,  # balance is over all tokens of a call
)

Documents = list[tuple[np.ndarray, np.ndarray]]
#: What a model is given, what it should say, whether that counts, and whether it ends the document.
Pair = tuple[int, int, bool, bool]


def documents(draw: random.Random, lengths: Sequence[int], share: float = 0.5) -> Documents:
    return [
        (
            np.array([draw.randrange(50) for _ in range(length)]),
            np.array([draw.random() < share for _ in range(length)]),
        )
        for length in lengths
    ]


def pairs(document: tuple[np.ndarray, np.ndarray]) -> list[Pair]:
    ids, counted = (values.tolist() for values in document)
    return [(ids[at], ids[at + 1], counted[at + 1], at + 2 == len(ids)) for at in range(len(ids) - 1)]


def filled(given: Documents, length: int) -> list[list[Pair]]:
    """The sequences, pair by pair."""
    sequences: list[list[Pair]] = [[]]
    for document in given:
        found = pairs(document)
        for start in range(0, len(found), length):
            piece = found[start : start + length]
            if len(sequences[-1]) + len(piece) > length:
                sequences.append([])
            sequences[-1] += piece
    return [sequence for sequence in sequences if any(counts for _, _, counts, _ in sequence)]


@pytest.mark.parametrize("chunk", [8, 1 << 24])
def test_documents_fill_sequences_in_their_order(tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_CHUNK", chunk)
    draw, path, told = random.Random(0), tmp_path / "a.tokens", 0
    for _ in range(150):
        lengths = [draw.choice([2, 3, 4, 5, 9, 17, 30]) for _ in range(draw.randrange(1, 12))]
        given = documents(draw, lengths, draw.choice([0.05, 0.5]))
        length = draw.choice([1, 2, 3, 4, 7, 8, 16, 50])
        wanted = filled(given, length)
        write_documents(path, given, 50)
        if not wanted:
            told += 1
            with pytest.raises(ValueError, match="the data holds no document with a target that counts"):
                TokenWindows([TokenShard(path)], length)
            continue
        windows = TokenWindows([TokenShard(path)], length)
        assert windows.windows == len(wanted)
        inputs, targets, ends = windows.take(range(len(wanted)))
        for row, sequence in enumerate(wanted):
            size = len(sequence)
            assert inputs[row].tolist() == [token for token, *_ in sequence] + [0] * (length - size)
            said = [target if counts else -100 for _, target, counts, _ in sequence]
            assert targets[row].tolist() == said + [-100] * (length - size)
            marks = [int(last) for *_, last in sequence]
            marks[-1] = 1  # of a piece that continues elsewhere
            assert ends[row].tolist() == marks + [0] * (length - size)
    assert told > 0


def test_windows_of_several_shards(tmp_path: Path) -> None:
    draw = random.Random(1)
    parts = [documents(draw, [9, 4]), documents(draw, [3, 3, 12])]
    for number, part in enumerate(parts):
        write_documents(tmp_path / f"{number}.tokens", part, 50)
    windows = TokenWindows([TokenShard(tmp_path / f"{number}.tokens") for number in (0, 1)], 8)
    wanted = [sequence for part in parts for sequence in filled(part, 8)]
    inputs, _, _ = windows.take(range(windows.windows))
    assert [row.tolist()[: len(pairs)] for row, pairs in zip(inputs, wanted, strict=True)] == [
        [token for token, *_ in sequence] for sequence in wanted
    ]


@pytest.mark.parametrize("vocabulary", [50, 70_000])
def test_a_shard_gives_back_what_was_written(tmp_path: Path, vocabulary: int) -> None:
    given = documents(random.Random(2), [5, 2, 40, 13, 8])
    assert write_documents(tmp_path / "a.tokens", given, vocabulary, bytes(range(32))) == 68
    shard = TokenShard(tmp_path / "a.tokens")
    ids, counted = (np.concatenate(part) for part in zip(*given, strict=True))
    assert (shard.count, shard.has_documents, shard.tokenizer) == (68, True, bytes(range(32)))
    assert shard.read().tolist() == ids.tolist()
    ends = np.zeros(68, bool)
    ends[np.cumsum([5, 2, 40, 13, 8]) - 1] = True
    for start, stop in ((0, 68), (3, 50), (8, 16), (67, 68), (20, 20)):
        assert shard.ends(start, stop).tolist() == ends[start:stop].tolist()
        assert shard.counted(start, stop).tolist() == counted[start:stop].tolist()
    first = np.concatenate([[True], ends[:-1]])
    share = np.bincount(ids[counted & ~first]) / np.count_nonzero(counted & ~first)
    entropy = -sum(part * np.log(part) for part in share if part)
    assert unigram_entropy(shard) == pytest.approx(entropy, abs=1e-12)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([(np.arange(3), np.ones(3, bool)), (np.arange(1), np.ones(1, bool))], "a document of 1 tokens"),
        ([(np.arange(3), np.ones(2, bool))], "a document of 3 tokens and bits for 2"),
        ([(np.array([3, 50]), np.ones(2, bool))], "ids from 3 to 50 in a vocabulary of 50"),
    ],
)
def test_what_is_no_document_is_not_written(tmp_path: Path, given: Documents, sentence: str) -> None:
    (tmp_path / "a.tokens").write_bytes(b"before")
    with pytest.raises(ValueError, match=sentence):
        write_documents(tmp_path / "a.tokens", given, 50)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a.tokens", b"before")]


def test_bits_that_make_no_documents_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tokens"
    write_documents(path, [(np.arange(9), np.ones(9, bool)), (np.arange(7), np.ones(7, bool))], 50)
    whole = path.read_bytes()
    bits = len(whole) - 4
    for place, byte, sentence in (
        (bits + 1, 0, "its last token does not end a document"),
        (bits + 1, 0x83, "the document at token 9 has one token; it must have two"),
        (bits, 1, "the document at token 0 has one token; it must have two"),
    ):
        path.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
        with pytest.raises(FormatError, match=sentence):
            TokenWindows([TokenShard(path)], 4)
    for changed in (whole[:-1], whole + b"\0", whole[: 64 + 32]):
        path.write_bytes(changed)
        with pytest.raises(FormatError, match=f"is {len(changed)} bytes long, but its 16 tokens take {len(whole)}"):
            TokenShard(path)
    path.write_bytes(whole)
    windows = TokenWindows([TokenShard(path)], 8)
    path.write_bytes(whole[:bits] + bytes([0xFF, 0xFF]) + whole[bits + 2 :])
    with pytest.raises(FormatError, match="was changed while it was in use"):
        windows.take([1])


def test_shards_with_and_without_documents_do_not_mix(tmp_path: Path) -> None:
    write_documents(tmp_path / "a.tokens", [(np.arange(9), np.ones(9, bool))], 50)
    write_shard(tmp_path / "b.tokens", [np.arange(9)], 50)
    for names in ("ab", "ba"):
        with pytest.raises(ValueError, match="knows where its documents end and b"):
            TokenWindows([TokenShard(tmp_path / f"{name}.tokens") for name in names], 4)


def gradients(model: MoETransformer, batches: list[tuple[np.ndarray, ...]]) -> dict[str, np.ndarray]:
    """Those of the sum of the losses of all batches."""
    ctx, tensor = model.ctx, model.ctx.tensor
    one, aux = tensor(np.ones(1, np.float32)), tensor(np.zeros(1, np.float32))
    for number, (ids, targets, *ends) in enumerate(batches):
        losses = ctx.empty((model.loss_pieces(ids.size),))
        model.forward_backward(
            ids, targets, one, aux, losses, aux, accumulate=number > 0, document_ends=ends[0] if ends else None
        )
    assert model.gradients is not None
    return {name: value.numpy() for name, value in model.gradients.items()}


def test_a_document_learns_what_it_would_alone(tmp_path: Path) -> None:
    given = documents(random.Random(3), [10, 2, 24, 7, 5, 31])
    write_documents(tmp_path / "a.tokens", given, 50)
    windows = TokenWindows([TokenShard(tmp_path / "a.tokens")], 40)
    packed = windows.take(range(windows.windows))
    alone = [(ids[None, :-1], np.where(counted, ids, -100)[None, 1:]) for ids, counted in given if counted[1:].any()]
    model = MoETransformer(Context(), CONFIG, seed=1)
    loss, count = model.evaluate(*packed)
    each = [model.evaluate(*one) for one in alone]
    assert count == sum(number for _, number in each) == sum(int(counted[1:].sum()) for _, counted in given)
    # Some tens of losses of some units, each within some hundred roundings of f32 of itself.
    assert loss == pytest.approx(sum(one for one, _ in each), rel=1e-5)
    assert model.evaluate(*packed[:2])[0] != pytest.approx(loss, rel=1e-3)  # where they see one another
    wanted, found = gradients(model, alone), gradients(model, [packed])
    for name, values in wanted.items():
        assert np.abs(found[name] - values).max() <= 1e-4 * np.abs(values).max(), name


def test_every_target_of_a_step_weighs_the_same(tmp_path: Path) -> None:
    """However few of them a micro-batch has, and if it has none."""
    given = documents(random.Random(4), [12, 12, 12])
    write_documents(tmp_path / "a.tokens", given, 50)
    inputs, targets, ends = TokenWindows([TokenShard(tmp_path / "a.tokens")], 12).take([0, 1, 2])
    targets = targets.copy()
    targets[1] = -100
    targets[2, np.flatnonzero(targets[2] != -100)[1:]] = -100
    losses, norms = [], []
    for rows, micro in (([0, 1, 2], None), ([0, 1, 2], 1), ([0, 2], 1), ([0, 2], 2)):
        options = {"steps": 4, "batch_size": len(rows), "sequence_length": 12, "warmup_steps": 0}
        trainer = Trainer(MoETransformer(Context(), CONFIG, seed=1), TrainConfig(micro_batch_size=micro, **options))
        result = trainer.train_step(inputs[rows], targets[rows], ends[rows])
        assert result.tokens == np.count_nonzero(targets != -100)
        losses.append(result.loss)
        norms.append(result.grad_norm)
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-6) and norms == pytest.approx([norms[0]] * 4, rel=1e-5)
    with pytest.raises(ValueError, match="no target counts: all are -100"):
        trainer.train_step(inputs, np.full_like(targets, -100), ends)


def test_a_replayed_step_is_told_other_documents(tmp_path: Path) -> None:
    given = documents(random.Random(5), [3, 14, 9, 6, 11, 4, 8, 13, 5, 2, 7, 16])
    write_documents(tmp_path / "a.tokens", given, 50)
    windows = TokenWindows([TokenShard(tmp_path / "a.tokens")], 16)
    options = {"steps": 9, "batch_size": 2, "sequence_length": 16, "warmup_steps": 0}
    found = []
    for capture in (True, False):
        trainer = Trainer(MoETransformer(Context(), CONFIG, seed=1), TrainConfig(**options), capture=capture)
        found.append([trainer.train_step(*windows.take([step, step + 1])).loss for step in range(4)])
        assert (trainer.eager_reason is None) == capture
        inputs, targets, _ = windows.take([0, 1])
        trainer.train_step(inputs, targets)  # without documents it is another step
        assert trainer.eager_reason is not None
    assert found[0] == found[1]


@pytest.mark.parametrize("ends", [np.zeros((2, 3), int), np.full((2, 4), 2), [["a"]]])
def test_ends_of_documents_are_checked(ends: object) -> None:
    trainer = Trainer(
        MoETransformer(Context(), CONFIG, seed=1), TrainConfig(batch_size=2, sequence_length=4, steps=4, warmup_steps=0)
    )
    ids = np.ones((2, 4), int)
    with pytest.raises((ValueError, IndexError, TypeError), match="document_ends"):
        trainer.train_step(ids, ids, ends)  # type: ignore[arg-type]
    with pytest.raises((ValueError, IndexError, TypeError), match="document_ends"):
        trainer.model.evaluate(ids, ids, ends)  # type: ignore[arg-type]


def test_a_run_on_documents_goes_on_as_it_would_have(tmp_path: Path) -> None:
    draw = random.Random(6)
    for name in ("train", "held-out"):
        write_documents(tmp_path / f"{name}.tokens", documents(draw, [draw.randrange(2, 20) for _ in range(40)]), 50)
    options = {"batch_size": 3, "sequence_length": 16, "warmup_steps": 0, "micro_batch_size": 2, "eval_every": 2}
    data, held_out = tmp_path / "train.tokens", tmp_path / "held-out.tokens"
    with pytest.raises(ValueError, match="document_mask is 3, but the training data knows where its documents end"):
        masked = TrainConfig(steps=4, document_mask=3, **options)
        TrainingRun.start(tmp_path / "masked", Context(), CONFIG, masked, data, held_out)
    config = TrainConfig(steps=4, save_every=2, **options)
    whole = TrainingRun.start(tmp_path / "whole", Context(), CONFIG, config, data, held_out)
    whole.run()
    stopped = TrainingRun.start(tmp_path / "stopped", Context(), CONFIG, config, data, held_out)
    next(steps := stopped.steps())
    stopped.stop()
    list(steps)
    resumed = TrainingRun.resume(tmp_path / "stopped", Context(), data, held_out)
    resumed.run()
    for name, values in whole.trainer.model.state_dict().items():
        assert np.array_equal(values.numpy(), resumed.trainer.model.state_dict()[name].numpy()), name
    assert whole.evaluate() == resumed.evaluate()
