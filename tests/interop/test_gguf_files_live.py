"""GGUF files between this library and the `gguf` package, both ways. Records a file of theirs."""

from __future__ import annotations

import os
from pathlib import Path

import gguf_file_cases as cases
import numpy as np
import pytest
from test_gguf_files import RECORDED, check_theirs

from nncuda.formats.block_formats import FORMATS
from nncuda.formats.gguf_writer import NewTensor, Value, write_gguf

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs the gguf package", allow_module_level=True)

import gguf


def test_theirs_is_read_here(tmp_path: Path) -> None:
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    add = {"u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16", "u32": "uint32", "i32": "int32"}
    add |= {"f32": "float32", "u64": "uint64", "i64": "int64", "f64": "float64"}
    for kind, value in cases.SCALARS.items():
        getattr(writer, f"add_{add.get(kind, kind)}")(f"one.{kind}", value)
    for name, values in cases.ARRAYS.items():
        writer.add_array(f"many.{name}", values)
    for name, (format_name, shape, data) in cases.tensors().items():
        rows = data.reshape(*shape[:-1], -1)
        kind = gguf.GGMLQuantizationType(FORMATS[format_name].gguf_type)
        if format_name in ("f32", "f16"):  # which it takes as numbers
            writer.add_tensor(name, rows.view(FORMATS[format_name].numpy).reshape(shape))
        else:
            writer.add_tensor(name, rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    check_theirs(path)
    RECORDED.write_bytes(path.read_bytes())


def test_ours_is_read_there(tmp_path: Path) -> None:
    path = tmp_path / "ours.gguf"
    tensors = cases.tensors()
    values = {f"one.{kind}": Value(kind, value) for kind, value in cases.SCALARS.items()}
    values |= {f"many.{name}": entries for name, entries in cases.ARRAYS.items()}
    plan = [NewTensor(name, format_name, shape) for name, (format_name, shape, _) in tensors.items()]
    with write_gguf(path, {"general.architecture": "llama", **values}, plan) as writer:
        for name, (_, _, data) in tensors.items():
            writer.write(name, data)
    reader = gguf.GGUFReader(path)
    for key, value in cases.SCALARS.items():
        assert reader.fields[f"one.{key}"].contents() == value
    for key, entries in cases.ARRAYS.items():
        assert list(reader.fields[f"many.{key}"].contents()) == entries
    assert [tensor.name for tensor in reader.tensors] == list(tensors)
    for tensor in reader.tensors:
        format_name, shape, data = tensors[tensor.name]
        assert tensor.tensor_type.value == FORMATS[format_name].gguf_type
        assert tuple(reversed(tensor.shape.tolist())) == shape
        np.testing.assert_array_equal(np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1), data)
