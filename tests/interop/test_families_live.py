"""Our engine against transformers for every family, live; what the other side says is recorded.

`make interop` runs this where transformers is. Where the two disagree it fails; when they agree it writes the other
side's results to `recorded/`, which test_families_recorded.py checks without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from family_models import FAMILIES
from llama_cases import GREEDY, prompt
from safetensors.numpy import save_file
from test_families_recorded import RECORD, check_folder, folder

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs the other programs", allow_module_level=True)

import torch
import transformers


@pytest.fixture(scope="module")
def record() -> Iterator[dict[str, np.ndarray]]:
    yield {}


@pytest.mark.parametrize("name", FAMILIES)
def test_transformers(tmp_path: Path, name: str, record: dict[str, np.ndarray]) -> None:
    path, ids = folder(tmp_path, name), prompt(FAMILIES[name])
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    given = torch.tensor([ids])
    with torch.no_grad():
        logits = model(input_ids=given).logits[0].numpy()
        written = model.generate(given, max_new_tokens=GREEDY, do_sample=False, eos_token_id=None, pad_token_id=0)
    found = {f"{name}.logits": logits[-8:].copy(), f"{name}.tokens": written[0, len(ids) :].numpy().astype(np.int32)}
    check_folder(path, name, found)
    record |= found


def test_write_what_was_found(record: dict[str, np.ndarray]) -> None:
    """The last of the file: it keeps what the tests before it agreed on."""
    if len(record) != 2 * len(FAMILIES):
        pytest.skip("not all cases ran, or agreed")
    save_file(record, RECORD, metadata={"torch": torch.__version__, "transformers": transformers.__version__})
