"""Models in formats whose codes number the values of a table, which are read and never stored here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_models import llama_config, stored_model

import nncuda
from nncuda.formats.block_formats import FORMATS, StoredTensor
from nncuda.infer.engine import Engine
from nncuda.models.llama import is_plain
from nncuda.models.stored import StoredModel, StoredTensors
from nncuda.reference import quant


@pytest.mark.parametrize("name", ["iq4_nl", "mxfp4", "iq4_xs"])
def test_a_model_is_that_in_q8_0_with_the_values_of_the_table(ctx: nncuda.Context, name: str) -> None:
    """Where scales fit f16, q8_0 holds the same numbers, and products with them are the same by definition."""
    config = llama_config(hidden_size=256, head_dim=64, ffn_size=512)
    entry, rng = FORMATS[name], np.random.default_rng(5)
    plain, models = stored_model(ctx, config), []
    parts: dict[str, dict[str, list[StoredTensor]]] = {name: {}, "q8_0": {}}
    for key, shape in config.shapes().items():
        if is_plain(key):
            parts[name][key] = parts["q8_0"][key] = plain.tensors.parts(key)
            continue
        rows = rng.integers(0, 256, (shape[0], entry.row_bytes(shape[1])), np.uint8)
        blocks = rows.reshape(-1, entry.bytes)
        if name == "mxfp4":
            blocks[:, 0] = rng.integers(118, 122, len(blocks))
        else:  # a power of two, so that iq4_xs's times a part's has not more than f16's bits
            power = 2.0**-11 if name == "iq4_nl" else 2.0**-15
            blocks[:, :2] = np.array([power], np.float16).view(np.uint8)
        codes, scale, _ = quant.blocks_of(rows, entry.code)
        halves = scale.astype(np.float16)
        np.testing.assert_array_equal(halves, scale)
        wide = np.concatenate([halves[..., None].view(np.uint8), codes.astype(np.int8).view(np.uint8)], axis=-1)
        parts[name][key] = [StoredTensor(key, name, shape, rows.reshape(-1))]
        parts["q8_0"][key] = [StoredTensor(key, "q8_0", shape, wide.reshape(-1))]
    for made in parts.values():
        models.append(StoredModel(Path("in memory"), config, StoredTensors(made, config.shapes())))
    ids = rng.integers(0, config.vocab_size, 40, dtype=np.int32)
    wanted = Engine(models[1], ctx, weights="file").logits(ids)
    assert np.isfinite(wanted).all() and wanted.std() > 0
    for weights in ("file", "memory"):
        np.testing.assert_array_equal(Engine(models[0], ctx, weights=weights).logits(ids), wanted)
