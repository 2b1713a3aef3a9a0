"""Adapters in PEFT's folders and in GGUF files: read, written, refused; `nncuda merge` and `nncuda adapter`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from family_models import FAMILIES
from safetensors.numpy import load_file, save_file

from nncuda import Context
from nncuda.bench.random_model import SHAPES, write_folder
from nncuda.cli import main
from nncuda.convert.merge import merge_adapter
from nncuda.convert.quantize import quantize_model
from nncuda.formats import FormatError, SafetensorsFile
from nncuda.formats.gguf import GGUFFile
from nncuda.formats.gguf_writer import NewTensor, write_gguf
from nncuda.models import StoredModel
from nncuda.models.adapter import CONFIG, WEIGHTS, Adapter, save_adapter
from nncuda.models.adapter_gguf import write_adapter_gguf

RANK, ALPHA = 4, 6.0
#: As PEFT 0.18 writes it.
PEFT: dict[str, Any] = {
    "alora_invocation_tokens": None, "alpha_pattern": {}, "arrow_config": None, "auto_mapping": None,
    "base_model_name_or_path": "somewhere/base", "bias": "none", "corda_config": None,
    "ensure_weight_tying": False, "eva_config": None, "exclude_modules": None, "fan_in_fan_out": False,
    "inference_mode": True, "init_lora_weights": True, "layer_replication": None, "layers_pattern": None,
    "layers_to_transform": None, "loftq_config": {}, "lora_alpha": 6, "lora_bias": False, "lora_dropout": 0.05,
    "megatron_config": None, "megatron_core": "megatron.core", "modules_to_save": None, "peft_type": "LORA",
    "peft_version": "0.18.0", "qalora_group_size": 16, "r": RANK, "rank_pattern": {}, "revision": None,
    "target_modules": ["down_proj", "q_proj"], "target_parameters": None, "task_type": "CAUSAL_LM",
    "trainable_token_indices": None, "use_dora": False, "use_qalora": False, "use_rslora": False,
}  # fmt: skip
TARGETS = ("self_attn.q_proj", "mlp.down_proj")


@pytest.fixture(scope="module")
def ctx() -> Iterator[Context]:
    with Context(threads=2) as made:
        yield made


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    path = tmp_path_factory.mktemp("base") / "model"
    write_folder(path, SHAPES["tiny"], seed=1, dtype="bf16")
    return StoredModel.open(path)


def factors(model: StoredModel, dtype: Any = np.float32, rank: int = RANK) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    made, shapes = {}, model.config.shapes()
    for at, target in enumerate(TARGETS):
        name = f"model.layers.0.{target}.weight"
        random, (rows, columns) = np.random.default_rng(at), shapes[name]
        a, b = ((random.standard_normal(shape) * 0.3).astype(dtype) for shape in ((rank, columns), (rows, rank)))
        made[name] = a, b
    return made


def tensors(made: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    """As PEFT names them."""
    return {
        f"base_model.model.{name.removesuffix('.weight')}.lora_{which}.weight": part
        for name, pair in made.items()
        for which, part in zip("AB", pair, strict=True)
    }


def write(path: Path, made: dict[str, np.ndarray], **changes: Any) -> Path:
    path.mkdir()
    (path / CONFIG).write_text(json.dumps({**PEFT, **changes}))
    save_file(made, path / WEIGHTS)
    return path


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_folder_of_peft_is_read(dtype: Any, tmp_path: Path, base: StoredModel) -> None:
    made = factors(base, dtype)
    adapter = Adapter.open(write(tmp_path / "a", tensors(made)), base.config)
    assert (adapter.rank, adapter.scale) == (RANK, ALPHA / RANK)
    assert set(adapter.factors) == set(made)
    for name, (a, b) in made.items():
        np.testing.assert_array_equal(adapter.factors[name].a.numbers(), a)
        np.testing.assert_array_equal(adapter.factors[name].b.numbers(), b)
    assert adapter.num_parameters == sum(part.size for pair in made.values() for part in pair)


def test_rslora_divides_by_the_root_of_the_rank(tmp_path: Path, base: StoredModel) -> None:
    adapter = Adapter.open(write(tmp_path / "a", tensors(factors(base)), use_rslora=True), base.config)
    assert adapter.scale == ALPHA / RANK**0.5


def test_what_is_written_is_read_and_has_the_same_bytes(tmp_path: Path, base: StoredModel) -> None:
    made = factors(base)
    for name in ("one", "two"):
        save_adapter(tmp_path / name, made, alpha=ALPHA, base="there")
    for file in (CONFIG, WEIGHTS):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    values = json.loads((tmp_path / "one" / CONFIG).read_text())
    assert values["target_modules"] == ["down_proj", "q_proj"] and values["base_model_name_or_path"] == "there"
    assert {name: value for name, value in PEFT.items() if name in values and name not in (
        "base_model_name_or_path", "lora_dropout")} == {name: value for name, value in values.items() if name not in (
        "base_model_name_or_path", "lora_dropout")}  # fmt: skip
    adapter = Adapter.open(tmp_path / "one", base.config)
    assert (adapter.rank, adapter.scale) == (RANK, ALPHA / RANK)
    for name, pair in made.items():
        for found, part in zip(adapter.factors[name], pair, strict=True):
            np.testing.assert_array_equal(found.numbers(), part)


def test_factors_of_several_ranks_are_not_written(tmp_path: Path, base: StoredModel) -> None:
    made = factors(base)
    name = next(iter(made))
    made[name] = factors(base, rank=2)[name]
    with pytest.raises(ValueError, match=r"ranks \[2, 4\]"):
        save_adapter(tmp_path / "a", made, alpha=1.0)
    assert not (tmp_path / "a").exists()


def test_what_a_config_says_of_any_base_and_alpha(tmp_path: Path, base: StoredModel) -> None:
    made = factors(base)
    for at, (alpha, told) in enumerate(((6.0, b"6,"), (2.0**53, b"9007199254740992.0,"), (1e-5, b"1e-05,"))):
        save_adapter(tmp_path / str(at), made, alpha=alpha, base="é \udc80")
        text = (tmp_path / str(at) / CONFIG).read_bytes()
        assert b'"lora_alpha": ' + told in text and 'é \\udc80"'.encode() in text
        assert json.loads(text)["base_model_name_or_path"] == "é \udc80" and json.loads(text)["lora_alpha"] == alpha
    with pytest.raises(ValueError, match="too large for f32"):
        save_adapter(tmp_path / "a", made, alpha=float("inf"))
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"peft_type": None}, "peft_type is None"),
        ({"task_type": "SEQ_CLS"}, "task_type is 'SEQ_CLS'"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"use_dora": True}, "'use_dora' is True"),
        ({"modules_to_save": ["lm_head"]}, "'modules_to_save' is ['lm_head']"),
        ({"rank_pattern": {"q_proj": 2}}, "'rank_pattern' is"),
        ({"alpha_pattern": {"q_proj": 2}}, "'alpha_pattern' is"),
        ({"lora_bias": True}, "'lora_bias' is True"),
        ({"fan_in_fan_out": True}, "'fan_in_fan_out' is True"),
        ({"layer_replication": [[0, 1]]}, "'layer_replication' is"),
        ({"trainable_token_indices": [1]}, "'trainable_token_indices' is"),
        ({"alora_invocation_tokens": [1]}, "'alora_invocation_tokens' is"),
        ({"use_qalora": True}, "'use_qalora' is True"),
        ({"of_tomorrow": 1}, "'of_tomorrow' is 1"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
        ({"init_lora_weights": 1}, "init_lora_weights is 1"),
        ({"use_rslora": 1}, "use_rslora is 1"),
        ({"r": 0}, "r is 0"),
        ({"r": True}, "r is True"),
        ({"r": None}, "r is missing"),
        ({"r": 5}, "with r 5 the model makes it"),
        ({"lora_alpha": None}, "lora_alpha is missing"),
        ({"lora_alpha": "6"}, "lora_alpha is '6'"),
        ({"lora_alpha": 1e300}, "lora_alpha is 1e+300"),
        ({"lora_alpha": float("nan")}, "lora_alpha is nan"),
    ],
)
def test_options_that_are_refused(changes: dict[str, Any], problem: str, tmp_path: Path, base: StoredModel) -> None:
    path = write(tmp_path / "a", tensors(factors(base)), **changes)
    with pytest.raises(FormatError) as refused:
        Adapter.open(path, base.config)
    assert problem in str(refused.value) and "\n" not in str(refused.value)


Q = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({f"{Q}.lora_A.weight": None}, "has lora_B of model.layers.0.self_attn.q_proj alone"),
        ({f"{Q}.lora_B.weight": None}, "has lora_A of model.layers.0.self_attn.q_proj alone"),
        ({f"{Q}.lora_A.weight": (RANK, 5)}, "has shape [4, 5]; with r 4 the model makes it [4, 64]"),
        ({f"{Q}.lora_B.weight": (64, RANK, 1)}, "has shape [64, 4, 1]"),
        ({f"{Q}.lora_A.weight": np.nan}, "has values that are not finite"),
        ({f"{Q}.lora_magnitude_vector": (64,)}, "which is no factor"),
        ({"base_model.model.lm_head.weight": (64,)}, "which is no factor"),
        ({"model.layers.0.self_attn.q_proj.lora_A.weight": (RANK, 64)}, "which is no factor"),
        ({"base_model.model.lm_head.lora_A.weight": (RANK, 64)}, "adapts 'lm_head'"),
        ({"base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight": (RANK, 64)}, "adapts 'model.layers.1"),
        ({"base_model.model.model.layers.0.input_layernorm.lora_A.weight": (RANK, 64)}, "adapts 'model.layers.0.i"),
        ({f"{Q}\x1b[2J.lora_A.weight": (RANK, 64)}, "adapts 'model.layers.0.self_attn.q_proj\\x1b[2J'"),
        ({f"{Q}.lora_A.weight": np.int8}, "has dtype int8"),
    ],
)
def test_tensors_that_are_refused(changes: dict[str, Any], problem: str, tmp_path: Path, base: StoredModel) -> None:
    made = tensors(factors(base))
    for name, change in changes.items():
        if change is None:
            del made[name]
        elif isinstance(change, tuple):
            made[name] = np.ones(change, np.float32)
        elif change is np.int8:
            made[name] = made[name].astype(np.int8)
        else:
            made[name][1, 2] = change
    with pytest.raises(FormatError) as refused:
        Adapter.open(write(tmp_path / "a", made), base.config)
    assert problem in str(refused.value) and "\n" not in str(refused.value)


def test_folders_that_are_none(tmp_path: Path, base: StoredModel) -> None:
    with pytest.raises(FormatError, match="adapts nothing"):
        Adapter.open(write(tmp_path / "empty", {}), base.config)
    with pytest.raises(FileNotFoundError):
        Adapter.open(tmp_path / "nowhere", base.config)
    path = write(tmp_path / "a", tensors(factors(base)))
    (path / WEIGHTS).rename(path / "adapter_model.bin")
    with pytest.raises(FormatError, match="is a pickle"):
        Adapter.open(path, base.config)
    (path / "adapter_model.bin").unlink()
    with pytest.raises(FileNotFoundError, match=WEIGHTS):
        Adapter.open(path, base.config)
    (path / CONFIG).write_text("[]")
    with pytest.raises(FormatError, match="is not a JSON object"):
        Adapter.open(path, base.config)


#: Half a unit in the last place, relative.
UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}


@pytest.mark.parametrize("dtype", UNIT)
def test_merging_is_the_sum_rounded_once(dtype: str, tmp_path: Path, ctx: Context) -> None:
    write_folder(tmp_path / "base", SHAPES["tiny"], seed=3, dtype=dtype)
    model = StoredModel.open(tmp_path / "base")
    made = factors(model)
    adapter = Adapter.open(write(tmp_path / "a", tensors(made)), model.config)
    merge_adapter(model, adapter, tmp_path / "out", ctx)
    merged = StoredModel.open(tmp_path / "out")
    assert merged.config == model.config
    for name, stored in model.tensors.items():
        found = merged.tensors[name]
        assert found.format == stored.format == dtype
        if name not in made:
            assert found.data.tobytes() == stored.data.tobytes()
            continue
        a, b = (part.astype(np.float64) for part in made[name])
        old, added = stored.numbers().astype(np.float64), ALPHA / RANK * (b @ a)
        sizes = np.abs(old) + ALPHA / RANK * (np.abs(b) @ np.abs(a))
        # RANK products and sums, the factor, and the sum with W, each rounded in f32; then once to the dtype.
        allowed = (2 * RANK + 2) * UNIT["f32"] * sizes + UNIT[dtype] * np.abs(old + added) * 1.001 + 2.0**-25
        error = np.abs(found.numbers().astype(np.float64) - (old + added))
        assert (error <= allowed).all()
        assert np.abs(added).max() > 100 * allowed.max() or dtype != "f32"
    assert [entry.name for entry in (tmp_path / "out").iterdir()] != []
    for entry in (tmp_path / "base").iterdir():
        if entry.suffix != ".safetensors":
            assert (tmp_path / "out" / entry.name).read_bytes() == entry.read_bytes()
    assert SafetensorsFile(tmp_path / "out" / "model.safetensors").metadata == {"format": "pt"}


def test_what_is_not_merged(tmp_path: Path, ctx: Context, base: StoredModel) -> None:
    adapter = Adapter.open(write(tmp_path / "a", tensors(factors(base))), base.config)
    quantize_model(base, tmp_path / "base.gguf", "q8_0", ctx)
    with pytest.raises(FormatError, match="is a GGUF file"):
        merge_adapter(StoredModel.open(tmp_path / "base.gguf"), adapter, tmp_path / "out", ctx)
    write_folder(tmp_path / "phi3", FAMILIES["phi3"], seed=2, dtype="f32")
    fused = StoredModel.open(tmp_path / "phi3")
    made = factors(fused)
    adapter = Adapter.open(write(tmp_path / "b", tensors(made)), fused.config)
    with pytest.raises(FormatError, match="in one tensor with others"):
        merge_adapter(fused, adapter, tmp_path / "out", ctx)
    write_folder(tmp_path / "f16", SHAPES["tiny"], seed=3, dtype="f16")
    small = StoredModel.open(tmp_path / "f16")
    large = Adapter.open(write(tmp_path / "c", tensors(factors(small)), lora_alpha=1e7), small.config)
    with pytest.raises(FormatError, match="values that f16 cannot hold"):
        merge_adapter(small, large, tmp_path / "out", ctx)
    assert not (tmp_path / "out").exists()


def test_the_command(tmp_path: Path, base: StoredModel, ctx: Context) -> None:
    shutil.copytree(base.path, tmp_path / "base")
    made = factors(base)
    write(tmp_path / "a", tensors(made))
    arguments = ["merge", *(str(tmp_path / name) for name in ("base", "a", "out")), "--threads", "2"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "2 matrices with 1.5 * B * A of rank 4" in done.output
    merge_adapter(base, Adapter.open(tmp_path / "a", base.config), tmp_path / "again", ctx)
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (
        tmp_path / "again" / "model.safetensors"
    ).read_bytes()
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 2 and "never replaced" in again.output
    (tmp_path / "a" / CONFIG).write_text(json.dumps({**PEFT, "use_dora": True}))
    refused = CliRunner().invoke(main, [*arguments[:3], str(tmp_path / "other")])
    assert refused.exit_code == 3 and "'use_dora' is True" in refused.output and not (tmp_path / "other").exists()


# GGUF files

METADATA: dict[str, Any] = {
    "general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": ALPHA,
    "general.name": "small", "general.quantization_version": 2, "adapter.lora.task_name": "tales",
}  # fmt: skip


def write_file(path: Path, made: dict[str, np.ndarray], **changes: Any) -> Path:
    metadata = {key: value for key, value in {**METADATA, **changes}.items() if value is not None}
    names = {np.dtype(np.float32): "f32", np.dtype(np.float16): "f16", np.dtype(ml_dtypes.bfloat16): "bf16"}
    entries = [NewTensor(name, names.get(part.dtype, "q8_0"), part.shape) for name, part in made.items()]
    with write_gguf(path, metadata, entries) as writer:
        for entry, part in zip(entries, made.values(), strict=True):
            data = np.ascontiguousarray(part).view(np.uint8).reshape(-1)
            writer.write(entry.name, data if entry.format != "q8_0" else np.zeros(entry.nbytes, np.uint8))
    return path


def file_tensors(made: dict[str, tuple[np.ndarray, np.ndarray]], heads: int) -> dict[str, np.ndarray]:
    """As llama.cpp names them, rows of queries with the two halves of each head in turns."""
    q, down = (made[f"model.layers.0.{target}.weight"] for target in TARGETS)
    turned = q[1].reshape(heads, 2, -1, q[1].shape[1]).swapaxes(1, 2).reshape(q[1].shape)
    return {
        "blk.0.attn_q.weight.lora_a": q[0], "blk.0.attn_q.weight.lora_b": np.ascontiguousarray(turned),
        "blk.0.ffn_down.weight.lora_a": down[0], "blk.0.ffn_down.weight.lora_b": down[1],
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_gguf_file_is_read_and_written(dtype: Any, tmp_path: Path, base: StoredModel) -> None:
    made = factors(base, dtype)
    theirs = file_tensors(made, base.config.num_heads)
    adapter = Adapter.open(write_file(tmp_path / "a.gguf", theirs), base.config)
    assert (adapter.rank, adapter.scale) == (RANK, ALPHA / RANK) and set(adapter.factors) == set(made)
    for name, pair in made.items():
        for found, part in zip(adapter.factors[name], pair, strict=True):
            np.testing.assert_array_equal(found.numbers(), part)
    folder = Adapter.open(write(tmp_path / "a", tensors(made)), base.config)
    for name in ("one.gguf", "two.gguf"):
        write_adapter_gguf(tmp_path / name, folder, base.config)
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "two.gguf").read_bytes()
    file = GGUFFile(tmp_path / "one.gguf")
    assert file.metadata == {key: METADATA[key] for key in list(METADATA)[:4]}
    assert file.typed["adapter.lora.alpha"].type == "f32"
    assert list(file) == list(theirs)
    for name, part in theirs.items():
        np.testing.assert_array_equal(file[name].numbers(), part)


def test_a_file_without_alpha_has_the_scale_1(tmp_path: Path, base: StoredModel) -> None:
    theirs = file_tensors(factors(base), base.config.num_heads)
    for name, alpha in (("none", None), ("zero", 0.0)):
        assert (
            Adapter.open(write_file(tmp_path / name, theirs, **{"adapter.lora.alpha": alpha}), base.config).scale == 1
        )
    zero = Adapter.open(write(tmp_path / "a", tensors(factors(base)), lora_alpha=0), base.config)
    with pytest.raises(ValueError, match="scale is 0; a GGUF file has"):
        write_adapter_gguf(tmp_path / "out.gguf", zero, base.config)
    assert not (tmp_path / "out.gguf").exists()


def test_a_rank_of_1_may_be_left_out(tmp_path: Path, base: StoredModel) -> None:
    made = factors(base, rank=1)
    theirs = file_tensors(made, base.config.num_heads)
    theirs = {name: part[0] if name.endswith("lora_a") else part for name, part in theirs.items()}
    adapter = Adapter.open(write_file(tmp_path / "a.gguf", theirs), base.config)
    assert adapter.rank == 1
    for name, (a, _) in made.items():
        np.testing.assert_array_equal(adapter.factors[name].a.numbers(), a)


F_A, F_B = "blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"general.type": "model"}, "general.type is 'model'; an adapter of this model has 'adapter'"),
        ({"general.type": None}, "general.type is None"),
        ({"general.type": [1, 2]}, "general.type is"),
        ({"general.architecture": "qwen2"}, "general.architecture is 'qwen2'; an adapter of this model has 'llama'"),
        ({"adapter.type": "control_vector"}, "adapter.type is 'control_vector'"),
        ({"adapter.alora.invocation_tokens": [1, 2]}, "adapter.alora.invocation_tokens is"),
        ({"llama.context_length": 5}, "llama.context_length is 5; this program does not know that key"),
        ({"adapter.lora.alpha": float("nan")}, "adapter.lora.alpha is nan"),
        ({"adapter.lora.alpha": float("inf")}, "adapter.lora.alpha is inf"),
        ({"adapter.lora.alpha": "6"}, "adapter.lora.alpha is '6'"),
        ({"adapter.lora.alpha": True}, "adapter.lora.alpha is True"),
        ({F_A: None}, "has lora_B of model.layers.0.self_attn.q_proj alone"),
        ({F_B: None}, "has lora_A of model.layers.0.self_attn.q_proj alone"),
        ({F_A: (RANK, 5)}, "has shape [4, 5]; with r 4 the model makes it [4, 64]"),
        ({F_A: (3, 64)}, "has shape [64, 4]; with r 3 the model makes it [64, 3]"),
        ({F_B: (63, RANK)}, "has shape [63, 4]; with r 4 the model makes it [64, 4]"),
        ({F_B: (64, RANK, 1)}, "has shape [64, 4, 1]"),
        ({"blk.0.ffn_down.weight.lora_a": (2, 128)}, "with r 4 the model makes it"),
        ({F_A: np.nan}, "has values that are not finite"),
        ({"blk.0.attn_norm.weight": (64,)}, "which is no factor"),
        ({"blk.0.attn_norm.weight.lora_a": (RANK, 64)}, "adapts 'blk.0.attn_norm.weight'"),
        ({"output.weight.lora_a": (RANK, 64)}, "adapts 'output.weight'"),
        ({"token_embd.weight.lora_a": (RANK, 64)}, "adapts 'token_embd.weight'"),
        ({"blk.7.attn_q.weight.lora_a": (RANK, 64)}, "adapts 'blk.7.attn_q.weight'"),
        ({"blk.0.attn_q.bias.lora_a": (RANK, 64)}, "adapts 'blk.0.attn_q.bias'"),
        ({"blk.\x1b[2J.lora_a": (RANK, 64)}, "adapts 'blk.\\x1b[2J'"),
        ({"blk.00.attn_q.weight.lora_a": (RANK, 64)}, "has lora_A of model.layers.0.self_attn.q_proj twice"),
        ({F_A: np.int8}, "is in q8_0; factors must be in f32, f16 or bf16"),
        (dict.fromkeys((F_A, F_B, "blk.0.ffn_down.weight.lora_a", "blk.0.ffn_down.weight.lora_b")), "adapts nothing"),
    ],
)
def test_files_that_are_refused(changes: dict[str, Any], problem: str, tmp_path: Path, base: StoredModel) -> None:
    made, metadata = file_tensors(factors(base), base.config.num_heads), {}
    for name, change in changes.items():
        if "lora_" not in name and not name.endswith(".weight"):
            metadata[name] = change
        elif change is None:
            del made[name]
        elif isinstance(change, tuple):
            made[name] = np.ones(change, np.float32)
        elif change is np.int8:
            made[name] = made[name].astype(np.int8)
        else:
            made[name][1, 2] = change
    with pytest.raises(FormatError) as refused:
        Adapter.open(write_file(tmp_path / "a.gguf", made, **metadata), base.config)
    assert problem in str(refused.value) and "\n" not in str(refused.value)


def test_files_cut_anywhere_are_refused(tmp_path: Path, base: StoredModel) -> None:
    whole = write_file(tmp_path / "a.gguf", file_tensors(factors(base), base.config.num_heads)).read_bytes()
    for length in (*range(0, 400, 13), len(whole) // 2, len(whole) - 64):
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        with pytest.raises(FormatError):
            Adapter.open(tmp_path / "cut.gguf", base.config)


def test_the_command_that_converts(tmp_path: Path, base: StoredModel) -> None:
    write(tmp_path / "a", tensors(factors(base, np.float16)))

    def run(source: str, out: str) -> Any:
        return CliRunner().invoke(main, ["adapter", str(base.path), str(tmp_path / source), str(tmp_path / out)])

    there, back = run("a", "a.gguf"), run("a.gguf", "b")
    assert there.exit_code == back.exit_code == 0, there.output + back.output
    assert "2 matrices, rank 4, scale 1.5" in there.output
    assert load_file(tmp_path / "b" / WEIGHTS).keys() == load_file(tmp_path / "a" / WEIGHTS).keys()
    for name, part in load_file(tmp_path / "a" / WEIGHTS).items():
        found = load_file(tmp_path / "b" / WEIGHTS)[name]
        assert found.dtype == part.dtype and found.tobytes() == part.tobytes()
    values = json.loads((tmp_path / "b" / CONFIG).read_text())
    assert (values["r"], values["lora_alpha"]) == (RANK, ALPHA)
    again = run("a", "a.gguf")
    assert again.exit_code == 2 and "never replaced" in again.output
    merged = CliRunner().invoke(
        main, ["merge", *(str(path) for path in (base.path, tmp_path / "a.gguf", tmp_path / "m"))]
    )
    assert merged.exit_code == 0, merged.output
