"""What the gguf package and transformers make of ternary weights, live. Records it."""

from __future__ import annotations

import json
import os
from importlib.metadata import version

import numpy as np
import pytest
import ternary_cases as cases
from quant_cases import digest

from nncuda.formats.block_formats import TERNARY_FORMATS

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("needs the gguf package and transformers: make interop", allow_module_level=True)

import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from transformers.integrations import bitnet


def test_record() -> None:
    stored, read = {}, {}
    for name in cases.BLOCKS:
        kind = GGMLQuantizationType(TERNARY_FORMATS[name].gguf_type)
        stored[name] = digest(quantize(cases.codes().astype(np.float32) * np.float32(cases.SCALE), kind).view(np.uint8))
        read[name] = digest(dequantize(cases.stored_bytes(name), kind))
    packed = bitnet.pack_weights(torch.from_numpy(cases.codes().astype(np.float32)))
    found = {
        "gguf": version("gguf"),
        "transformers": version("transformers"),
        "stored": stored,
        "read": read,
        "packed": digest(packed.numpy()),
        "unpacked": digest(_unpacked(packed)),
    }
    cases.RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _unpacked(packed: torch.Tensor) -> np.ndarray:
    function = getattr(bitnet.unpack_weights, "_torchdynamo_orig_callable", bitnet.unpack_weights)
    return function(packed, torch.float32).numpy()
