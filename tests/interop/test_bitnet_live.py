"""Our engine against transformers' BitNetForCausalLM, live; what that says is recorded for test_bitnet.py.

Every form is read by transformers' own loader (`from_pretrained`): which class reads which stands in bitnet_cases.py,
and is asserted here. They are run as they are written, without torch.compile, whose code may round otherwise.

NNCUDA_LARGE_BITNET=FOLDER compares masters of any size, too: `make interop-large` makes them of the shape of 2B-4T.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bitnet_cases import CASES, FORMS, JUDGED, SHAPES, folder, packed, packed_folder, prompt
from click.testing import CliRunner
from safetensors.numpy import save_file
from test_bitnet import RECORD, check_folder, kept

import nncuda
from nncuda.cli.dump import dump
from nncuda.convert.model import convert_model
from nncuda.infer.language_model import LanguageModel
from nncuda.models.stored import StoredModel

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs the other programs", allow_module_level=True)

import torch
import transformers
from transformers.integrations import bitnet
from transformers.quantizers import quantizer_bitnet

LARGE = os.environ.get("NNCUDA_LARGE_BITNET")
LARGE_POSITIONS = 640
_CLASSES = {"online": bitnet.AutoBitLinear, "multiplies": bitnet.AutoBitLinear, "divides": bitnet.BitLinear}


@pytest.fixture(autouse=True)
def _as_written(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No compiler, and no look for the package accelerate, which a model in one piece on a CPU does not use."""
    monkeypatch.setattr(quantizer_bitnet, "is_accelerate_available", lambda: True)
    with torch._dynamo.config.patch(disable=True):
        yield


