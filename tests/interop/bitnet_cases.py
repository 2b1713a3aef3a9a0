"""The BitNets that our engine and other programs run, live and as recorded: seeded, so that nothing large is kept.

Hugging Face folders have their ternary weights in three forms, which transformers' loaders read with opposite ideas of
`weight_scale`; with s = mean |W|, and W taken for codes * s:

    online       no `weight_scale`: masters, which `AutoBitLinear` (linear_class "autobitlinear", mode "online") rounds
                 whenever it is called
    multiplies   codes, four to a byte, and weight_scale = s, by which `AutoBitLinear` (mode "offline") MULTIPLIES its
                 product; the published 2B-4T is of this form
    divides      the same bytes and weight_scale = 1/s, by which `BitLinear` (linear_class "bitlinear", the default)
                 DIVIDES its product
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import nncuda
from nncuda.bench.random_model import Shape, write_folder
from nncuda.convert.model import convert_model
from nncuda.models.stored import StoredModel

RECORDED = Path(__file__).parent / "recorded"
#: Made by random_tokenizer.byte_level(600); committed, since another release of `tokenizers` may train another one.
TOKENIZER = RECORDED / "bitnet_tokenizer.json"

_SMALL = Shape(layers=3, hidden=256, ffn=512, heads=4, kv_heads=2, vocabulary=600, context=1024, rope_base=500000.0,
               bitnet=True)  # fmt: skip
#: "odd" has rows that fill neither sixteen columns nor sixteen rows, and are no whole blocks of any format.
SHAPES = {
    "untied": _SMALL,
    "tied": replace(_SMALL, tied=True),
    "odd": replace(_SMALL, hidden=120, ffn=212, heads=5, kv_heads=1, layers=2),
}
FORMS = ("online", "multiplies", "divides")
#: What is compared with transformers: each form once, and each shape in the form whose products are exact there.
CASES = tuple((shape, form) for shape in SHAPES for form in (FORMS if shape == "untied" else ("divides",)))

#: In GGUF files: rows of whole blocks of 256, and the only kind of BitNet that llama.cpp computes (SiLU, a tied head).
IN_GGUF = replace(_SMALL, layers=2, ffn=768, tied=True, silu=True)
GGUF_FORMATS = ("tq2_0", "tq1_0")
GGUF_PROMPT, GGUF_GREEDY = 40, 50
#: What the `gguf` package writes: one layer, so that the file is small enough to be kept.
BY_PACKAGE = replace(_SMALL, layers=1, ffn=256, vocabulary=32, tied=True, silu=True)

#: Positions, of which 500 must have a margin beyond the noise, and every how many logits are kept.
POSITIONS, JUDGED, KEPT_EVERY = 1000, 500, 40


def prompt(shape: Shape, count: int = POSITIONS) -> list[int]:
    """Ids of text, without those of bytes and controls."""
    return np.random.default_rng(5).integers(300, shape.vocabulary - 16, count).tolist()


def packed(codes: np.ndarray) -> np.ndarray:
    """u8 [outputs/4, inputs], as transformers packs: bits 2i of row r are row r + i * outputs/4, plus 1."""
    quarters = (codes + 1).astype(np.uint8).reshape(4, -1, codes.shape[1])
    return quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6


def packed_folder(masters: Path, folder: Path, form: str) -> Path:
    """A folder with masters in another form: "multiplies" or "divides"."""
    folder.mkdir(parents=True)
    for file in masters.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, folder)
    content = json.loads((masters / "config.json").read_text())
    kind = {"multiplies": "autobitlinear", "divides": "bitlinear"}[form]
    content["quantization_config"] = {"quant_method": "bitnet", "linear_class": kind, "quantization_mode": "offline"}
    (folder / "config.json").write_text(json.dumps(content, indent=1))
    model, tensors = StoredModel.open(masters), {}
    for name, stored in model.tensors.items():
        if name != "lm_head.weight" or not model.config.tie_embeddings:
            tensors[name] = stored.f32()
    for name, matrix in model.matrices.items():
        tensors[name] = packed(matrix.codes())
        scale = np.float32(matrix.scale)
        tensors[f"{name}_scale"] = np.array([scale if form == "multiplies" else np.float32(1) / scale])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def folder(place: Path, shape: str, form: str) -> Path:
    """The folder of a case of `CASES`, written into `place`."""
    masters = place / f"{shape}-masters"
    if not masters.exists():
        write_folder(masters, SHAPES[shape], seed=1, dtype="f32", tokenizer_file=TOKENIZER.read_bytes())
    return masters if form == "online" else packed_folder(masters, place / f"{shape}-{form}", form)


def gguf_files(ctx: nncuda.Context, place: Path) -> dict[str, Path]:
    """`IN_GGUF` in each of `GGUF_FORMATS`, as `nncuda convert` writes it."""
    write_folder(place / "masters", IN_GGUF, seed=2, dtype="f32", tokenizer_file=TOKENIZER.read_bytes())
    model, files = StoredModel.open(place / "masters"), {}
    for form in GGUF_FORMATS:
        files[form] = place / f"{form}.gguf"
        convert_model(model, files[form], form, ctx, head="q8_0")
    return files


def tensors_by_package() -> dict[str, np.ndarray]:
    """What the `gguf` package is given of `BY_PACKAGE`, by its own names: ternary matrices as numbers, f32, one in
    eight of their blocks without any weight but 0, whose scale the package makes 0."""
    rng = np.random.default_rng(4)

    def matrix(rows: int, columns: int, scale: float) -> np.ndarray:
        codes = rng.integers(-1, 2, (rows, columns // 256, 256))
        codes[rng.random(codes.shape[:2]) < 1 / 8] = 0
        return (codes.reshape(rows, columns) * scale).astype(np.float32)

    hidden, ffn, keys = BY_PACKAGE.hidden, BY_PACKAGE.ffn, BY_PACKAGE.kv_heads * BY_PACKAGE.dim
    made = {
        "token_embd.weight": rng.standard_normal((BY_PACKAGE.vocabulary, hidden), np.float32),
        "output_norm.weight": np.ones(hidden, np.float32),
    }
    sizes = {"attn_norm": hidden, "attn_sub_norm": hidden, "ffn_norm": hidden, "ffn_sub_norm": ffn}
    made |= {f"blk.0.{name}.weight": np.linspace(0.5, 1.5, size, dtype=np.float32) for name, size in sizes.items()}
    shapes = {"attn_q": (hidden, hidden), "attn_k": (keys, hidden), "attn_v": (keys, hidden)}
    shapes |= {"attn_output": (hidden, hidden), "ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden)}
    shapes["ffn_down"] = (hidden, ffn)
    for number, (name, shape) in enumerate(shapes.items()):
        made[f"blk.0.{name}.weight"] = matrix(*shape, 0.03125 * (number + 1))  # which f16 holds
    return made
