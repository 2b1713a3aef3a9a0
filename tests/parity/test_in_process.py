"""The Python model and the Rust one side by side in this process: the same bits after each step."""

from __future__ import annotations

import random
import runpy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import differences
import languages
import numpy as np
import pytest

import nncuda
from nncuda.formats import FormatError
from nncuda.infer import Sampling, generate
from nncuda.models import MoEConfig, MoETransformer, ParameterArena
from nncuda.models.config import Precision
from nncuda.tokenizer import Tokenizer
from nncuda.train import Checkpoint, TrainConfig, Trainer
from nncuda.train.checkpoint import TrainingState, save_checkpoint

try:
    import nncuda_rs
except ImportError:
    if languages.required():
        raise
    pytest.skip("nncuda_rs is not built: run `make rust-wheel`", allow_module_level=True)

pytestmark = pytest.mark.case("in one process: nncuda_rs beside nncuda", "rust")

SMALL = {
    "vocab_size": 67,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
    "num_experts": 4,
    "experts_per_token": 2,
    "ffn_size": 24,
    "context": 16,
    "extended_context": 48,
}
STEPS = {"steps": 5, "batch_size": 4, "sequence_length": 12, "warmup_steps": 2, "learning_rate": 1e-2}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "capacity drops": ({"capacity_factor": 0.7, "norm_topk_prob": False}, {"clip_norm": None}),
    "bf16": ({}, {"precision": "bf16", "micro_batch_size": 3, "recompute_experts": True, "keep_experts": 1}),
    "f16, overflowing": (
        {},
        {"precision": "f16", "loss_scale": 2.0**24, "loss_scale_backoff": 0.125, "activation_checkpointing": 1},
    ),
    "accumulation and clipping": ({}, {"micro_batch_size": 3, "clip_norm": 0.05, "weight_decay": 0.5}),
}
TOLD = ("step", "tokens", "loss", "aux_loss", "grad_norm", "learning_rate")
SEED = 7