def _model(path: Path, form: str) -> Any:
    """transformers' model of a folder, in f32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    assert type(model) is transformers.BitNetForCausalLM
    linear = [module for name, module in model.named_modules() if name.endswith("_proj")]
    assert len(linear) == 7 * model.config.num_hidden_layers and {type(each) for each in linear} == {_CLASSES[form]}
    # Of a quantised model it leaves numbers as the file has them, whatever dtype it is asked for, and then refuses to
    # be converted as a model; as a module it is.
    return torch.nn.Module.float(model)


def _logits(path: Path, ids: list[int], form: str) -> np.ndarray:
    """f32 [ids, vocabulary]."""
    with torch.no_grad():
        return _model(path, form)(input_ids=torch.tensor([ids])).logits[0].numpy()


def _noise(evaluations: Iterable[np.ndarray]) -> np.ndarray:
    """The largest difference between two, and the largest root mean square of one."""
    differences = [one - other for one, other in itertools.combinations(evaluations, 2)]
    largest = max(np.abs(difference).max() for difference in differences)
    return np.array([largest, max(np.sqrt(np.square(each).mean()) for each in differences)], np.float32)


@pytest.mark.parametrize("shape", SHAPES)
def test_transformers(tmp_path: Path, shape: str, record: dict[str, np.ndarray]) -> None:
    ids = prompt(SHAPES[shape])
    folders = {form: folder(tmp_path, shape, form) for form in FORMS}
    theirs = {form: _logits(path, ids, form) for form, path in folders.items()}
    noise = _noise(theirs.values())
    found = {f"{shape}.noise": noise}
    for form in FORMS:
        check_folder(folders[form], shape, kept(theirs[form]), noise, f"{shape}, {form}")
        if (shape, form) in CASES:
            found |= {f"{shape}.{form}.{name}": array for name, array in kept(theirs[form]).items()}
    record |= found


@pytest.mark.parametrize("form", ["hf", "hf-packed"])
def test_what_convert_writes(tmp_path: Path, form: str) -> None:
    """Folders of `nncuda convert` say the same to transformers, to the bit."""
    masters, ids = folder(tmp_path, "untied", "online"), prompt(SHAPES["untied"], 40)
    with nncuda.Context("cpu") as ctx:
        convert_model(StoredModel.open(masters), tmp_path / form, form, ctx)
    theirs = _logits(folder(tmp_path, "untied", "multiplies"), ids, "multiplies")
    np.testing.assert_array_equal(_logits(tmp_path / form, ids, "multiplies"), theirs)


def test_packed_as_by_transformers() -> None:
    codes = np.random.default_rng(3).integers(-1, 2, (36, 50), np.int8)
    theirs = bitnet.pack_weights(torch.from_numpy(codes.astype(np.float32)))
    np.testing.assert_array_equal(packed(codes), theirs.numpy())


@pytest.mark.parametrize("form", FORMS)
def test_steps(tmp_path: Path, form: str) -> None:
    """`nncuda dump --compare FOLDER` finds the same values in every step of every layer. Before the first activation
    that was rounded the other way, they are the same to rounding in f32; it moves what is behind it by less than a step
    of its code, 1/127 of the largest, and each layer may add one."""
    path, layers = str(folder(tmp_path, "untied", form)), range(SHAPES["untied"].layers)
    ids = " ".join(map(str, prompt(SHAPES["untied"], 6)))
    options = [word for layer in layers for word in ("--layer", str(layer))]
    options += ["--model", path, "--prompt", ids, "--ids", "--compare", path, "--tolerance", str(len(layers) / 127)]
    result = CliRunner().invoke(dump, options)
    print(result.output)
    assert result.exit_code == 0
    for layer, step in itertools.product(layers, ("attn_sub_norm", "ffn_sub_norm")):
        assert f"layers.{layer}.{step}" in result.output


def test_write_what_was_found(record: dict[str, np.ndarray]) -> None:
    """The last of those that record: it keeps what the tests before it agreed on."""
    if len(record) != 3 * len(CASES) + len(SHAPES):
        pytest.skip("not all cases ran, or agreed")
    save_file(record, RECORD, metadata={"torch": torch.__version__, "transformers": transformers.__version__})


@pytest.mark.skipif(LARGE is None, reason="`make interop-large` names a model")
def test_large(tmp_path: Path) -> None:
    """Layer by layer, each of transformers' on what our engine gave to its own, then the head.

    Over 30 layers with random weights, codes that were rounded the other way grow to the error of the rounding itself;
    over one layer they do not, and layers that each agree are a model that does. Packed weights, which transformers
    unpacks one at a time: masters in f32 would take 10 GB."""
    assert LARGE is not None
    path = packed_folder(Path(LARGE), tmp_path / "packed", "divides")
    found: dict[str, list[np.ndarray]] = {}

    def watch(name: str, tensor: nncuda.Tensor) -> None:
        if name == "embedding" or name.endswith(".output"):
            found.setdefault(name, []).append(tensor.numpy().copy())

    try:
        vocabulary = json.loads((path / "config.json").read_text())["vocab_size"]
        ids = np.random.default_rng(5).integers(300, vocabulary - 300, LARGE_POSITIONS).tolist()
        with LanguageModel.load(path, cache_format="f32", context=LARGE_POSITIONS) as ours:
            logits = ours.engine.logits(ids, watch)
        model = _model(path, "divides")
        steps = {name: torch.from_numpy(np.concatenate(pieces))[None] for name, pieces in found.items()}
        with torch.no_grad():
            _check_layers(model, steps)
            normed = model.model.norm(steps[f"layers.{len(model.model.layers) - 1}.output"])[0]
            theirs = model.lm_head(normed).numpy()
    finally:
        shutil.rmtree(path)  # 2 GB, which pytest would keep
    # Sums of K products in f32, in any order: each is within K 2^-24 |x| |w| of the exact one (Higham 2002, 3.1).
    longest = model.lm_head.weight.detach().norm(dim=1).max().item()
    bound = normed.shape[1] * 2.0**-24 * normed.norm(dim=1).numpy() * longest
    best = kept(theirs)
    sure = best["margins"] > 4 * bound
    same = logits.argmax(-1) == best["tokens"]
    alike = np.corrcoef(logits[::40].ravel(), theirs[::40].ravel())[0, 1]
    print(
        f"logits: correlation {alike:.9f}, largest difference {np.abs(logits - theirs).max():.1e}; {sure.sum()} of "
        f"{len(sure)} positions are beyond rounding in f32, {same[sure].sum()} of them have the same token; of the "
        f"others differ {np.flatnonzero(~sure & ~same).tolist()}"
    )
    assert alike > 0.999 and sure.sum() >= JUDGED and same[sure].all()


def _check_layers(model: Any, steps: dict[str, Any]) -> None:
    x = steps["embedding"]
    rows = x.shape[1]
    mask = torch.full((rows, rows), -torch.inf).triu(1)[None, None]
    turned = model.model.rotary_emb(x, torch.arange(rows)[None])
    for number, layer in enumerate(model.model.layers):
        ours = steps[f"layers.{number}.output"]
        added, theirs = (ours - x).numpy(), (layer(x, attention_mask=mask, position_embeddings=turned) - x).numpy()
        alike = np.corrcoef(added.ravel(), theirs.ravel())[0, 1]
        share = np.sqrt(np.square(added - theirs).mean() / np.square(theirs).mean())
        print(f"layer {number}: what it adds has correlation {alike:.9f}, rms difference {share:.1e} of it", flush=True)
        assert alike > 0.999
        x = ours
