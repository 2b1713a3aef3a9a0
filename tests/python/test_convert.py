"""`nncuda convert`: from every form to every other, weights stay what they are; and what it refuses."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from test_ternary_files import bitnet_config, gguf_folder, master_weights, write_folder

from nncuda import Context
from nncuda.bench.random_model import Shape
from nncuda.bench.random_model import write_folder as write_random_folder
from nncuda.cli import main
from nncuda.convert.model import FOLDERS, FORMS, convert_model
from nncuda.formats import FormatError, SafetensorsFile
from nncuda.formats.block_formats import TERNARY_FORMATS
from nncuda.formats.ternary import absmean
from nncuda.models import StoredModel

CONFIG = bitnet_config(hidden_size=256, intermediate_size=256, num_hidden_layers=1)
SMALL = Shape(
    layers=1, hidden=256, ffn=256, heads=4, kv_heads=2, vocabulary=700, context=128, tied=True, bitnet=True
)  # fmt: skip


@functools.cache
def small_tokenizer() -> bytes:
    from nncuda.bench.random_tokenizer import byte_level

    return byte_level(SMALL.vocabulary)


@pytest.fixture(scope="module")
def ctx():
    with Context(threads=2) as made:
        yield made


def converted(ctx: Context, source: Path, folder: Path, form: str, head: str | None = None) -> Path:
    out = folder / (form if form in FOLDERS else f"{form}.gguf")
    dtype = "f32" if form.startswith("hf") else None
    convert_model(StoredModel.open(source), out, form, ctx, head=head, dtype=dtype)
    return out


@pytest.mark.parametrize("tied", [True, False])
def test_every_form_gives_the_same_weights(tied: bool, tmp_path: Path, ctx: Context) -> None:
    config = {**CONFIG, "tie_word_embeddings": tied}
    masters = master_weights(config)
    first = StoredModel.open(write_folder(tmp_path / "masters", config, masters))
    expected = {name: (matrix.codes(), matrix.scale) for name, matrix in first.matrices.items()}
    for form in FORMS:
        source = converted(ctx, tmp_path / "masters", tmp_path, form)
        for other in FORMS:
            (tmp_path / f"from-{form}").mkdir(exist_ok=True)
            model = StoredModel.open(converted(ctx, source, tmp_path / f"from-{form}", other))
            assert {matrix.form for matrix in model.matrices.values()} == {
                {"hf": "codes", "hf-packed": "packed", "packed": "tern2"}.get(other, other)
            }
            assert model.config.activation == "relu2" and model.config.tie_embeddings == tied
            for name, (codes, scale) in expected.items():
                assert model.ternary(name).scale == scale
                np.testing.assert_array_equal(model.ternary(name).codes(), codes)
            for name, stored in model.tensors.items():
                np.testing.assert_array_equal(stored.f32(), first.tensors[name].f32())


def test_blocks_keep_the_scale_in_a_tensor_beside_them(tmp_path: Path, ctx: Context) -> None:
    """f16 could not hold it."""
    write_folder(tmp_path / "masters", CONFIG, master_weights(CONFIG))
    file = StoredModel.open(converted(ctx, tmp_path / "masters", tmp_path, "tq2_0")).file
    assert file is not None and file.metadata["general.architecture"] == "bitnet-b1.58"
    assert file.metadata["general.file_type"] == 37 and file.metadata["bitnet-b1.58.feed_forward_length"] == 256
    blocks = file.mapped("blk.0.ffn_down.weight").reshape(-1, 66)
    assert (np.ascontiguousarray(blocks[:, -2:]).view("<f2") == 1).all()
    assert file["blk.0.ffn_down.scale"].shape == (1,)


@pytest.mark.parametrize("form", ["hf", "hf-packed"])
def test_folders_of_hugging_face_have_one_dtype(form: str, tmp_path: Path, ctx: Context) -> None:
    """transformers multiplies what it finds, and refuses two dtypes."""
    masters = master_weights(CONFIG)
    write_folder(tmp_path / "masters", CONFIG, masters)
    gguf = converted(ctx, tmp_path / "masters", tmp_path, "i2_s")  # whose norms are f32
    convert_model(StoredModel.open(gguf), tmp_path / "out", form, ctx)
    file = SafetensorsFile(tmp_path / "out" / "model.safetensors")
    assert {str(file.dtype(name)) for name in file} == {"bfloat16"} | ({"uint8"} if form == "hf-packed" else set())
    for name, matrix in StoredModel.open(tmp_path / "out").matrices.items():
        codes, scale = absmean(masters[name])
        np.testing.assert_array_equal(matrix.codes(), codes)
        assert matrix.scale == scale.astype(ml_dtypes.bfloat16)


def test_the_activation_names_the_architecture(tmp_path: Path, ctx: Context) -> None:
    config = {**CONFIG, "hidden_act": "silu"}
    write_folder(tmp_path / "masters", config, master_weights(config))
    model = StoredModel.open(converted(ctx, tmp_path / "masters", tmp_path, "i2_s"))
    assert model.file is not None and model.file.metadata["general.architecture"] == "bitnet"
    assert model.config.activation == "silu"


@pytest.mark.parametrize("form", ["packed", "tq1_0"])
def test_the_tokenizer_goes_along_and_the_head_is_measured(form: str, tmp_path: Path) -> None:
    source = tmp_path / "model"
    write_random_folder(source, SMALL, dtype="bf16", tokenizer_file=small_tokenizer())
    template = "{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}"
    described = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps({**described, "chat_template": template}))
    (source / "generation_config.json").write_text('{"eos_token_id": [698, 699]}')
    out = tmp_path / "out"
    run = CliRunner().invoke(main, ["convert", str(source), str(out), "--to", form, "--head", "q8_0"])
    assert run.exit_code == 0, run.output
    assert re.search(r"LM head .* in q8_0", run.output)
    found = re.search(
        r"compared with the head in bf16, over (\d+) positions: divergence (\S+) nats .* in (\S+) %", run.output
    )
    assert found and int(found[1]) > 60 and 0 < float(found[2]) < 1 and float(found[3]) > 50
    back = tmp_path / "back"
    first = StoredModel.open(source)
    for model in (StoredModel.open(out), first):
        assert model.tokenizer is not None and first.tokenizer is not None
        for text in ("Hello wörld", "<|eot_id|> 12345"):
            assert model.tokenizer.encode(text, special=True) == first.tokenizer.encode(text, special=True)
        assert model.tokenizer.end_ids == first.tokenizer.end_ids
        assert (model.tokenizer.begin_id, model.tokenizer.adds_begin) == (first.tokenizer.begin_id, True)
        assert model.chat_template.template == template
    again = CliRunner().invoke(main, ["convert", str(out), str(back), "--to", "packed"])
    assert again.exit_code == 0, again.output
    model = StoredModel.open(back)
    assert model.tensors["lm_head.weight"].format == "q8_0"
    written = StoredModel.open(out).tensors["lm_head.weight"]
    np.testing.assert_array_equal(model.tensors["lm_head.weight"].data, written.data)
    assert model.tokenizer is not None and model.tokenizer.adds_begin and model.chat_template.template == template
    assert model.tokenizer.encode("Hello wörld <|eot_id|>", special=True) == first.tokenizer.encode(
        "Hello wörld <|eot_id|>", special=True
    )


def test_what_is_refused(tmp_path: Path, ctx: Context) -> None:
    write_folder(tmp_path / "masters", CONFIG, master_weights(CONFIG))
    opened = StoredModel.open(tmp_path / "masters")
    with pytest.raises(ValueError, match="has one dtype for all numbers, and no other for its head"):
        convert_model(opened, tmp_path / "no", "hf-packed", ctx, head="f16")
    with pytest.raises(ValueError, match="i2_s has no dtype to choose; hf and hf-packed have"):
        convert_model(opened, tmp_path / "no", "i2_s", ctx, dtype="f16")
    packed = converted(ctx, tmp_path / "masters", tmp_path, "packed", "q6_k")
    with pytest.raises(FormatError, match="a folder of the form hf has f32, f16 and bf16"):
        convert_model(StoredModel.open(packed), tmp_path / "no", "hf", ctx)
    with pytest.raises(FormatError, match="is in q6_k already; rounding it again, to q8_0, would add errors"):
        convert_model(StoredModel.open(packed), tmp_path / "no", "packed", ctx, head="q8_0")
    odd = bitnet_config(hidden_size=96, num_hidden_layers=1)
    write_folder(tmp_path / "odd", odd, master_weights(odd))
    for form in TERNARY_FORMATS:
        with pytest.raises(FormatError, match=f"has rows of 96 weights; blocks of {form} have"):
            convert_model(StoredModel.open(tmp_path / "odd"), tmp_path / "no", form, ctx)
    with pytest.raises(FormatError, match="has rows of 96 elements; blocks of q6_k have 256"):
        convert_model(StoredModel.open(tmp_path / "odd"), tmp_path / "no", "packed", ctx, head="q6_k")
    llama = Shape(layers=1, hidden=32, ffn=32, heads=2, kv_heads=1, vocabulary=400)
    write_random_folder(tmp_path / "llama", llama, tokenizer_file=(SPM / "rules_bpe.model").read_bytes())
    with pytest.raises(FormatError, match="has no ternary weights; nncuda quantize writes other models"):
        convert_model(StoredModel.open(tmp_path / "llama"), tmp_path / "no", "packed", ctx)
    run = CliRunner().invoke(main, ["quantize", str(packed), str(tmp_path / "no"), "--format", "q4_0"])
    assert run.exit_code == 3 and "nncuda convert writes them in other forms" in run.output
    for arguments, words in (
        ([str(packed), str(packed), "--to", "packed"], "a folder is never replaced"),
        ([str(packed), str(tmp_path / "odd" / "config.json"), "--to", "i2_s"], "--force replaces it"),
    ):
        run = CliRunner().invoke(main, ["convert", *arguments])
        assert run.exit_code == 2 and words in run.output
    assert not (tmp_path / "no").exists() and not list(tmp_path.glob(".partial*"))


SPM = Path(__file__).parents[1] / "tokenizer"


def test_a_file_of_llama_cpp_is_written_again_with_its_scales(tmp_path: Path, ctx: Context) -> None:
    """Scales in f16, inside the blocks, as llama.cpp's own tool has them."""
    masters = master_weights(bitnet_config(hidden_size=256, intermediate_size=512))
    source = gguf_folder(tmp_path / "theirs.gguf", "tq2_0", masters)
    model = StoredModel.open(source)
    again = StoredModel.open(converted(ctx, source, tmp_path, "tq1_0"))
    for name, matrix in model.matrices.items():
        assert again.ternary(name).scale == matrix.scale == np.float16(matrix.scale)
        np.testing.assert_array_equal(again.ternary(name).codes(), matrix.codes())