def batch(seed: int, rows: int = 4, length: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Ids and targets, a fifth of which do not count."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(0, SMALL["vocab_size"], (rows, length + 1), dtype=np.int32)
    targets = ids[:, 1:].copy()
    targets[draw.random(targets.shape) < 0.2] = -100
    return ids[:, :-1], targets  # not contiguous: rows of longer ones


def assert_equal(ours: ParameterArena, theirs: dict[str, np.ndarray]) -> None:
    arrays = ours.arrays()
    assert list(arrays) == list(theirs)
    for name, array in arrays.items():
        assert theirs[name].dtype == np.float32 and theirs[name].shape == array.shape
        np.testing.assert_array_equal(theirs[name].view(np.int32), array.view(np.int32), err_msg=name)


def assert_trainers_equal(ours: Trainer, theirs: nncuda_rs.Trainer) -> None:
    assert theirs.step == ours.step
    assert_equal(ours.model.parameters, theirs.model.parameters())
    assert ours.model.gradients is not None
    assert_equal(ours.model.gradients, theirs.model.gradients())
    for mine, other in zip((ours.first_moments, ours.second_moments), theirs.moments(), strict=True):
        assert_equal(mine, other)


@pytest.fixture
def ctx() -> Iterator[nncuda.Context]:
    with nncuda.Context(threads=2) as context:
        yield context


def pair(ctx: nncuda.Context, case: str) -> tuple[Trainer, nncuda_rs.Trainer]:
    sizes, options = SMALL | CASES[case][0], STEPS | CASES[case][1]
    config = TrainConfig(**options)
    ours = Trainer(MoETransformer(ctx, MoEConfig(**sizes), seed=SEED, precision=config.precision), config)
    return ours, nncuda_rs.Trainer(sizes, options, seed=SEED, threads=1)


@pytest.mark.parametrize("case", CASES)
def test_five_steps(ctx: nncuda.Context, case: str) -> None:
    ours, theirs = pair(ctx, case)
    assert theirs.config == ours.config.to_dict() and theirs.model.config == ours.model.config.to_dict()
    assert_trainers_equal(ours, theirs)
    for step in range(5):
        ids, targets = batch(step)
        mine, other = ours.train_step(ids, targets), theirs.train_step(ids, targets)
        for value in (*TOLD, "loss_scale", "skipped", "skipped_steps"):
            # What is no number in a skipped step equals itself only as text.
            assert repr(getattr(mine, value)) == repr(getattr(other, value)), (step, value)
        assert_trainers_equal(ours, theirs)
    ids, targets = batch(9, rows=3, length=16)
    np.testing.assert_array_equal(theirs.model.logits(ids), ours.model.forward(ids).numpy())
    assert theirs.model.evaluate(ids, targets) == ours.model.evaluate(ids, targets)
    state = ours.loss_scaling
    assert theirs.loss_scaling == (None if state is None else vars(state))
    assert state is None or 0 < state.skipped < 5


def test_why_a_step_runs_call_by_call(ctx: nncuda.Context) -> None:
    ours, theirs = pair(ctx, "plain")
    reasons = []
    for rows in (4, 3, 3, 3, 4, 4):
        ours.train_step(*batch(0, rows))
        theirs.train_step(*batch(0, rows))
        assert theirs.eager_reason == ours.eager_reason
        reasons.append(theirs.eager_reason)
    assert [reason is None for reason in reasons] == [False, False, True, True, False, True]
    assert reasons[4] == "the batch is [4, 12], the captured step was for [3, 12]"
    eager = nncuda_rs.Trainer(SMALL, STEPS, capture=False)
    assert eager.eager_reason is None
    eager.train_step(*batch(0))
    assert eager.eager_reason == "capture is off"


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_steps_that_diverge(ctx: nncuda.Context, precision: Precision) -> None:
    """Nothing is updated from the first one on, in either."""
    options = STEPS | {"learning_rate": 1e30, "weight_decay": 1e30, "warmup_steps": 0, "precision": precision}
    config = TrainConfig(**options)
    ours = Trainer(MoETransformer(ctx, MoEConfig(**SMALL), seed=SEED, precision=precision), config)
    theirs = nncuda_rs.Trainer(SMALL, options, seed=SEED)
    assert theirs.diverged_at is None
    for step in range(5):
        mine, other = ours.train_step(*batch(step)), theirs.train_step(*batch(step))
        for value in TOLD[:2] + TOLD[4:] + ("skipped", "skipped_steps"):
            assert repr(getattr(mine, value)) == repr(getattr(other, value)), (step, value)
    assert other.skipped and theirs.diverged_at == ours.updates + 1 < 5
    for mine, other in zip((ours.first_moments, ours.second_moments), theirs.moments(), strict=True):
        assert_equal(mine, other)


@pytest.mark.parametrize(
    "options",
    [{"temperature": 0.0}, {"seed": 3}, {"top_k": 5, "seed": -1}, {"top_p": 0.9, "temperature": 0.7, "seed": 2**63}],
    ids=["greedy", "sample", "top-k", "top-p"],
)
@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
def test_generation(ctx: nncuda.Context, options: dict[str, Any], precision: Precision) -> None:
    ours = MoETransformer(ctx, MoEConfig(**SMALL), seed=SEED, training=False, precision=precision)
    theirs = nncuda_rs.Model(SMALL, seed=SEED, training=False, precision=precision)
    for name, array in ours.parameters.arrays().items():
        np.testing.assert_array_equal(theirs.parameters()[name], array.astype(np.float32))
    sampling = {"temperature": 1.0} | options
    tokens = list(generate(ours, [5, 6, 7], 24, Sampling(**sampling)))
    assert list(theirs.generate([5, 6, 7], 24, **sampling)) == tokens
    assert (
        list(theirs.generate(np.array([5, 6, 7], np.int32), 24, end_id=tokens[9], **sampling))
        == tokens[: tokens.index(tokens[9]) + 1]
    )


def test_generation_does_not_hold_the_model() -> None:
    model = nncuda_rs.Model(SMALL, seed=SEED, training=False)
    unread = model.generate([1], 40)
    assert model.logits(batch(0)[0]).shape == (4, 12, SMALL["vocab_size"])  # after the tokens, which nobody has taken
    dropped = model.generate([1], 40)
    next(dropped)
    del dropped
    model.logits(batch(0)[0])
    del model
    assert len(list(unread)) == 40


def test_checkpoints_go_both_ways(ctx: nncuda.Context, tmp_path: Path) -> None:
    ours, theirs = pair(ctx, "accumulation and clipping")
    for step in range(2):
        ours.train_step(*batch(step))
        theirs.train_step(*batch(step))
    state = TrainingState(2, 8, 100, 1.5, ours.config, 4.25)
    mine = save_checkpoint(tmp_path / "python" / "checkpoints", ours, state)
    other = theirs.save_checkpoint(
        tmp_path / "rust" / "checkpoints", data_position=8, data_windows=100, seconds=1.5, held_out_loss=4.25
    )
    assert not (difference := differences.of_checkpoints(mine, Path(other))), difference
    ours, theirs = Checkpoint(other).trainer(ctx), nncuda_rs.Trainer.load(tmp_path / "python")
    assert_trainers_equal_after_loading(ours, theirs)
    ours.train_step(*batch(2))
    theirs.train_step(*batch(2))
    assert_trainers_equal(ours, theirs)
    assert_equal(
        Checkpoint(mine).model(ctx).parameters, nncuda_rs.Model.load(tmp_path / "rust", best=True).parameters()
    )


def test_training_goes_on_with_other_options(ctx: nncuda.Context, tmp_path: Path) -> None:
    ours, _ = pair(ctx, "plain")
    ours.train_step(*batch(0))
    folder = save_checkpoint(tmp_path, ours, TrainingState(1, 4, 100, 1.5, ours.config, None))
    changes = {"micro_batch_size": 3, "max_loss": 9.5, "recompute_experts": True}
    ours = Checkpoint(folder).trainer(ctx, changes=changes)
    theirs = nncuda_rs.Trainer.load(folder, changes=changes)
    assert theirs.config == ours.config.to_dict() and theirs.config["max_loss"] == 9.5
    ours.train_step(*batch(1))
    theirs.train_step(*batch(1))
    assert_trainers_equal(ours, theirs)
    with pytest.raises(ValueError, match="a run goes on with the seed it has; it takes others of micro_batch_size"):
        nncuda_rs.Trainer.load(folder, changes={"seed": 3})


def assert_trainers_equal_after_loading(ours: Trainer, theirs: nncuda_rs.Trainer) -> None:
    assert theirs.step == ours.step == 2 and theirs.config == ours.config.to_dict()
    assert_equal(ours.model.parameters, theirs.model.parameters())


def both(ours: Any, theirs: Any) -> tuple[Exception, Exception]:
    """What each raises."""
    with pytest.raises(Exception) as mine:
        ours()
    with pytest.raises(Exception) as other:
        theirs()
    return mine.value, other.value


def test_errors_are_alike(ctx: nncuda.Context, tmp_path: Path) -> None:
    ours, theirs = pair(ctx, "plain")
    ids, targets = batch(0)
    beyond = ids.copy()
    beyond[1, 2] = SMALL["vocab_size"]
    before = theirs.model.parameters()
    for arguments in ((beyond, targets), (ids, beyond), (ids, np.full_like(targets, -100)), (ids, targets[:, 1:])):
        mine, other = both(lambda a=arguments: ours.train_step(*a), lambda a=arguments: theirs.train_step(*a))
        assert str(mine) == str(other)
        assert type(mine).__name__ == type(other).__name__
        assert getattr(mine, "status", None) == getattr(other, "status", None)
    assert_equal(ours.model.parameters, before)
    assert_trainers_equal(ours, theirs)

    mine, other = both(lambda: ours.model.forward(beyond).numpy(), lambda: theirs.model.logits(beyond))
    assert isinstance(other, nncuda_rs.OutOfRangeError) and isinstance(other, IndexError)
    assert isinstance(mine, nncuda.OutOfRangeError) and mine.status == other.status
    # Python checks ids in arrays on the host, so it knows their place in the batch.
    assert str(mine) == "input_ids[1, 2] is 67; it must be 0 to 66" and "is 67; it must be 0 to 66" in str(other)

    for options in ({"hidden_size": 0}, {"num_kv_heads": 3}, {"depth": 3}, {"norm_eps": float("nan")}):
        mine, other = both(
            lambda o=options: MoEConfig.from_dict(SMALL | o), lambda o=options: nncuda_rs.Model(SMALL | o)
        )
        assert isinstance(other, ValueError) and str(mine).lower() == str(other).lower()  # NaN or nan
    mine, other = both(
        lambda: Trainer(ours.model, TrainConfig(sequence_length=17)),
        lambda: nncuda_rs.Trainer(SMALL, {"sequence_length": 17}),
    )
    assert isinstance(other, ValueError) and str(mine) == str(other)

    mine, other = both(lambda: Checkpoint(tmp_path / "none"), lambda: nncuda_rs.Trainer.load(tmp_path / "none"))
    assert isinstance(mine, FormatError) and isinstance(other, nncuda_rs.FormatError)
    assert str(mine) == str(other) and (str(mine.path), mine.problem) == (other.path, other.problem)

    mine, other = both(lambda: nncuda.Context("tpu"), lambda: nncuda_rs.Model(SMALL, device="tpu"))
    assert isinstance(mine, ValueError) and isinstance(other, ValueError) and str(mine) == str(other)
    mine, other = both(lambda: nncuda.Context("cuda:99"), lambda: nncuda_rs.Model(SMALL, device="cuda:99"))
    assert isinstance(mine, RuntimeError) and isinstance(other, nncuda_rs.DeviceNotFoundError)
    assert mine.status == other.status  # type: ignore[attr-defined]

    mine, other = both(
        lambda: list(generate(ours.model, [1], 4, Sampling(top_p=1.5))),
        lambda: theirs.model.generate([1], 4, top_p=1.5),
    )
    assert isinstance(other, ValueError) and str(mine) == str(other)
    mine, other = both(lambda: list(generate(ours.model, [], 4)), lambda: list(theirs.model.generate([], 4)))
    assert isinstance(other, ValueError) and str(mine) == str(other)
    with pytest.raises(ValueError, match="it has no gradients"):
        nncuda_rs.Model(SMALL, training=False).gradients()
    with pytest.raises(TypeError, match=r"input_ids has dtype int64; it must be int32"):
        theirs.train_step(ids.astype(np.int64), targets)
    with pytest.raises(TypeError, match=r"targets is of type list; it must be an int32 array of NumPy"):
        theirs.train_step(ids, targets.tolist())
    with pytest.raises(ValueError, match=r"input_ids has shape \[12\]; it must be \[batch, length\]"):
        theirs.model.logits(ids[0])


def test_too_large_a_model_is_a_memory_error() -> None:
    with pytest.raises(MemoryError) as caught:
        nncuda_rs.Model(SMALL | {"vocab_size": 2**31 - 1, "hidden_size": 2**12}, training=False)
    assert isinstance(caught.value, nncuda_rs.OutOfMemoryError) and caught.value.status == 30


def test_threads_and_memory_are_given_back() -> None:
    """The thread of a generation ends with it, and the memory of a model is free when it is gone."""
    mebibytes = 12 * 1024 * 64 * 4 * 4 / 2**20  # weights and moments of each trainer: two matrices of the vocabulary
    before = None
    for _ in range(24):
        trainer = nncuda_rs.Trainer(SMALL | {"vocab_size": 6 * 1024, "hidden_size": 64}, STEPS)
        trainer.train_step(*batch(0))
        next(trainer.model.generate([1], 8))
        assert status("Threads") > 1
        del trainer
        before = before or (status("Threads"), status("VmRSS") / 1024)
    assert status("Threads") == before[0]
    assert status("VmRSS") / 1024 < before[1] + 3 * mebibytes  # 24 that stayed would be eight times that


def status(name: str) -> int:
    """A number that the system has about this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def test_trainers_in_several_threads() -> None:
    """Each thread of Python that computes or waits lets the others run."""
    alone = nncuda_rs.Trainer(SMALL, STEPS, seed=SEED)
    trainers = [nncuda_rs.Trainer(SMALL, STEPS, seed=SEED) for _ in range(4)]

    def train(trainer: nncuda_rs.Trainer) -> None:
        for step in range(5):
            trainer.train_step(*batch(step))

    threads = [threading.Thread(target=train, args=(trainer,)) for trainer in trainers]
    for thread in threads:
        thread.start()
    train(alone)
    for thread in threads:
        thread.join()
    expected = alone.model.parameters()
    for trainer in trainers:
        for name, array in trainer.model.parameters().items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.mark.parametrize("kind", [1, 2], ids=["unigram", "bpe"])
def test_tokenizers_of_drawn_models(kind: int, tmp_path: Path) -> None:
    """Many small models, in which pieces out of use, user-defined ones and ties decide; SentencePiece is the judge."""
    made = runpy.run_path(str(languages.ROOT / "tests" / "tokenizer" / "tokenizer_made.py"))
    draw = random.Random(kind)
    for seed in range(100):
        path = tmp_path / f"{seed}.model"
        path.write_bytes(made["drawn"](kind, seed))
        ours, theirs = Tokenizer.load(path), nncuda_rs.Tokenizer(path)
        for _ in range(20):
            text = "".join(draw.choice("aabbccdd  e\n") for _ in range(draw.randrange(40)))
            ids = ours.encode(text)
            assert theirs.encode(text) == ids, (seed, text)
            assert theirs.decode(ids) == ours.decode(ids), (seed, text)


@pytest.mark.parametrize("model", ["own_unigram", "llama_bpe", "nfkc_unigram"])
def test_tokenizers(model: str) -> None:
    path = languages.ROOT / "tests" / "tokenizer" / f"{model}.model"
    ours, theirs = Tokenizer.load(path), nncuda_rs.Tokenizer(path)
    assert (theirs.vocab_size, theirs.begin_id, theirs.end_id) == (ours.vocab_size, ours.begin_id, ours.end_id)
    for text in ("", "The cat sat.\n\tÜber 12 ﬁ 猫😀", "  two  spaces  "):
        ids = ours.encode(text, begin=True)
        assert theirs.encode(text, begin=True) == ids
        assert theirs.decode(ids) == ours.decode(ids)
    mine, other = both(lambda: ours.decode([2, 10**6]), lambda: theirs.decode([2, 10**6]))
    assert isinstance(other, ValueError) and str(mine) == str(other)


def test_the_program_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    page = (languages.ROOT / "rust" / "nn-py" / "README.md").read_text(encoding="utf-8")
    program = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "first.py").write_text(program, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("first.py")
    *losses, tokens = capsys.readouterr().out.splitlines()
    assert len(losses) == 20 and float(losses[-1]) < float(losses[0])
    assert (
        tokens.startswith("[")
        and Checkpoint(tmp_path / "runs/from-rust/checkpoints/step-00000020").training is not None
    )
