"""Models and trainers by name, in words and in folders: parameters, state_dict, repr, save, load, save_checkpoint."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from small_models import TINY, llama_config, random_batch, stored_model

import nncuda
from nncuda import LanguageModel, MoETransformer, TrainConfig, Trainer
from nncuda.formats import FormatError, SafetensorsFile
from nncuda.infer import generate
from nncuda.tokenizer import Tokenizer, train_tokenizer
from nncuda.train import Checkpoint, load_model
from nncuda.train.checkpoint import TrainingState, save_checkpoint

OPTIONS = TrainConfig(steps=6, batch_size=2, sequence_length=8, warmup_steps=2, seed=3)


@pytest.fixture
def model(ctx: nncuda.Context) -> MoETransformer:
    return MoETransformer(ctx, TINY, seed=2)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer(["a b c " * 50], vocab_size=266, model_type="bpe"))


def test_parameters_by_name(model: MoETransformer) -> None:
    names = list(model.layout.shapes())
    assert list(model.parameters) == names == [name for name, _ in model.parameters()] and len(model.parameters) == 41
    for name, tensor in model.parameters():
        assert tensor.shape == model.layout[name].shape
        np.testing.assert_array_equal(tensor.numpy(), model.parameters.arrays()[name])
    assert sum(tensor.size for tensor in model.parameters.values()) == TINY.num_parameters
    tensor = model.parameters["model.norm.weight"]
    tensor *= 2  # a view: the model changes
    assert set(model.parameters["model.norm.weight"].tolist()) == {2.0}
    with pytest.raises(KeyError, match="no such"):
        model.parameters["no such"]
    assert "no such" not in model.parameters and "lm_head.weight" in model.parameters


def test_state_dict(model: MoETransformer, ctx: nncuda.Context) -> None:
    state = model.state_dict()
    assert list(state) == list(model.parameters)
    for other in (MoETransformer(ctx, TINY, seed=5), MoETransformer(ctx, TINY, seed=None, precision="bf16")):
        other.load_state_dict(state)
        assert other.parameters.data.numpy().tobytes() == model.parameters.data.numpy().tobytes()
    inferring = MoETransformer.from_arrays(ctx, TINY, state, training=False, precision="bf16")
    np.testing.assert_array_equal(
        inferring.parameters.data.numpy(), model.parameters.data.numpy().astype(ml_dtypes.bfloat16)
    )
    with nncuda.Context(threads=1) as elsewhere:
        moved = MoETransformer.from_arrays(elsewhere, TINY, inferring.state_dict())
        assert moved.parameters["lm_head.weight"].dtype == "f32"
    with pytest.raises(ValueError, match=r"tensors missing: lm_head\.weight"):
        model.load_state_dict({name: tensor for name, tensor in state.items() if name != "lm_head.weight"})
    with pytest.raises(ValueError, match="needs"):
        model.load_state_dict(state | {"lm_head.weight": ctx.zeros(3)})


def test_words(model: MoETransformer, ctx: nncuda.Context) -> None:
    sizes = f"{TINY.num_parameters:,} parameters, {TINY.num_active_parameters:,} active"
    words = "MoETransformer(2 layers, hidden size 24, 4 experts (2 per token), vocabulary 48; "
    assert repr(model) == f"{words}{sizes}; f32, cpu, training)"
    assert repr(MoETransformer(ctx, TINY, training=False, precision="bf16")).endswith("; bf16, cpu)")
    assert repr(Trainer(model, OPTIONS)) == f"Trainer(step 0 of 6, {model!r})"
    assert repr(model.parameters) == f"ParameterArena(41 tensors, {TINY.num_parameters:,} elements of f32)"
    with LanguageModel(stored_model(ctx, llama_config()), ctx, context=256, max_batch=1) as language_model:
        assert repr(language_model).startswith("LanguageModel('in memory'; ")
        assert repr(language_model).endswith(" parameters, context 256; cpu)")
    ctx.close()
    assert "closed" in repr(language_model) and "closed" in repr(model.parameters.data)


def test_a_saved_model_is_the_model_of_a_checkpoint(
    model: MoETransformer, tmp_path: Path, tokenizer: Tokenizer, ctx: nncuda.Context
) -> None:
    """The same files to the byte, which transformers, Go and Rust are tested to open."""
    model.save(tmp_path / "model", tokenizer)
    state = TrainingState(0, 0, 10, 0.5, OPTIONS)
    checkpoint = save_checkpoint(tmp_path, Trainer(model, OPTIONS), state, tokenizer)
    ours = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    theirs = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    assert set(theirs) - set(ours) == {"optimizer.safetensors", "training.json"}
    assert all(theirs[name] == content for name, content in ours.items())
    loaded = MoETransformer.load(tmp_path / "model", ctx)
    assert loaded.config == TINY and loaded.gradients is None and loaded.ctx is ctx
    assert loaded.parameters.data.numpy().tobytes() == model.parameters.data.numpy().tobytes()
    assert list(generate(loaded, [1, 2], 8)) == list(generate(model, [1, 2], 8))
    with pytest.raises(FileExistsError, match="exists already"):
        model.save(tmp_path / "model")
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == ours
    with pytest.raises(FileNotFoundError):
        MoETransformer.load(tmp_path / "none", ctx)
    with pytest.raises(FormatError):
        MoETransformer.load(tmp_path, ctx)


def test_a_model_in_16_bits_is_saved_as_it_is(ctx: nncuda.Context, tmp_path: Path) -> None:
    model = MoETransformer(ctx, TINY, seed=2, training=False, precision="bf16")
    model.save(tmp_path / "model")
    assert json.loads((tmp_path / "model/config.json").read_text())["torch_dtype"] == "bfloat16"
    stored = SafetensorsFile(tmp_path / "model/model.safetensors")
    assert stored.dtype("lm_head.weight") == ml_dtypes.bfloat16
    again = MoETransformer.load(tmp_path / "model", ctx, precision="bf16")
    assert again.parameters.data.numpy().tobytes() == model.parameters.data.numpy().tobytes()
    assert MoETransformer.load(tmp_path / "model", ctx).precision == "f32"
    with LanguageModel.load(tmp_path / "model", threads=1) as language_model:
        assert len(list(language_model.generate([1, 2], 3))) == 3


def test_load_makes_a_context_of_its_own(model: MoETransformer, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = MoETransformer.load(tmp_path / "model", training=True)
    assert loaded.ctx is not model.ctx and loaded.ctx.device == "cpu"
    loss = Trainer(loaded, OPTIONS).train_step(*random_batch(TINY, 2, 8)).loss
    assert loss == Trainer(model, OPTIONS).train_step(*random_batch(TINY, 2, 8)).loss


@pytest.mark.parametrize("changes", [{}, {"precision": "f16"}, {"moments": "f8"}], ids=str)
def test_a_trainer_goes_on_from_its_checkpoint(
    ctx: nncuda.Context, tmp_path: Path, changes: dict[str, str], tokenizer: Tokenizer
) -> None:
    config = TrainConfig(**{**OPTIONS.to_dict(), **changes})
    batches = [random_batch(TINY, 2, 8, seed) for seed in range(6)]

    def made() -> Trainer:
        return Trainer(MoETransformer(ctx, TINY, seed=2, precision=config.precision), config)

    whole, part = made(), made()
    for batch in batches:
        whole.train_step(*batch)
    for batch in batches[:3]:
        part.train_step(*batch)
    part.save_checkpoint(tmp_path / "saved", tokenizer)
    resumed = Trainer.load(tmp_path / "saved", ctx)
    assert (resumed.step, resumed.config) == (3, config)
    for batch in batches[3:]:
        resumed.train_step(*batch)
    assert resumed.model.parameters.data.numpy().tobytes() == whole.model.parameters.data.numpy().tobytes()
    for ours, theirs in zip(resumed.moments.parts(), whole.moments.parts(), strict=True):
        assert ours[:2] == theirs[:2] and ours[2].numpy().tobytes() == theirs[2].numpy().tobytes()
    checkpoint = Checkpoint(tmp_path / "saved")
    assert checkpoint.training is not None and checkpoint.training.data_position == 6
    assert checkpoint.tokenizer is not None and load_model(tmp_path / "saved", ctx)[0].config == TINY
    with pytest.raises(FileExistsError):
        part.save_checkpoint(tmp_path / "saved")
    resumed.model.save(tmp_path / "model")
    with pytest.raises(FileNotFoundError, match=r"has no training\.json: it can be run, but not trained further"):
        Trainer.load(tmp_path / "model", ctx)


def test_what_cannot_be_copied_says_what_to_do_instead(model: MoETransformer, ctx: nncuda.Context) -> None:
    with LanguageModel(stored_model(ctx, llama_config()), ctx, context=256, max_batch=1) as language_model:
        for one, instead in (
            (model, r"MoETransformer\.from_arrays\(ctx, config, model\.state_dict\(\)\)"),
            (Trainer(model, OPTIONS), r"Trainer\.load\(folder\)"),
            (language_model, "threads may share one"),
        ):
            for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match=f"a {type(one).__name__} cannot be copied or pickled.*{instead}"):
                    attempt(one)
    state = copy.deepcopy(model.state_dict())  # which is a copy of the weights
    model.parameters.data.zero_()
    assert state["lm_head.weight"].numpy().any()
