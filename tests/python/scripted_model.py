"""Models that write what they are told: after the control token of a script its pieces, a token each, whatever came
before. So a test has texts that no random model would write, cut where it wants them cut."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from nncuda.bench.random_model import Shape, write_folder
from nncuda.tokenizer.sentencepiece_model import BYTE, CONTROL, NORMAL, UNIGRAM, UNKNOWN, USER_DEFINED, PieceModel

#: One element of the hidden state for each token: a Llama whose layers add nothing.
SHAPE = Shape(layers=1, hidden=512, ffn=64, heads=8, kv_heads=1, vocabulary=512, context=1024)

_END = 2


def write_scripted(folder: Path, scripts: Mapping[str, Sequence[str]], template: str, controls: Sequence[str]) -> None:
    """Writes a Hugging Face folder. A script's name is its control token; of its pieces those in `controls` are control
    tokens, too. No piece may stand twice, unless the same one follows it: what is written next depends on it alone."""
    pieces = list(dict.fromkeys(piece for script in scripts.values() for piece in script if piece not in controls))
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *controls, *scripts]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[CONTROL] * (len(controls) + len(scripts))]
    names += [piece.replace(" ", "\N{LOWER ONE EIGHTH BLOCK}") for piece in pieces]
    kinds += [USER_DEFINED] * len(pieces)
    while len(names) < SHAPE.vocabulary:
        names.append(f"zz{len(names)}")
        kinds.append(NORMAL)
    model = PieceModel(
        names, [0.0] * len(names), kinds, UNIGRAM, add_dummy_prefix=False, remove_extra_whitespaces=False
    )
    write_folder(folder, SHAPE, dtype="f32", tokenizer_file=model.to_bytes())
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    described = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**described, "add_bos_token": False}))

    ids = {name.replace("\N{LOWER ONE EIGHTH BLOCK}", " "): token for token, name in enumerate(names)}
    after = dict.fromkeys(range(len(names)), _END)
    for name, script in scripts.items():
        tokens = [ids[name], *(ids[piece] for piece in script), _END]
        for one, following in itertools.pairwise(tokens):
            assert after[one] in (_END, following), f"{names[one]!r} is followed by several pieces"
            after[one] = following
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight[:] = 0
        elif name.endswith("norm.weight"):
            weight[:] = 1
    weights["model.embed_tokens.weight"][:] = np.eye(len(names), dtype=np.float32)
    head = weights["lm_head.weight"]
    head[:] = 0
    for one, following in after.items():
        head[following, one] = 2
    save_file(weights, folder / "model.safetensors")
