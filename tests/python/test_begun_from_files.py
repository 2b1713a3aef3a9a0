"""Training of all weights that begins with a GGUF file or a Mistral: what is read, what is refused, what is saved.

The same bits in every language are in tests/parity/test_parity_origin.py.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from small_models import DENSE, LLAMA3, QWEN2, QWEN3, TINY, llama_config, random_model
from test_tokenizers import byte_level_folder

import nncuda
from nncuda.cli import main
from nncuda.convert.quantize import quantize_model
from nncuda.formats import FormatError, SafetensorsFile, write_shard
from nncuda.formats.gguf import open_gguf
from nncuda.models import LlamaConfig, MoEConfig, Rope, StoredModel, config_from_mixtral
from nncuda.models.trainable import config_beside, config_of_all
from nncuda.tokenizer import Tokenizer
from nncuda.tokenizer.folder import tokenizer_from_folder
from nncuda.train import FrozenOrigin, Origin, TrainConfig, TrainingRun, list_checkpoints

KINDS = {
    "llama": DENSE,
    "llama3": dataclasses.replace(LLAMA3, rope_original=8192, rope_base=5e5, ntk_alpha=1.0),
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "mixtral": dataclasses.replace(TINY, norm_topk_prob=False),
}
TRAIN = TrainConfig(
    steps=3, batch_size=2, sequence_length=16, warmup_steps=1, log_every=1, save_every=2, hash_every=1, seed=5
)


def gguf(ctx: nncuda.Context, folder: Path, config: MoEConfig, format: str) -> Path:
    """The model of a kind as a folder, and as a file beside it."""
    if not folder.exists():
        random_model(ctx, config, seed=3).save(folder)
    path = folder.with_suffix(f".{format}.gguf")
    quantize_model(StoredModel.open(folder), path, format, ctx)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_shard(tmp_path / "data.tokens", [np.random.default_rng(5).integers(0, 48, 400)], 48)
    return tmp_path / "data.tokens"


def begun(ctx: nncuda.Context, run: Path, origin: Origin, data: Path) -> Path:
    TrainingRun.start(run, ctx, origin.config, TRAIN, data, origin=origin).run()
    return run


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_the_folder_that_it_was_made_of(ctx: nncuda.Context, tmp_path: Path, kind: str) -> None:
    """Options, the hash of the parameters, and in 16 bits each number rounded: rows of q and k are in a folder's order
    again, and experts apart."""
    folder, config = tmp_path / "folder", KINDS[kind]
    file = Origin(gguf(ctx, folder, config, "f32"))
    # A file has epsilon in f32, which is what kernels take, and nothing of how the model is trained.
    epsilon = float(np.float32(config.norm_eps))
    assert file.config == dataclasses.replace(config, norm_eps=epsilon, init_std=MoEConfig.init_std)
    assert file.record()["weights_sha256"] == Origin(folder).record()["weights_sha256"]
    stored = SafetensorsFile(folder / "model.safetensors")
    for format, dtype in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        halves = Origin(gguf(ctx, folder, config, format))._weights.tensors
        assert set(halves) == set(stored)
        for name, array in stored.items():
            kept = array.ndim == 1 or name.endswith("block_sparse_moe.gate.weight")
            expected = array if kept else array.astype(dtype)
            np.testing.assert_array_equal(halves[name], expected, err_msg=name)
            assert halves[name].dtype == expected.dtype, name


def test_a_run_from_a_file_has_the_bits_of_one_from_the_folder(ctx: nncuda.Context, tmp_path: Path, data: Path) -> None:
    """And is taken up, computed again and shown like it; its checkpoints are Llama folders."""
    path = gguf(ctx, tmp_path / "folder", DENSE, "f32")
    run = begun(ctx, tmp_path / "run", Origin(path), data)
    other = begun(ctx, tmp_path / "other", Origin(tmp_path / "folder"), data)
    last, theirs = (list_checkpoints(one / "checkpoints")[-1] for one in (run, other))
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert (last / file).read_bytes() == (theirs / file).read_bytes()
    assert json.loads((last / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    record = json.loads((run / "run.json").read_text())["from"]
    assert record == {**json.loads((other / "run.json").read_text())["from"], "folder": str(path.resolve())}

    parts = TrainingRun.start(tmp_path / "parts", ctx, Origin(path).config, TRAIN, data, origin=Origin(path))
    for progress in parts.steps():
        if progress.step == 1:
            parts.stop()
    TrainingRun.resume(tmp_path / "parts", ctx, data).run()
    resumed = list_checkpoints(tmp_path / "parts" / "checkpoints")[-1]
    assert (resumed / "model.safetensors").read_bytes() == (last / "model.safetensors").read_bytes()
    for line, words in (
        (("verify-run", run), "where it began"),
        (("inspect", run), "training state"),
        (("report", run), ""),
    ):
        done = CliRunner().invoke(main, [str(word) for word in line])
        assert done.exit_code == 0 and words in done.output, done.output
    path.write_bytes(gguf(ctx, tmp_path / "folder", DENSE, "f16").read_bytes())
    done = CliRunner().invoke(main, ["verify-run", str(run)])
    assert done.exit_code == 1 and "is not what the run began from: its weights_sha256 is" in done.output


@pytest.mark.parametrize("kind", ["byte-level", "qwen2", "sentencepiece", "none", "unknown"])
def test_the_tokenizer_of_a_file_comes_along(
    ctx: nncuda.Context, tmp_path: Path, tokenizer: Tokenizer, kind: str
) -> None:
    """As the files of a folder, which give the same ids; where this program has no such tokenizer, it says so."""
    folder, config = tmp_path / "folder", dataclasses.replace(DENSE, vocab_size=320)
    random_model(ctx, config, seed=3).save(folder)
    if kind != "none":
        cut = kind if kind == "qwen2" else ""
        byte_level_folder(folder, cut, add_bos_token=True, chat_template="{{ messages }}")
    if kind == "sentencepiece":
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer.model").write_bytes(tokenizer.model)
    path = gguf(ctx, folder, config, "bf16")
    if kind == "unknown":
        path.write_bytes(path.read_bytes().replace(b"gpt-2", b"qwen9"))
    origin = Origin(path)
    assert (origin.notice is None) == (kind != "unknown")
    origin.tokenizer.write(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(origin.tokenizer.special_ids))
    found = tokenizer_from_folder(tmp_path)
    if kind in ("none", "unknown"):
        assert found is None and not origin.tokenizer.has_tokenizer
        assert set(origin.tokenizer.special_ids.values()) == {None}
        assert kind == "none" or f"{path}: cuts text as 'qwen9'; this program knows" in str(origin.notice)
        return
    expected = StoredModel.open(path).tokenizer
    assert found is not None and expected is not None
    assert (found.begin_id, found.end_ids, found.adds_begin) == (
        expected.begin_id, expected.end_ids, expected.adds_begin,
    )  # fmt: skip
    for text in ("Hello, abc!", "  two  spaces\n\tab</s>", "ünï 日本語 🙂", "u\u0308 12345"):
        assert found.encode(text, begin=True, special=True) == expected.encode(text, begin=True, special=True)
    described = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert described["chat_template"] == "{{ messages }}"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rope": Rope(scaling="linear", factor=2.0)}, "rope.scaling is 'linear'; all weights are trained of models"),
        ({"o_bias": True}, "o_bias is True; all weights are trained of models with False"),
        ({"embedding_scale": 12.0}, "embedding_scale is 12.0; all weights are trained of models with 1.0"),
        ({"qk_norm": "head", "qkv_bias": True}, "qkv_bias is True; it must be False with qk_norm"),
        (
            {"num_experts": 4, "experts_per_token": 2, "qk_norm": "head"},
            "qk_norm is True; it must be False in a model ",
        ),
        (
            {"num_experts": 4, "experts_per_token": 2, "shared_ffn_size": 32},
            "shared_ffn_size is 32; all weights are trained of models with 0",
        ),
        (
            {"rope": Rope(scaling="llama3", divisors=(1.0,) * 15 + (8.0,))},
            "rope.divisors are not those of Llama 3.1, of 1 and 4 turns in 8192 positions; all weights are trained of",
        ),
    ],
)
def test_models_are_refused_by_what_they_have(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        config_of_all(llama_config(**changes))


def test_divisors_that_a_converter_rounded_are_llama3s() -> None:
    config = dataclasses.replace(LLAMA3, rope_original=8192, head_dim=32, rope_base=5e5)
    exact = config.rope_divisors()
    assert any(1 < one < 8 for one in exact)
    for error, taken in ((1e-6, True), (1e-3, False)):
        divisors = tuple(one * (1 + error) if 1 < one < 8 else one for one in exact)
        stored = llama_config(rope=Rope(5e5, scaling="llama3", divisors=divisors))
        if taken:
            assert config_of_all(stored).rope_factor == 8.0
            continue
        with pytest.raises(ValueError, match=r"rope\.divisors are not those of Llama 3\.1"):
            config_of_all(stored)


def test_files_are_refused(ctx: nncuda.Context, tmp_path: Path) -> None:
    """Weights in blocks, a value that is not finite, and what no file has."""
    blocks = tmp_path / "blocks.gguf"
    quantize_model(stored_in_folder(ctx, tmp_path), blocks, "q8_0", ctx)
    with pytest.raises(FormatError, match=r"is in q8_0; all weights are trained of files in f32, f16 or bf16: give "):
        Origin(blocks)
    assert FrozenOrigin(blocks).config.num_layers == 2
    path = gguf(ctx, tmp_path / "folder", DENSE, "f32")
    with pytest.raises(FormatError, match="is a GGUF file, which has no optimizer's state to go on with"):
        Origin(path, optimizer=True)
    name = "blk.1.attn_output.weight"
    content, stored = bytearray(path.read_bytes()), open_gguf(path)[name].data
    at = content.index(stored.tobytes())
    content[at + 8 : at + 12] = np.float32(np.inf).tobytes()
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"model.layers.1.self_attn.o_proj.weight is not finite, first at \[0, 2\]"):
        Origin(path)
    assert Origin(path, read=False).config.num_layers == DENSE.num_layers


def stored_in_folder(ctx: nncuda.Context, tmp_path: Path) -> StoredModel:
    wide = dataclasses.replace(DENSE, hidden_size=32, ffn_size=32)
    random_model(ctx, wide, seed=3).save(tmp_path / "wide")
    return StoredModel.open(tmp_path / "wide")


MISTRAL = {
    "model_type": "mistral", "vocab_size": 48, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 20, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "context"),
    [({"sliding_window": None}, 64), ({}, 64), ({"sliding_window": 64}, 64), ({"sliding_window": 24}, 24)],
)
def test_a_mistral_is_a_llama_within_its_window(changes: dict[str, object], context: int) -> None:
    config = config_from_mixtral({**MISTRAL, **changes})
    assert (config.context, config.extended_context, config.rope_base) == (context, context, 1e4)
    with pytest.raises(ValueError, match="sliding_window is 0; it must be a whole number, at least 1"):
        config_from_mixtral({**MISTRAL, "sliding_window": 0})


def test_a_run_from_a_mistral(ctx: nncuda.Context, tmp_path: Path, data: Path) -> None:
    """Saved as a Llama. A sequence beyond the window is refused by its name, beside an adapter, too."""
    random_model(ctx, DENSE, seed=3).save(tmp_path / "llama")
    folder = tmp_path / "mistral"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes((tmp_path / "llama" / "model.safetensors").read_bytes())
    (folder / "config.json").write_text(json.dumps({**MISTRAL, "sliding_window": 16, "rms_norm_eps": 1e-5}))
    last = list_checkpoints(begun(ctx, tmp_path / "run", Origin(folder), data) / "checkpoints")[-1]
    other = list_checkpoints(begun(ctx, tmp_path / "other", Origin(tmp_path / "llama"), data) / "checkpoints")[-1]
    assert (last / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    saved = json.loads((last / "config.json").read_text())
    assert (saved["model_type"], saved["max_position_embeddings"]) == ("llama", 16)
    long = dataclasses.replace(TRAIN, sequence_length=17)
    for origin in (Origin(folder), FrozenOrigin(folder)):
        with pytest.raises(
            ValueError, match=r"sequence_length is 17, but in the model of .* a token sees 16 \(sliding_"
        ):
            origin.check(origin.config, long)
        origin.check(origin.config, TRAIN)


def test_beside_an_adapter_more_will_do() -> None:
    config = llama_config(rope=Rope(scaling="linear", factor=2.0), o_bias=True)
    assert isinstance(config, LlamaConfig) and config_beside(config).context == 1024
