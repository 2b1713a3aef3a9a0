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

import numpy as np
import pytest
from bitnet_cases import CASES, FORMS, POSITIONS, SHAPES, folder, packed, packed_folder, prompt
from click.testing import CliRunner
from safetensors.numpy import save_file
from test_bitnet import RECORD, check_folder, check_logits, kept

import nncuda
from nncuda.cli.dump import dump
from nncuda.infer.language_model import LanguageModel
from nncuda.models.converted import convert_model
from nncuda.models.stored import StoredModel

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs the other programs", allow_module_level=True)

import torch
import transformers
from transformers.integrations import bitnet
from transformers.quantizers import quantizer_bitnet

LARGE = os.environ.get("NNCUDA_LARGE_BITNET")
_CLASSES = {"online": bitnet.AutoBitLinear, "multiplies": bitnet.AutoBitLinear, "divides": bitnet.BitLinear}


@pytest.fixture(autouse=True)
def _as_written(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No compiler, and no look for the package accelerate, which a model in one piece on a CPU does not use."""
    monkeypatch.setattr(quantizer_bitnet, "is_accelerate_available", lambda: True)
    with torch._dynamo.config.patch(disable=True):
        yield


def _logits(path: Path, ids: list[int], form: str, attention: str = "eager") -> np.ndarray:
    """f32 [ids, vocabulary]."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation=attention, low_cpu_mem_usage=True
    )
    assert type(model) is transformers.BitNetForCausalLM
    linear = [module for name, module in model.named_modules() if name.endswith("_proj")]
    assert len(linear) == 7 * model.config.num_hidden_layers and {type(each) for each in linear} == {_CLASSES[form]}
    # Of a quantised model it leaves numbers as the file has them, whatever dtype it is asked for, and then refuses to
    # be converted as a model; as a module it is.
    torch.nn.Module.float(model)
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0].numpy()


@pytest.fixture(scope="module")
def record() -> dict[str, np.ndarray]:
    return {}


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
    """The packed form alone, whose weights transformers unpacks one at a time: masters in f32 would take 10 GB. The
    noise is that between its two implementations of attention."""
    assert LARGE is not None
    path = packed_folder(Path(LARGE), tmp_path / "packed", "divides")
    try:
        vocabulary = json.loads((path / "config.json").read_text())["vocab_size"]
        ids = np.random.default_rng(5).integers(300, vocabulary - 300, POSITIONS).tolist()
        with LanguageModel.load(path, cache_format="f32", context=POSITIONS) as model:
            ours = model.logits(ids)
        theirs, other = (_logits(path, ids, "divides", attention) for attention in ("eager", "sdpa"))
    finally:
        shutil.rmtree(path)  # 2 GB, which pytest would keep
    print(f"logits with deviation {theirs.std():.2f}")
    check_logits(ours, kept(theirs), _noise([theirs, other]), LARGE)
