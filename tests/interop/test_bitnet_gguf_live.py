"""BitNets in GGUF files between this library, llama.cpp and the `gguf` package, live; recorded here."""

from __future__ import annotations

import ctypes
import os
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from bitnet_cases import (
    BY_PACKAGE,
    GGUF_FORMATS,
    GGUF_GREEDY,
    GGUF_PROMPT,
    IN_GGUF,
    TOKENIZER,
    prompt,
    tensors_by_package,
)
from safetensors.numpy import save_file
from test_bitnet_gguf import PACKAGE_FILES, RECORD, check_logits, check_package_file
from test_llama import digest

import nncuda
from nncuda.bench.random_model import write_folder
from nncuda.convert.model import convert_model
from nncuda.models.stored import StoredModel

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs the other programs", allow_module_level=True)

import gguf
import llama_cpp
from llama_cpp_apart import LlamaCpp


def _run(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """llama.cpp's logits behind each id of the prompt, and the tokens that follow greedily."""
    ids = prompt(IN_GGUF, GGUF_PROMPT)
    other = LlamaCpp(str(path), 1, 256, 1)
    return other.logits(ids), other.greedy(ids, GGUF_GREEDY)


@pytest.mark.parametrize("form", GGUF_FORMATS)
def test_ours_in_llama_cpp(files: dict[str, Path], form: str, record: dict[str, np.ndarray]) -> None:
    logits, tokens = _run(files[form])
    check_logits(files[form], logits, tokens, form)
    record |= {f"{form}.digest": digest(files[form]), f"{form}.logits": logits, f"{form}.tokens": tokens}


def _add_configuration(writer: gguf.GGUFWriter, shape: object = IN_GGUF) -> None:
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_vocab_size(shape.vocabulary)
    # As llama.cpp's converter writes them.
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(1.0)


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("form", GGUF_FORMATS)
def test_theirs_here(tmp_path: Path, form: str) -> None:
    """What the package quantises and writes is read here."""
    kind, path = gguf.GGMLQuantizationType[form.upper()], tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "bitnet")
    _add_configuration(writer, BY_PACKAGE)
    for name, numbers in tensors_by_package().items():
        if name.startswith("blk") and "norm" not in name:
            writer.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, numbers.astype(np.float16) if numbers.ndim > 1 else numbers)
    _write(writer)
    check_package_file(path, form)
    PACKAGE_FILES[form].write_bytes(path.read_bytes())


@pytest.mark.parametrize("form", GGUF_FORMATS)
def test_ours_in_the_package(files: dict[str, Path], form: str) -> None:
    """What `nncuda convert` writes has in the package's eyes the numbers of the folder: its blocks have the scale 1,
    and the scale of a matrix, which f16 would round, stands beside it."""
    model = StoredModel.open(files[form])
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(files[form]).tensors}
    masters = StoredModel.open(files[form].parent / "masters")
    for name, matrix in model.matrices.items():
        theirs = tensors[matrix.name]
        assert theirs.tensor_type.name == form.upper()
        np.testing.assert_array_equal(gguf.quants.dequantize(theirs.data, theirs.tensor_type), matrix.codes())
        scale = tensors[matrix.name.replace("weight", "scale")].data
        assert scale.shape == (1,) and scale[0] == matrix.scale == masters.ternary(name).scale


@pytest.mark.parametrize("form", GGUF_FORMATS)
def test_files_of_llama_cpp(files: dict[str, Path], tmp_path: Path, form: str) -> None:
    """llama.cpp's quantiser on numbers under the names and with the words of its converter: that file runs here as
    there, its embeddings in q4_k, as that quantiser has them."""
    ours = gguf.GGUFReader(files[form])
    source, path = tmp_path / "f32.gguf", tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(source, "bitnet")
    _add_configuration(writer)
    for key, field in ours.fields.items():
        if key.startswith("tokenizer."):
            kind = field.types[0]
            writer.add_key_value(key, field.contents(), kind, field.types[-1] if len(field.types) > 1 else None)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BITNET, IN_GGUF.layers)
    masters = StoredModel.open(files[form].parent / "masters")
    for name, matrix in masters.matrices.items():
        writer.add_tensor(names.get_name(name, (".weight",)), matrix.codes() * np.float32(matrix.scale))
    sub_norms = {"attn_sub_norm": "inner_attn_ln", "ffn_sub_norm": "ffn_layernorm"}  # of the first BitNets
    for name, tensor in masters.tensors.items():
        if name != "lm_head.weight":
            for new, old in sub_norms.items():
                name = name.replace(new, old)
            writer.add_tensor(names.get_name(name, (".weight",)), tensor.f32())
    _write(writer)
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = {"tq2_0": llama_cpp.LLAMA_FTYPE_MOSTLY_TQ2_0, "tq1_0": llama_cpp.LLAMA_FTYPE_MOSTLY_TQ1_0}[form]
    assert llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), ctypes.byref(options)) == 0
    model = StoredModel.open(path)
    assert {matrix.form for matrix in model.matrices.values()} == {form}
    check_logits(path, *_run(path), f"{form} by llama.cpp")
    check_logits(source, *_run(source), "f32 by the package")


def test_llama_cpp_knows_no_i2_s(ctx: nncuda.Context, tmp_path: Path) -> None:
    """Why the other side of i2_s is a decoder in test_bitnet_gguf.py; when this fails, it can be llama.cpp."""
    write_folder(tmp_path / "masters", IN_GGUF, seed=2, dtype="f32", tokenizer_file=TOKENIZER.read_bytes())
    convert_model(StoredModel.open(tmp_path / "masters"), tmp_path / "i2_s.gguf", "i2_s", ctx)
    with pytest.raises(RuntimeError, match="cannot open"):
        LlamaCpp(str(tmp_path / "i2_s.gguf"), 1, 64, 1)


def test_write_what_was_found(record: dict[str, np.ndarray]) -> None:
    """The last of the file: it keeps what the tests before it agreed on."""
    if len(record) != 3 * len(GGUF_FORMATS):
        pytest.skip("not all cases ran, or agreed")
    save_file(record, RECORD, metadata={"llama-cpp-python": llama_cpp.__version__, "gguf": version("gguf")})
